//! Finds how many requests a server can work on at once. A function of measurements.
//!
//! A server that is not full takes its shortest time for a request, and finishes its most requests per second. Their
//! product is the number of requests that occupies it (Little's law); more of them only wait inside of the server, or make
//! it slower. The limit is a little more than the product, so that a faster server shows itself. While the limit holds
//! requests back, the shortest time cannot be seen, so every 10 s a probe measures with a lower limit. If the server
//! finishes as many requests with it, the server was full, and the lower limit stays.

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
/// What the limit exceeds the computed number by: a share, and a constant for servers that work on few requests. The share
/// is the highest for a server that takes its shortest time, and falls by as much as the server exceeds this time.
const HEADROOM_MAX: f64 = 0.3;
const HEADROOM_MIN: f64 = 0.1;
const HEADROOM_REQUESTS: f64 = 1.0;
/// Responses that move the limit by half of its distance from the computed number. Fewer move it less.
const SAMPLES_FULL: f64 = 100.0;
const STEP_FULL: f64 = 0.5;
/// Bounds of the step. A low limit has few responses, and must not last for this reason. A short pause of the server or of
/// this machine must not lower the limit by much.
const STEP_UP: (f64, f64) = (0.3, 0.5);
const STEP_DOWN: (f64, f64) = (0.1, 0.2);
/// Share of the difference that a shorter mean lowers the shortest time by. A single mean is shorter by chance, too.
const SHORTER_SHARE: f64 = 0.1;
/// Share of a new measurement in the mean of requests per second.
const RATE_SHARE: f64 = 0.15;
/// Factor by which a failure in a measurement lowers the limit.
const FAILURE_FACTOR: f64 = 0.8;
/// Measurements after which a probe begins.
const WINDOWS_BETWEEN_PROBES: u32 = 40;
/// Measurements and responses of a probe, whichever is reached first.
const PROBE_WINDOWS: u32 = 2;
const PROBE_SAMPLES: u32 = 100;
/// Share of the limit that applies during a probe: of a server that was not full at the last one, and of others.
const PROBE_SHARE: f64 = 0.7;
const DEEP_PROBE_SHARE: f64 = 0.5;
/// Share of its requests per second that a server keeps during a probe if it was full.
const KEPT_SHARE: f64 = 0.95;
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

impl Measurement {
    /// The mean time from request to response, in seconds.
    fn mean(&self) -> f64 {
        self.total.as_secs_f64() / f64::from(self.responses.max(1))
    }

    /// Responses per second.
    fn rate(&self) -> f64 {
        f64::from(self.responses.max(1)) / self.elapsed.as_secs_f64().max(1e-6)
    }

    /// This window and the one before.
    fn joined(self, before: Self) -> Self {
        Self {
            elapsed: self.elapsed.saturating_add(before.elapsed),
            responses: self.responses.saturating_add(before.responses),
            total: self.total.saturating_add(before.total),
            at_work_max: self.at_work_max.max(before.at_work_max),
            failures: self.failures.saturating_add(before.failures),
        }
    }
}

/// The limit of one server.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    limit: f64,
    /// The shortest mean time, in seconds; infinite before the first measurement.
    shortest: f64,
    /// Responses per second while no probe runs; zero before the first measurement.
    rate: f64,
    /// Measurements since the last probe.
    age: u32,
    phase: ProbePhase,
    /// Share of the limit that applies during a probe.
    probe_share: f64,
}

#[derive(Clone, Copy, Debug)]
enum ProbePhase {
    Steady,
    /// The lower limit applies, and the next measurement contains requests of the time before.
    ProbeBegins,
    /// The lower limit applies. Contains the number of windows, and their sum.
    Probe(u32, Option<Measurement>),
}

impl Default for AdaptiveLimit {
    fn default() -> Self {
        // The server may be full at the first measurement, so a probe follows at once.
        Self {
            limit: f64::from(LIMIT_FIRST),
            shortest: f64::INFINITY,
            rate: 0.0,
            age: WINDOWS_BETWEEN_PROBES,
            phase: ProbePhase::Steady,
            probe_share: DEEP_PROBE_SHARE,
        }
    }
}

impl AdaptiveLimit {
    /// Takes a measurement into account. Returns the limit for the next one.
    pub(super) fn update(&mut self, measured: Measurement) -> u32 {
        match self.phase {
            ProbePhase::Steady => self.update_steady(measured),
            ProbePhase::ProbeBegins => self.phase = ProbePhase::Probe(0, None),
            ProbePhase::Probe(windows, before) => {
                let sum = before.map_or(measured, |before| measured.joined(before));
                self.phase = ProbePhase::Probe(windows + 1, Some(sum));
                if windows + 1 >= PROBE_WINDOWS || sum.responses >= PROBE_SAMPLES {
                    self.end_probe(sum);
                }
            }
        }
        if measured.failures > 0 {
            self.limit = (self.limit * FAILURE_FACTOR).max(LIMIT_MIN);
        }
        self.current()
    }

    fn update_steady(&mut self, measured: Measurement) {
        let (mean, rate) = (measured.mean(), measured.rate());
        self.age += 1;
        self.rate = if self.rate == 0.0 { rate } else { self.rate + (rate - self.rate) * RATE_SHARE };
        if self.shortest.is_infinite() {
            self.shortest = mean;
        } else if mean < self.shortest {
            self.shortest += (mean - self.shortest) * SHORTER_SHARE;
        }
        if f64::from(measured.at_work_max) < self.limit * USED_SHARE {
            return;
        }
        // A mean of zero is below the clock's resolution.
        let excess = if self.shortest > 0.0 { mean / self.shortest - 1.0 } else { 0.0 };
        let headroom = (HEADROOM_MAX - excess).clamp(HEADROOM_MIN, HEADROOM_MAX);
        let target = rate * self.shortest * (1.0 + headroom) + HEADROOM_REQUESTS;
        let (step_min, step_max) = if target > self.limit { STEP_UP } else { STEP_DOWN };
        let step = (f64::from(measured.responses) / SAMPLES_FULL * STEP_FULL).clamp(step_min, step_max);
        self.limit = (self.limit + (target - self.limit) * step).clamp(LIMIT_MIN, LIMIT_MAX);
        if self.age >= WINDOWS_BETWEEN_PROBES {
            self.phase = ProbePhase::ProbeBegins;
        }
    }

    fn end_probe(&mut self, probe: Measurement) {
        let probed = self.probe_limit();
        self.phase = ProbePhase::Steady;
        self.age = 0;
        self.shortest = probe.mean();
        // With few requests, any limit gives the rate at which they arrive.
        if f64::from(probe.at_work_max) < probed * USED_SHARE {
            return;
        }
        if probe.rate() < self.rate * KEPT_SHARE {
            self.probe_share = PROBE_SHARE;
            return;
        }
        // The server is as fast with the lower limit, and may be full even with it.
        self.limit = probed.max(LIMIT_MIN);
        self.rate = probe.rate();
        self.probe_share = DEEP_PROBE_SHARE;
        if self.limit > LIMIT_MIN {
            self.phase = ProbePhase::ProbeBegins;
        }
    }

    fn probe_limit(&self) -> f64 {
        (self.limit * self.probe_share).max(1.0)
    }

    fn current(&self) -> u32 {
        let limit = if matches!(self.phase, ProbePhase::Steady) { self.limit } else { self.probe_limit() };
        limit.round() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that works on `parallel` requests at once, each for `service` seconds, and lets others wait. As many
    /// waiting requests as it works on make it slower by the share `slower`.
    struct Model {
        parallel: f64,
        service: f64,
        slower: f64,
    }

    impl Model {
        /// What a proxy measures that always has more requests than the limit. Returns responses per second, too.
        fn measure(&self, limit: u32) -> (Measurement, f64) {
            let at_work = f64::from(limit);
            let slowness = 1.0 + (at_work / self.parallel - 1.0).max(0.0) * self.slower;
            let per_second = at_work.min(self.parallel) / (self.service * slowness);
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
        // The least share of its best. One request more than a server works on is much for one that works on few.
        let rows = [(1.0, 0.95, 0.8), (4.0, 0.95, 0.9), (16.0, 0.95, 0.95), (100.0, 0.95, 0.95), (2000.0, 0.95, 0.95)];
        let rows = rows
            .into_iter()
            .flat_map(|(parallel, least, least_if_slower)| [(parallel, 0.0, least), (parallel, 0.2, least_if_slower)]);
        for (parallel, slower, least) in rows {
            let model = Model { parallel, service: 0.020, slower };
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
            assert!(share > least, "{parallel} at once, slower by {slower}: {share} of its best");
            assert!(f64::from(highest) <= parallel * 1.8 + 6.0, "{parallel} at once: a limit of {highest}");
        }
    }

    #[test]
    fn limit_follows_a_server_that_becomes_slower() {
        let mut adaptive = AdaptiveLimit::default();
        let mut limit = LIMIT_FIRST;
        let mut settle = |parallel| {
            for _ in 0..200 {
                limit = adaptive.update(Model { parallel, service: 0.010, slower: 0.0 }.measure(limit).0);
            }
            limit
        };
        let (fast, slow) = (settle(200.0), settle(20.0));
        assert!((200..400).contains(&fast), "{fast}");
        assert!((20..45).contains(&slow), "{slow}");
        assert!(settle(200.0) > 190);
    }

    #[test]
    fn few_requests_during_a_probe_do_not_lower_the_limit() {
        let model = Model { parallel: 1000.0, service: 0.010, slower: 0.0 };
        let mut adaptive = AdaptiveLimit::default();
        assert!(adaptive.update(model.measure(LIMIT_FIRST).0) < LIMIT_FIRST, "a probe begins");
        let few = model.measure(4).0;
        let last = (0..100).map(|_| adaptive.update(few)).last();
        assert!(last.is_some_and(|limit| limit >= LIMIT_FIRST), "{last:?}");
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
