//! Finds how many requests a server can work on at once. A function of measurements.
//!
//! A server that is not full takes its shortest time for a request, and finishes its most requests per second. Their
//! product is the number of requests that occupies it (Little's law); more of them only wait inside of the server. The
//! limit is a little more than the product, so that a faster server shows itself. While the limit holds requests back, the
//! shortest time cannot be seen, so every 10 s one measurement is made with half of the limit.

use std::time::Duration;

/// Shortest time of a measurement.
pub(super) const WINDOW: Duration = Duration::from_millis(250);
/// Fewest responses of a measurement: a mean of fewer is chance.
pub(super) const SAMPLES_MIN: u32 = 20;
/// Limit before the first measurement.
pub(super) const LIMIT_FIRST: u32 = 32;
/// Lowest limit.
const LIMIT_MIN: f64 = 2.0;
/// Highest limit.
const LIMIT_MAX: f64 = 100_000.0;
/// What the limit exceeds the computed number by: this factor, and a constant for servers that work on few requests.
const HEADROOM: f64 = 1.3;
const HEADROOM_REQUESTS: f64 = 2.0;
/// Factor by which a failure in a measurement lowers the limit.
const FAILURE_FACTOR: f64 = 0.8;
/// Measurements after which the shortest time is measured again.
const WINDOWS_BETWEEN_PROBES: u32 = 40;
/// Share of the shortest time that a measurement with half of the limit has to go below to be repeated soon.
const MUCH_SHORTER: f64 = 0.9;
/// Share of the limit that has to be reached for a measurement to show the server's most.
const USED_SHARE: f64 = 0.8;

/// What was measured in one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    /// The length of the window.
    pub(super) elapsed: Duration,
    /// Responses, at least one.
    pub(super) responses: u32,
    /// Sum of the times from request to response.
    pub(super) total: Duration,
    /// Most requests at work at once.
    pub(super) at_work_max: u32,
    /// Requests without a response.
    pub(super) failures: u32,
}

/// The limit of one server.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    limit: f64,
    /// The shortest mean time, in seconds; infinite before the first measurement.
    shortest: f64,
    /// Measurements since the shortest time was seen.
    age: u32,
    phase: ProbePhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbePhase {
    Steady,
    /// Half of the limit applies, and the next measurement contains requests of the time before.
    ProbeBegins,
    /// Half of the limit applies.
    Probe,
}

impl Default for AdaptiveLimit {
    fn default() -> Self {
        // The server may be full at the first measurement, so its shortest time is measured at once.
        Self {
            limit: f64::from(LIMIT_FIRST),
            shortest: f64::INFINITY,
            age: WINDOWS_BETWEEN_PROBES,
            phase: ProbePhase::Steady,
        }
    }
}

impl AdaptiveLimit {
    /// Takes a measurement into account. Returns the limit for the next one.
    pub(super) fn update(&mut self, measured: Measurement) -> u32 {
        let responses = f64::from(measured.responses.max(1));
        let mean = measured.total.as_secs_f64() / responses;
        match self.phase {
            ProbePhase::ProbeBegins => {
                self.phase = ProbePhase::Probe;
                return self.current();
            }
            ProbePhase::Probe => {
                self.phase = ProbePhase::Steady;
                // A much shorter time shows that the server was full even with half of the limit.
                let is_much_shorter = mean < self.shortest * MUCH_SHORTER;
                self.age = if is_much_shorter { WINDOWS_BETWEEN_PROBES } else { 0 };
                self.shortest = mean;
                return self.current();
            }
            ProbePhase::Steady => {}
        }
        let is_used = f64::from(measured.at_work_max) >= self.limit * USED_SHARE;
        self.age += 1;
        if mean < self.shortest {
            self.shortest = mean;
        }
        if is_used {
            let per_second = responses / measured.elapsed.as_secs_f64().max(1e-6);
            let target = per_second * self.shortest * HEADROOM + HEADROOM_REQUESTS;
            self.limit += (target - self.limit) / 2.0;
        }
        if measured.failures > 0 {
            self.limit *= FAILURE_FACTOR;
        }
        self.limit = self.limit.clamp(LIMIT_MIN, LIMIT_MAX);
        if is_used && self.age >= WINDOWS_BETWEEN_PROBES {
            self.phase = ProbePhase::ProbeBegins;
        }
        self.current()
    }

    fn current(&self) -> u32 {
        let limit = if self.phase == ProbePhase::Steady { self.limit } else { (self.limit / 2.0).max(LIMIT_MIN) };
        limit.round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that works on `parallel` requests at once, each for `service` seconds, and lets others wait.
    struct Model {
        parallel: f64,
        service: f64,
    }

    impl Model {
        /// What a proxy measures that always has more requests than the limit. Returns responses per second, too.
        fn measure(&self, limit: u32) -> (Measurement, f64) {
            let at_work = f64::from(limit);
            let per_second = at_work.min(self.parallel) / self.service;
            let responses = (per_second * WINDOW.as_secs_f64()).max(1.0);
            let mean = at_work / per_second;
            let measured = Measurement {
                elapsed: Duration::from_secs_f64(responses / per_second),
                responses: responses as u32,
                total: Duration::from_secs_f64(mean * responses.floor()),
                at_work_max: limit,
                failures: 0,
            };
            (measured, per_second)
        }
    }

    #[test]
    fn limit_finds_what_a_server_can_do() {
        for parallel in [1.0, 4.0, 16.0, 100.0, 2000.0] {
            let model = Model { parallel, service: 0.020 };
            let mut adaptive = AdaptiveLimit::default();
            let mut limit = LIMIT_FIRST;
            let (mut sum, mut highest) = (0.0, 0);
            for window in 0..1000 {
                let (measured, per_second) = model.measure(limit);
                limit = adaptive.update(measured);
                if window >= 100 {
                    sum += per_second;
                    highest = highest.max(limit);
                }
            }
            let share = sum / 900.0 / (parallel / model.service);
            assert!(share > 0.95, "{parallel} at once: {share} of its best");
            assert!(f64::from(highest) <= parallel * 1.8 + 6.0, "{parallel} at once: a limit of {highest}");
        }
    }

    #[test]
    fn limit_follows_a_server_that_becomes_slower() {
        let mut adaptive = AdaptiveLimit::default();
        let mut limit = LIMIT_FIRST;
        let mut settle = |parallel| {
            for _ in 0..200 {
                limit = adaptive.update(Model { parallel, service: 0.010 }.measure(limit).0);
            }
            limit
        };
        let (fast, slow) = (settle(200.0), settle(20.0));
        assert!((200..400).contains(&fast), "{fast}");
        assert!((20..45).contains(&slow), "{slow}");
        assert!(settle(200.0) > 190);
    }

    #[test]
    fn an_idle_server_keeps_its_limit_and_failures_lower_it() {
        let mut adaptive = AdaptiveLimit::default();
        let quiet = Measurement {
            elapsed: Duration::from_secs(2),
            responses: 20,
            total: Duration::from_millis(200),
            at_work_max: 1,
            failures: 0,
        };
        assert!((0..1000).all(|_| adaptive.update(quiet) == LIMIT_FIRST));
        let failing = Measurement { failures: 1, ..quiet };
        assert!(adaptive.update(failing) < LIMIT_FIRST);
        assert!((0..100).all(|_| adaptive.update(failing) < LIMIT_FIRST));
        assert_eq!(adaptive.update(failing), LIMIT_MIN as u32);
    }
}
