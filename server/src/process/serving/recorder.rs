//! The flight recorder of a process, whose memory its supervisor can read when the process has ended.

use super::{Parent, ServingProcess};
use crate::process::link::FromChild;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The least time between two dumps of the flight recorder after panics.
const DUMP_INTERVAL: Duration = Duration::from_secs(600);

/// Hands the memory of the flight recorder to the supervisor.
pub(crate) fn hand_over_recorder(serving: &ServingProcess, memory: BorrowedFd<'_>) {
    if let Parent::Supervisor { link, .. } = &serving.parent {
        // If the supervisor has ended, this process ends, too.
        let _ = link.send_with(&FromChild::Recorder, &[memory]);
    }
}

/// Requests a dump of the flight recorder. Without a supervisor, none is written.
fn dump_recorder(serving: &ServingProcess, why: String) {
    if let Parent::Supervisor { link, .. } = &serving.parent {
        let _ = link.send(&FromChild::DumpRecorder { why });
    }
}

/// Decides when a panic causes a dump of the flight recorder.
#[derive(Debug, Default)]
pub(crate) struct PanicWatch {
    panics: u64,
    dumped_at: Option<Instant>,
}

impl PanicWatch {
    /// Requests a dump if the number of panics has grown since the last call, at most one in [`DUMP_INTERVAL`].
    pub(crate) fn observe(&mut self, panics: u64, serving: &ServingProcess) {
        if self.needs_dump(panics, Instant::now()) {
            dump_recorder(serving, format!("a request of process {} panicked", std::process::id()));
        }
    }

    /// Whether the number of panics has grown since the last call. A request that panics again and again causes one dump
    /// in [`DUMP_INTERVAL`].
    fn needs_dump(&mut self, panics: u64, now: Instant) -> bool {
        let has_grown = std::mem::replace(&mut self.panics, panics) < panics;
        let is_due = self.dumped_at.is_none_or(|at| now.saturating_duration_since(at) >= DUMP_INTERVAL);
        if has_grown && is_due {
            self.dumped_at = Some(now);
        }
        has_grown && is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_cause_a_dump_at_most_every_ten_minutes() {
        let (mut watch, begin) = (PanicWatch::default(), Instant::now());
        let mut needs_dump = |panics, seconds| watch.needs_dump(panics, begin + Duration::from_secs(seconds));
        assert!(!needs_dump(0, 0));
        assert!(needs_dump(1, 1) && !needs_dump(1, 2));
        assert!(!needs_dump(5, 600) && !needs_dump(5, 700), "the dump of the first one is enough");
        assert!(needs_dump(6, 701));
    }
}
