//! Serving processes that are told to end, and do not: each has its time, and is killed when that
//! is over.
//!
//! How long what runs may take is known here as it was when the supervisor began. A reload may
//! have given it more, so one that says that it is alive is not killed for being late; one that
//! was told to cut what runs is.

use super::child::{Due, Role, Serving};
use super::supervise::Supervisor;
use crate::log::say;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// How much longer than what runs the process may take, for its logs and last answers.
const LATE_TIME: Duration = Duration::from_secs(5);
/// How long one may be silent that is late.
const SILENT_TIME: Duration = Duration::from_secs(5);
/// How long one may take that was told to cut what runs.
const CUT_TIME: Duration = Duration::from_secs(3);

/// Tells a process to finish what runs, while another one takes the orders. Others are told to stop
/// by TERM, and say until their end how they are. To one of an earlier version it is the same.
const RETIRE: Signal = Signal::QUIT;

impl Serving {
    /// When it is killed, if it is still there.
    fn killed_at(&self) -> Option<Instant> {
        match self.due {
            Due::Never | Due::Killed => None,
            Due::Drained(at) => Some(at.max(self.heard + SILENT_TIME)),
            Due::AtOnce(at) => Some(at),
        }
    }
}

impl Supervisor {
    /// Gives those that are about to end the time that what they do may take, and no more than
    /// they were given before.
    pub(super) fn expect_ends(&mut self) {
        let at = Instant::now() + self.drain_time() + LATE_TIME;
        for process in self.processes.iter_mut().filter(|process| process.due == Due::Never) {
            process.due = Due::Drained(at);
        }
    }

    /// Lets one finish what runs, and end: another one serves.
    pub(super) fn retire(&mut self, at: usize) {
        let due = Instant::now() + self.drain_time() + LATE_TIME;
        let process = &mut self.processes[at];
        (process.role, process.due) = (Role::Retired, Due::Drained(due));
        process.signal(RETIRE);
    }

    /// Has all cut what runs, and end.
    pub(super) fn cut_all(&mut self) {
        let at = Instant::now() + CUT_TIME;
        for process in &mut self.processes {
            process.signal(Signal::INT);
            if matches!(process.due, Due::Never | Due::Drained(_)) {
                process.due = Due::AtOnce(at);
            }
        }
    }

    /// When the next one has had its time.
    pub(super) fn next_kill(&self) -> Option<Instant> {
        self.processes.iter().filter_map(Serving::killed_at).min()
    }

    /// Kills those that have had their time.
    pub(super) fn kill_the_late(&mut self, now: Instant) {
        for process in &mut self.processes {
            if process.killed_at().is_some_and(|at| at <= now) {
                let pid = process.pid().as_raw_nonzero();
                say(&format!("selvedge: process {pid} was told to end and has not: it is killed"));
                process.kill();
            }
        }
    }
}
