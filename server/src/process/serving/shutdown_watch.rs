//! The time of a shutdown, shared with the thread that watches it.

use crate::process::lock::lock;
use std::fmt;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval of heartbeats during a shutdown.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Returns how many responses may last after a hand-over.
pub(super) type CountLasting = Box<dyn Fn() -> usize + Send + Sync>;

/// How long draining may take.
#[derive(Default)]
pub(super) struct ShutdownWatch(Mutex<Option<DrainTime>>);

/// The time of a shutdown that has begun.
struct DrainTime {
    time: Duration,
    ends_at: Instant,
    /// `None` if no response may last.
    count_lasting: Option<CountLasting>,
}

/// The result of draining.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DrainOutcome {
    Drained,
    TimedOut,
}

impl fmt::Debug for ShutdownWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShutdownWatch")
    }
}

impl DrainTime {
    /// Whether the time has passed at `now`. It begins again while responses last, so what follows the last one has the
    /// whole time.
    fn has_passed(&mut self, now: Instant) -> bool {
        if self.count_lasting.as_ref().is_some_and(|count_lasting| count_lasting() > 0) {
            self.ends_at = now + self.time;
        }
        self.ends_at <= now
    }
}

impl ShutdownWatch {
    /// Begins the time. With `count_lasting`, it does not end while responses last. That of a stop begins once.
    pub(super) fn begin(&self, time: Duration, count_lasting: Option<CountLasting>) {
        let begun = &mut *lock(&self.0);
        if begun.as_ref().is_none_or(|begun| begun.count_lasting.is_some()) {
            *begun = Some(DrainTime { time, ends_at: Instant::now() + time, count_lasting });
        }
    }

    /// Waits until draining has ended, at most until its time has passed, and sends heartbeats meanwhile.
    pub(super) fn wait_until_drained(&self, drained: &Receiver<()>, send_heartbeat: impl Fn()) -> DrainOutcome {
        while let Err(RecvTimeoutError::Timeout) = drained.recv_timeout(HEARTBEAT_INTERVAL) {
            if lock(&self.0).as_mut().is_some_and(|time| time.has_passed(Instant::now())) {
                return DrainOutcome::TimedOut;
            }
            send_heartbeat();
        }
        DrainOutcome::Drained
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_time_passes_when_nothing_lasts() {
        let (lasting, start) = (Arc::new(AtomicUsize::new(1)), Instant::now());
        let counted = lasting.clone();
        let count_lasting: CountLasting = Box::new(move || counted.load(Ordering::Relaxed));
        let time = Duration::from_secs(10);
        let mut drain_time = DrainTime { time, ends_at: start + time, count_lasting: Some(count_lasting) };
        let mut has_passed = |seconds| drain_time.has_passed(start + Duration::from_secs(seconds));
        assert!(!has_passed(9) && !has_passed(100));
        lasting.store(0, Ordering::Relaxed);
        assert!(!has_passed(109));
        assert!(has_passed(110));
        let mut drain_time = DrainTime { time, ends_at: start + time, count_lasting: None };
        assert!(!drain_time.has_passed(start) && drain_time.has_passed(start + time));
    }
}
