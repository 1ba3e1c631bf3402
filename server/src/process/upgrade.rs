//! One serving process in the place of another: a new binary (USR2, `selvedge upgrade`), or the
//! same one with more rights than the old one could be given.
//!
//! Both have the same sockets, so nobody is refused. The old one serves until the new one says
//! that it is ready, and then lets what runs finish. A new one that fails, or takes too long,
//! leaves everything as it was.

use super::binary::Binary;
use super::child::{Role, Serving};
use super::link::Told;
use super::supervise::Supervisor;
use crate::log::say;
use std::time::{Duration, Instant};

/// How long a new serving process may take to become ready.
const READY_TIME: Duration = Duration::from_secs(60);

impl Supervisor {
    /// Puts whatever is now at the path of the program in its place.
    pub(super) fn upgrade(&mut self, asked_by: Option<u64>) {
        match Binary::open(self.program()) {
            Ok(binary) => self.start_candidate(binary, asked_by),
            Err(error) => self.refuse(asked_by, &format!("the new process cannot be started: {error}")),
        }
    }

    /// Puts the same binary in the place of a process that cannot do what is asked of it.
    pub(super) fn renew(&mut self, asked_by: u64) {
        self.start_candidate(self.binary.clone(), Some(asked_by));
    }

    fn start_candidate(&mut self, binary: Binary, asked_by: Option<u64>) {
        if self.is_stopping() {
            return self.refuse(asked_by, "the server is stopping");
        }
        if self.processes.iter().any(|process| matches!(process.role, Role::Candidate { .. })) {
            return self.refuse(asked_by, "another upgrade is under way");
        }
        let role = Role::Candidate { until: Instant::now() + READY_TIME, asked_by };
        if let Err(error) = self.start(role, binary) {
            self.refuse(asked_by, &format!("the new process cannot be started: {error}"));
        }
    }

    /// A new process is ready: the others let what runs finish.
    pub(super) fn promote(&mut self, at: usize, asked_by: Option<u64>) {
        self.binary = self.processes[at].binary.clone();
        let text = Self::successor(&self.processes[at]);
        say(&format!("selvedge: {text}"));
        // Said before the one who asked is told to end.
        self.answer(asked_by, &Told::Done { text });
        for other in 0..self.processes.len() {
            if other == at {
                self.processes[at].role = Role::Serving;
            } else if self.processes[other].is_current() {
                self.retire(other);
            }
        }
    }

    /// What is to be said of a process that has become ready.
    fn successor(process: &Serving) -> String {
        let pid = process.pid().as_raw_nonzero();
        let version = process.version.as_deref().unwrap_or("unknown");
        format!("process {pid} serves in its place: version {version} of {}", process.binary.path.display())
    }

    /// Ends what was not ready in time.
    pub(super) fn give_up_late_candidates(&mut self, now: Instant) {
        let mut late = Vec::new();
        for process in &mut self.processes {
            if let Role::Candidate { until, asked_by } = process.role
                && until <= now
            {
                process.role = Role::Retired;
                process.kill();
                late.push(asked_by);
            }
        }
        for asked_by in late {
            self.refuse(asked_by, &format!("the new process was not ready within {} s", READY_TIME.as_secs()));
        }
    }

    /// Tells whoever asked, and standard error, that things stay as they are.
    pub(super) fn refuse(&self, asked_by: Option<u64>, why: &str) {
        say(&format!("selvedge: no other process serves: {why}"));
        self.answer(asked_by, &Told::Refused { text: why.to_owned() });
    }

    fn answer(&self, asked_by: Option<u64>, told: &Told) {
        let asker = self.processes.iter().find(|process| Some(process.number) == asked_by);
        asker.inspect(|process| process.tell(told));
    }
}
