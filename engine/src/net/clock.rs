//! The worker's own clock: read by the sweeper, a few times a second, for everybody.

use crate::limits::SWEEP_INTERVAL;
use std::cell::Cell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A count of [`SWEEP_INTERVAL`]s since the worker began.
pub(crate) type Tick = u32;

/// Time as the worker last saw it.
pub(crate) struct Clock {
    began: Instant,
    tick: Cell<Tick>,
    unix: Cell<i64>,
    since_start: Cell<Duration>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let clock =
            Self { began: Instant::now(), tick: Cell::new(0), unix: Cell::new(0), since_start: Cell::default() };
        clock.read();
        clock
    }

    /// Looks at the time. Deadlines follow a clock that never jumps; dates follow the
    /// system's.
    pub(crate) fn read(&self) {
        let ticks = self.began.elapsed().as_millis() / SWEEP_INTERVAL.as_millis();
        self.tick.set(Tick::try_from(ticks).unwrap_or(Tick::MAX));
        self.since_start.set(SWEEP_INTERVAL * self.tick.get());
        self.unix.set(match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            Err(_) => 0,
        });
    }

    pub(crate) fn tick(&self) -> Tick {
        self.tick.get()
    }

    /// The first tick at which a wait of `duration` that begins now is surely over.
    pub(crate) fn after(&self, duration: Duration) -> Tick {
        self.tick.get().saturating_add(ticks(duration)).saturating_add(1)
    }

    /// Time since the worker began, in whole ticks.
    pub(crate) fn since_start(&self) -> Duration {
        self.since_start.get()
    }

    pub(crate) fn unix(&self) -> i64 {
        self.unix.get()
    }
}

/// A duration in ticks, rounded up.
pub(crate) fn ticks(duration: Duration) -> Tick {
    Tick::try_from(duration.as_millis().div_ceil(SWEEP_INTERVAL.as_millis())).unwrap_or(Tick::MAX)
}
