//! Counts the requests at work at a server, and limits them.
//!
//! Counts of requests at work are sequentially consistent with those of [`super::wait_queue`]: a request that finds no place
//! is seen by the one that leaves next.

use super::adaptive::{AdaptiveLimit, LIMIT_FIRST, Measurement, SAMPLES_MIN, WINDOW};
use super::rules::{AdaptiveMode, CapacityRules};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The places of one server. Workers share them.
#[derive(Debug)]
pub(super) struct Places {
    at_work: AtomicU32,
    requests_max: u32,
    adaptive_mode: AdaptiveMode,
    adaptive_limit: AtomicU32,
    meter: Meter,
    /// Requests beyond the adaptive limit that were forwarded, because the limit is only observed.
    beyond_observed: Arc<AtomicU64>,
}

/// How a request got its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Within,
    /// It is beyond an adaptive limit that is only observed.
    BeyondObserved,
}

impl Places {
    pub(super) fn new(rules: &CapacityRules) -> Self {
        Self {
            at_work: AtomicU32::new(0),
            requests_max: rules.requests_max.map_or(u32::MAX, std::num::NonZeroU32::get),
            adaptive_mode: rules.adaptive,
            adaptive_limit: AtomicU32::new(LIMIT_FIRST),
            meter: Meter::default(),
            beyond_observed: Arc::default(),
        }
    }

    /// Returns the number of requests at work.
    pub(super) fn at_work(&self) -> u32 {
        self.at_work.load(Ordering::SeqCst)
    }

    /// Continues with the count of an earlier limit.
    pub(super) fn count_on(&mut self, earlier: &Self) {
        self.beyond_observed = earlier.beyond_observed.clone();
    }

    /// Returns the number of requests that the adaptive limit would have held back.
    pub(super) fn beyond_observed(&self) -> u64 {
        self.beyond_observed.load(Ordering::Relaxed)
    }

    /// Returns the adaptive limit. It changes only if the mode is not [`AdaptiveMode::Off`].
    pub(super) fn adaptive_limit(&self) -> u32 {
        self.adaptive_limit.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn set_adaptive_limit(&self, limit: u32) {
        self.adaptive_limit.store(limit, Ordering::Relaxed);
    }

    fn limit(&self) -> u32 {
        match self.adaptive_mode {
            AdaptiveMode::On => self.requests_max.min(self.adaptive_limit.load(Ordering::Relaxed)),
            AdaptiveMode::Off | AdaptiveMode::Observe => self.requests_max,
        }
    }

    /// Whether all places are taken.
    pub(super) fn is_full(&self) -> bool {
        self.at_work() >= self.limit()
    }

    /// Takes a place. `None` if the server is full.
    pub(super) fn enter(&self) -> Option<Entered> {
        let before = self.at_work.fetch_add(1, Ordering::SeqCst);
        if before >= self.limit() {
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        if self.adaptive_mode == AdaptiveMode::Off {
            return Some(Entered::Within);
        }
        self.meter.at_work_max.fetch_max(before + 1, Ordering::Relaxed);
        if self.adaptive_mode == AdaptiveMode::Observe && before >= self.adaptive_limit.load(Ordering::Relaxed) {
            self.beyond_observed.fetch_add(1, Ordering::Relaxed);
            return Some(Entered::BeyondObserved);
        }
        Some(Entered::Within)
    }

    /// Returns how a request would enter. `None` if the server is full.
    pub(super) fn would_enter(&self) -> Option<Entered> {
        let at_work = self.at_work();
        let is_beyond = self.adaptive_mode == AdaptiveMode::Observe && at_work >= self.adaptive_limit();
        (at_work < self.limit()).then_some(if is_beyond { Entered::BeyondObserved } else { Entered::Within })
    }

    /// Returns a place.
    pub(super) fn leave(&self) {
        self.at_work.fetch_sub(1, Ordering::SeqCst);
    }

    /// Records how long the server took to respond; `None` if it did not.
    pub(super) fn responded(&self, took: Option<Duration>, now: Duration) {
        if self.adaptive_mode != AdaptiveMode::Off
            && let Some(limit) = self.meter.record(took, now)
        {
            self.adaptive_limit.store(limit, Ordering::Relaxed);
        }
    }
}

/// Measures how fast a server is.
#[derive(Debug, Default)]
struct Meter {
    /// When the window began, in microseconds.
    began: AtomicU64,
    responses: AtomicU32,
    total_micros: AtomicU64,
    failures: AtomicU32,
    at_work_max: AtomicU32,
    /// Locked once for each window, by the worker that ends it.
    limit: Mutex<AdaptiveLimit>,
}

impl Meter {
    /// Records a response, and returns a new limit if it ends the window.
    fn record(&self, took: Option<Duration>, now: Duration) -> Option<u32> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        match took {
            Some(took) => {
                self.total_micros.fetch_add(micros(took), Ordering::Relaxed);
                self.responses.fetch_add(1, Ordering::Relaxed);
            }
            None => _ = self.failures.fetch_add(1, Ordering::Relaxed),
        }
        let began = self.began.load(Ordering::Relaxed);
        let elapsed = Duration::from_micros(micros(now).saturating_sub(began));
        if elapsed < WINDOW || self.responses.load(Ordering::Relaxed) < SAMPLES_MIN {
            return None;
        }
        // Only one worker ends a window, and none waits for it.
        let mut limit = self.limit.try_lock().ok()?;
        if self.began.compare_exchange(began, micros(now), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return None;
        }
        Some(limit.update(Measurement {
            elapsed,
            responses: self.responses.swap(0, Ordering::Relaxed),
            total: Duration::from_micros(self.total_micros.swap(0, Ordering::Relaxed)),
            at_work_max: self.at_work_max.swap(0, Ordering::Relaxed),
            failures: self.failures.swap(0, Ordering::Relaxed),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn rules(requests_max: u32, queue_max: u32, adaptive: AdaptiveMode) -> CapacityRules {
        let requests_max = NonZeroU32::new(requests_max);
        CapacityRules { requests_max, queue_max, queue_timeout: Duration::from_secs(5), adaptive }
    }

    #[test]
    fn a_full_server_takes_no_request() {
        let places = Places::new(&rules(2, 0, AdaptiveMode::Off));
        assert_eq!(
            [places.enter(), places.enter(), places.enter()],
            [Some(Entered::Within), Some(Entered::Within), None]
        );
        assert!(places.is_full() && places.at_work() == 2);
        places.leave();
        assert!(!places.is_full() && places.enter().is_some());
        let unlimited = Places::new(&rules(0, 0, AdaptiveMode::Off));
        assert!((0..10_000).all(|_| unlimited.enter().is_some()));
    }

    #[test]
    fn adaptive_limit_holds_back_or_counts() {
        for (mode, entered, beyond) in [(AdaptiveMode::On, LIMIT_FIRST, 0), (AdaptiveMode::Observe, 100, 68)] {
            let places = Places::new(&rules(0, 0, mode));
            assert_eq!((0..100).filter(|_| places.enter().is_some()).count() as u32, entered);
            assert_eq!(places.beyond_observed(), beyond);
        }
    }

    #[test]
    fn measurements_move_the_adaptive_limit() {
        let places = Places::new(&rules(0, 0, AdaptiveMode::On));
        while places.enter().is_some() {}
        // 32 requests at once that take 10 ms each: 3,200 per second, so the server is not full.
        for millis in 1..=1000 {
            (0..3).for_each(|_| places.responded(Some(Duration::from_millis(10)), Duration::from_millis(millis)));
            if millis % 100 == 0 {
                while places.enter().is_some() {}
            }
        }
        assert!(places.adaptive_limit() > LIMIT_FIRST, "{places:?}");
    }
}
