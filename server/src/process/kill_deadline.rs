//! Kill deadlines: a serving process that does not end in time after a stop is killed.
//!
//! The supervisor knows the shutdown timeout with which it started. A reload may have raised it, so a process that
//! sends heartbeats is not killed for being late, unless it has to stop immediately. A replaced process sends them as long as
//! it has responses that outlive the replacement, or time for others.

use super::child::{ChildProcess, KillDeadline, Role};
use crate::log::print_line;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Time beyond the shutdown timeout for logs and last replies.
const DRAIN_GRACE: Duration = Duration::from_secs(5);
/// A draining process is killed after this time without a heartbeat.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which a process has to stop immediately.
const ABORT_GRACE: Duration = Duration::from_secs(3);

/// The signal for a replaced process, which finishes its requests and serves on what outlives a replacement. A stopped
/// process gets TERM, and serves `status` until its end.
const RETIRE: Signal = Signal::QUIT;

impl ChildProcess {
    /// Returns the time at which the process is killed.
    fn kill_time(&self) -> Option<Instant> {
        match self.kill_deadline {
            KillDeadline::Never | KillDeadline::Killed => None,
            KillDeadline::AfterHandOver(at) | KillDeadline::AfterDrain(at) => {
                Some(at.max(self.last_heartbeat + HEARTBEAT_TIMEOUT))
            }
            KillDeadline::Immediate(at) => Some(at),
        }
    }
}

/// Sets the kill deadlines of processes that have none yet.
pub(super) fn set_all(processes: &mut [ChildProcess], shutdown_timeout: Duration) {
    let at = Instant::now() + shutdown_timeout + DRAIN_GRACE;
    for process in processes.iter_mut().filter(|process| process.kill_deadline == KillDeadline::Never) {
        process.kill_deadline = KillDeadline::AfterDrain(at);
    }
}

/// Tells a process that another one has replaced it.
pub(super) fn retire(process: &mut ChildProcess, shutdown_timeout: Duration) {
    let deadline = Instant::now() + shutdown_timeout + DRAIN_GRACE;
    (process.role, process.kill_deadline) = (Role::Retired, KillDeadline::AfterHandOver(deadline));
    process.signal(RETIRE);
}

/// Stops a replaced process gracefully, with what outlived its replacement.
pub(super) fn stop_replaced(process: &mut ChildProcess, shutdown_timeout: Duration) {
    process.kill_deadline = KillDeadline::AfterDrain(Instant::now() + shutdown_timeout + DRAIN_GRACE);
    process.signal(Signal::TERM);
}

/// Stops all processes immediately.
pub(super) fn stop_all_now(processes: &mut [ChildProcess]) {
    let at = Instant::now() + ABORT_GRACE;
    for process in processes {
        process.signal(Signal::INT);
        match process.kill_deadline {
            KillDeadline::Immediate(_) | KillDeadline::Killed => {}
            KillDeadline::Never | KillDeadline::AfterHandOver(_) | KillDeadline::AfterDrain(_) => {
                process.kill_deadline = KillDeadline::Immediate(at);
            }
        }
    }
}

/// Returns the next kill deadline.
pub(super) fn next(processes: &[ChildProcess]) -> Option<Instant> {
    processes.iter().filter_map(ChildProcess::kill_time).min()
}

/// Kills the processes whose deadline has passed.
pub(super) fn kill_overdue(processes: &mut [ChildProcess], now: Instant) {
    for process in processes {
        if process.kill_time().is_some_and(|at| at <= now) {
            let pid = process.pid().as_raw_nonzero();
            print_line(&format!("selvedge: process {pid} did not end in time and is killed"));
            process.kill();
        }
    }
}
