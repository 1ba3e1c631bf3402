//! The flight recorder of a process, whose memory its supervisor can read when the process has ended.

use super::{Parent, ServingProcess};
use crate::process::link::FromChild;
use std::os::fd::BorrowedFd;

/// Hands the memory of the flight recorder to the supervisor.
pub(crate) fn hand_over_recorder(serving: &ServingProcess, memory: BorrowedFd<'_>) {
    if let Parent::Supervisor { link, .. } = &serving.parent {
        // If the supervisor has ended, this process ends, too.
        let _ = link.send_with(&FromChild::Recorder, &[memory]);
    }
}

/// Requests a dump of the flight recorder. Without a supervisor, none is written.
pub(crate) fn dump_recorder(serving: &ServingProcess, why: String) {
    if let Parent::Supervisor { link, .. } = &serving.parent {
        let _ = link.send(&FromChild::DumpRecorder { why });
    }
}
