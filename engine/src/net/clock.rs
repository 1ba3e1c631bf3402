//! The worker's clock. The sweeper updates it about 4 times per second, and all connections of the worker read it.

use crate::limits::SWEEP_INTERVAL;
use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Number of [`SWEEP_INTERVAL`]s since the worker started.
pub(crate) type Tick = u32;

/// The time of the worker's last update.
pub(crate) struct Clock {
    started: Instant,
    tick: Cell<Tick>,
    unix_seconds: Cell<i64>,
    elapsed: Cell<Duration>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let clock =
            Self { started: Instant::now(), tick: Cell::new(0), unix_seconds: Cell::new(0), elapsed: Cell::default() };
        clock.update();
        clock
    }

    /// Updates the time. Deadlines use the monotonic clock, dates use the system clock.
    pub(crate) fn update(&self) {
        let ticks = self.started.elapsed().as_millis() / SWEEP_INTERVAL.as_millis();
        self.tick.set(Tick::try_from(ticks).unwrap_or(Tick::MAX));
        self.elapsed.set(SWEEP_INTERVAL * self.tick.get());
        self.unix_seconds.set(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(_) => 0,
        });
    }

    pub(crate) fn tick(&self) -> Tick {
        self.tick.get()
    }

    /// Returns the first tick at which a wait of `duration` that starts now is certainly over.
    pub(crate) fn tick_after(&self, duration: Duration) -> Tick {
        self.tick.get().saturating_add(ticks(duration)).saturating_add(1)
    }

    /// Returns the time since the worker started, in whole ticks.
    pub(crate) fn elapsed(&self) -> Duration {
        self.elapsed.get()
    }

    /// Returns the Unix time in seconds.
    pub(crate) fn unix_seconds(&self) -> i64 {
        self.unix_seconds.get()
    }
}

/// Converts a duration to ticks, rounded up.
pub(crate) fn ticks(duration: Duration) -> Tick {
    Tick::try_from(duration.as_millis().div_ceil(SWEEP_INTERVAL.as_millis())).unwrap_or(Tick::MAX)
}
