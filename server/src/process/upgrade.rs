//! Replaces the serving process: by a new binary (USR2, `selvedge upgrade`), or by the current one with a wider
//! sandbox.
//!
//! Both processes have the listening sockets, so no client is refused. The old one serves until the new one is ready,
//! and then finishes its requests, and serves on what outlives a replacement. If the new one fails or takes too long, nothing
//! changes.

use super::child::{CandidateCause, ChildProcess, Role};
use super::executable::Executable;
use super::kill_deadline;
use super::link::ToChild;
use super::supervise::Supervisor;
use crate::log::print_line;
use std::time::{Duration, Instant};

/// Time for a new serving process to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Most replaced processes that serve on. Each holds the memory of its configuration and its caches.
const REPLACED_MAX: usize = 4;

impl Supervisor {
    /// Starts the binary that is at the program's path now.
    pub(super) fn upgrade(&mut self, requested_by: Option<u64>) {
        match Executable::open(&self.config.program) {
            Ok(binary) => self.start_candidate(binary, requested_by, CandidateCause::Upgrade),
            Err(error) => self.refuse(requested_by, &format!("the new process cannot be started: {error}")),
        }
    }

    /// Starts the current binary again, to replace a process whose sandbox is too narrow.
    pub(super) fn replace(&mut self, requested_by: u64) {
        self.start_candidate(self.binary.clone(), Some(requested_by), CandidateCause::Reload);
    }

    fn start_candidate(&mut self, binary: Executable, requested_by: Option<u64>, cause: CandidateCause) {
        if self.is_stopping() {
            return self.refuse(requested_by, "the server is stopping");
        }
        if self.processes.iter().any(|process| matches!(process.role, Role::Candidate { .. })) {
            return self.refuse(requested_by, "another upgrade is in progress");
        }
        let role = Role::Candidate { until: Instant::now() + READY_TIMEOUT, requested_by, cause };
        if let Err(error) = self.start(role, binary) {
            self.refuse(requested_by, &format!("the new process cannot be started: {error}"));
        }
    }

    /// Handles a new process that is ready: the others hand over to it.
    pub(super) fn promote(&mut self, at: usize, requested_by: Option<u64>) {
        self.binary = self.processes[at].binary.clone();
        self.replacements += 1;
        let text = describe_replacement(&self.processes[at]);
        print_line(&format!("selvedge: {text}"));
        // Sent before the requesting process gets the signal to end.
        self.reply(requested_by, &ToChild::Done { text });
        for other in 0..self.processes.len() {
            if other == at {
                self.processes[at].role = Role::Serving;
            } else if self.processes[other].is_current() {
                kill_deadline::retire(&mut self.processes[other], self.config.shutdown_timeout);
            }
        }
        self.limit_replaced();
    }

    /// Stops the oldest replaced processes that serve on, if they are too many.
    fn limit_replaced(&mut self) {
        let count = self.processes.iter().filter(|process| process.is_handing_over()).count();
        // They are in the order of their start.
        let replaced = self.processes.iter_mut().filter(|process| process.is_handing_over());
        for process in replaced.take(count.saturating_sub(REPLACED_MAX)) {
            let pid = process.pid().as_raw_nonzero();
            print_line(&format!(
                "selvedge: the replaced process {pid} is stopped with its connections, because {REPLACED_MAX} later ones remain"
            ));
            kill_deadline::stop_replaced(process, self.config.shutdown_timeout);
        }
    }

    /// Kills candidates that were not ready in time.
    pub(super) fn abandon_late_candidates(&mut self, now: Instant) {
        let mut late = Vec::new();
        for process in &mut self.processes {
            if let Role::Candidate { until, requested_by, .. } = process.role
                && until <= now
            {
                process.role = Role::Retired;
                process.kill();
                late.push(requested_by);
            }
        }
        for requested_by in late {
            self.refuse(requested_by, &format!("the new process was not ready within {} s", READY_TIMEOUT.as_secs()));
        }
    }

    /// Reports a failed replacement to the caller and on standard error.
    pub(super) fn refuse(&self, requested_by: Option<u64>, why: &str) {
        print_line(&format!("selvedge: the serving process was not replaced: {why}"));
        self.reply(requested_by, &ToChild::Refused { text: why.to_owned() });
    }

    fn reply(&self, requested_by: Option<u64>, message: &ToChild) {
        let requester = self.processes.iter().find(|process| Some(process.number) == requested_by);
        requester.inspect(|process| process.send(message));
    }
}

/// Describes a process that has become ready.
fn describe_replacement(process: &ChildProcess) -> String {
    let pid = process.pid().as_raw_nonzero();
    let version = process.version.as_deref().unwrap_or("unknown");
    format!("process {pid} has taken over: version {version} of {}", process.binary.path.display())
}
