//! How the supervisor stops. A process that starts becomes ready first, because connections wait for it in the accept
//! queues, and it cannot stop gracefully before.

use super::child::{ChildProcess, Role};
use super::kill_deadline;
use super::supervise::{Phase, Supervisor};
use crate::log::print_line;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Time for a process that starts to become ready before it is stopped. Connections that wait are reset after it.
const START_TIMEOUT: Duration = Duration::from_secs(5);

impl Phase {
    /// Returns the time until which a stop waits for a process that starts.
    pub(super) fn stop_at(self) -> Option<Instant> {
        match self {
            Self::StoppingWhenReady(until) => Some(until),
            Self::Running | Self::Stopping(_) => None,
        }
    }
}

impl Supervisor {
    /// Stops gracefully: at once, or when the process that starts is ready.
    pub(super) fn stop_when_ready(&mut self) {
        let starting = self.processes.iter().find(|process| process.role == Role::Starting);
        let Some(pid) = starting.map(ChildProcess::pid) else { return self.stop() };
        let (pid, limit) = (pid.as_raw_nonzero(), START_TIMEOUT.as_secs());
        self.phase = Phase::StoppingWhenReady(Instant::now() + START_TIMEOUT);
        print_line(&format!("selvedge: stops when process {pid} has started, after {limit} s at the latest"));
    }

    /// Stops gracefully.
    pub(super) fn stop(&mut self) {
        self.begin_shutdown(0);
        // Replaced processes got theirs; a second one would abort their requests.
        let current = self.processes.iter().filter(|process| process.is_current());
        current.for_each(|process| process.signal(Signal::TERM));
    }

    /// Stops immediately.
    pub(super) fn stop_now(&mut self) {
        self.begin_shutdown(0);
        kill_deadline::stop_all_now(&mut self.processes);
    }

    /// Releases the sockets, and ends when the last process has ended.
    pub(super) fn begin_shutdown(&mut self, code: u8) {
        if !matches!(self.phase, Phase::Stopping(_)) {
            self.phase = Phase::Stopping(code);
            self.notifier.stopping();
            self.restart_at = None;
            self.sockets.close_all();
            for process in &mut self.processes {
                match process.role {
                    Role::Candidate { .. } => process.kill(),
                    Role::Retired => {}
                    _ if code != 0 => process.signal(Signal::TERM),
                    _ => {}
                }
            }
            kill_deadline::set_all(&mut self.processes, self.config.shutdown_timeout);
            let lasting = self.processes.iter_mut().filter(|process| process.is_handing_over());
            lasting.for_each(|process| kill_deadline::stop_replaced(process, self.config.shutdown_timeout));
        }
    }
}
