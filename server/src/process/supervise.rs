//! The supervisor: a small process that owns the listening sockets and keeps a serving process
//! alive. It reads nothing that a client sends.
//!
//! While there is no serving process, clients wait in the queues of the sockets. The first one
//! has to become ready, or the program ends with its code; a later one that ends unasked is
//! started again.

use super::binary::Binary;
use super::child::{Bound, Event, Outfit, Role, Serving, describe};
use super::link::{Asked, Beginning, Told};
use super::notify::Notifier;
use super::place::Place;
use super::restarts::Restarts;
use super::sockets::Sockets;
use rustix::process::Signal;
use selvedge::Listener;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// What the configuration says that the supervisor began with.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) restarts: Restarts,
    /// How long what runs may take when a process is told to end.
    pub(super) drain_time: Duration,
    /// Where the program's file was when it began, which is where a new one is looked for.
    pub(super) program: PathBuf,
}

/// Whether the program is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Running,
    Stopping(u8),
}

/// The state of the supervisor.
pub(super) struct Supervisor {
    pub(super) terms: Terms,
    sockets: Sockets,
    control: Listener,
    pub(super) notifier: Notifier,
    pub(super) processes: Vec<Serving>,
    /// What the next serving process runs.
    pub(super) binary: Binary,
    /// When there were restarts, as far as they still count.
    pub(super) recent: VecDeque<Instant>,
    pub(super) restart_at: Option<Instant>,
    pub(super) started: u64,
    /// For the error log of the next serving process.
    pub(super) notes: Vec<String>,
    course: Course,
    first: First,
    events: Sender<Event>,
}

/// Whether there ever was a serving process that was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Awaited,
    WasReady,
}

/// Supervises until the end; what the program ends with.
pub(super) fn supervise(
    sockets: Sockets,
    control: Listener,
    notifier: Notifier,
    terms: Terms,
) -> Result<ExitCode, String> {
    let (events, happened) = channel();
    listen_to_signals(events.clone()).map_err(|error| format!("cannot watch signals: {error}"))?;
    let own = Binary::own(terms.program.clone());
    let own = own.map_err(|error| format!("the program's file cannot be opened: {error}"))?;
    let mut supervisor = Supervisor {
        binary: own.clone(),
        terms,
        sockets,
        control,
        notifier,
        processes: Vec::new(),
        recent: VecDeque::new(),
        restart_at: None,
        started: 0,
        notes: Vec::new(),
        course: Course::Running,
        first: First::Awaited,
        events,
    };
    supervisor.start(Role::Starting, own).map_err(|error| format!("cannot start: {error}"))?;
    let code = supervisor.run(&happened);
    supervisor.sockets.end();
    Ok(ExitCode::from(code))
}

fn listen_to_signals(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

impl Supervisor {
    fn run(&mut self, happened: &Receiver<Event>) -> u8 {
        loop {
            if let (Course::Stopping(code), []) = (self.course, self.processes.as_slice()) {
                return code;
            }
            match happened.recv_timeout(self.time_to_next()) {
                Ok(Event::Signal(signal)) => self.obey(signal),
                Ok(Event::Said(number, asked)) => self.hear(number, asked),
                Ok(Event::Ended(number)) => self.bury(number),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the supervisor keeps a sender"),
            }
            self.look_at_the_clock();
        }
    }

    fn time_to_next(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(3600);
        let candidates = self.processes.iter().filter_map(|process| match process.role {
            Role::Candidate { until, .. } => Some(until),
            _ => None,
        });
        let next = candidates.chain(self.restart_at).chain(self.next_kill()).min();
        let until = next.map_or(LONGEST, |next| next.saturating_duration_since(Instant::now()));
        self.notifier.watchdog().map_or(until, |watchdog| until.min(watchdog / 4))
    }

    pub(super) fn drain_time(&self) -> Duration {
        self.terms.drain_time
    }

    pub(super) fn program(&self) -> &Path {
        &self.terms.program
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.course != Course::Running
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            let binary = self.binary.clone();
            if let Err(error) = self.start(Role::Starting, binary) {
                self.restart_later(&format!("cannot be started: {error}"));
            }
        }
        self.give_up_late_candidates(now);
        self.kill_the_late(now);
        if let Some(watchdog) = self.notifier.watchdog() {
            // The silence of the one that serves becomes the supervisor's own.
            let is_heard = |process: &Serving| process.role != Role::Serving || now - process.heard < watchdog / 2;
            if self.processes.iter().all(is_heard) {
                self.notifier.alive();
            }
        }
    }

    /// Starts a serving process.
    pub(super) fn start(&mut self, role: Role, binary: Binary) -> std::io::Result<()> {
        self.keep_what_is_bound();
        let alive_every = self.notifier.watchdog().map(|watchdog| watchdog / 8);
        let notes = self.notes.clone();
        let beginning = Beginning { restarts: self.started, notes, alive_every };
        let outfit = Outfit { sockets: &self.sockets, control: &self.control, beginning };
        let process = Serving::start(self.started, role, binary, outfit, &self.events)?;
        self.started += 1;
        self.processes.push(process);
        Ok(())
    }

    /// What a serving process says.
    fn hear(&mut self, number: u64, asked: Asked) {
        let Some(at) = self.processes.iter().position(|process| process.number == number) else { return };
        self.processes[at].heard = Instant::now();
        let is_current = self.processes[at].is_current();
        match asked {
            Asked::Alive => {}
            Asked::Runs { version } => self.processes[at].version = Some(version),
            Asked::Ready => self.is_ready(at),
            Asked::Failed { text } => self.processes[at].last_words = Some(text),
            Asked::Reloading if is_current => {
                // One that is not ready may have read the configuration before.
                self.owe(Signal::HUP);
                self.notifier.reloading();
            }
            Asked::Stopping if is_current => self.begin_to_stop(0),
            Asked::Release { place } if is_current => drop(self.sockets.close(&place)),
            Asked::Reloading | Asked::Stopping | Asked::Release { .. } => {}
            Asked::Bind { place } => self.bind(at, place),
            Asked::Upgrade => self.upgrade(Some(number)),
            Asked::Renew => self.renew(number),
        }
    }

    /// Listens at a place for a process. What one that is never ready has changed is changed back.
    fn bind(&mut self, at: usize, place: Place) {
        let before = self.sockets.known(&place).cloned();
        let process = &self.processes[at];
        let told = match self.sockets.bind(&place) {
            Ok(listeners) => {
                listeners.iter().for_each(|listener| process.give(&place, listener));
                Told::Done { text: String::new() }
            }
            Err(text) => Told::Refused { text },
        };
        process.tell(&told);
        if matches!(told, Told::Refused { .. }) {
            return;
        }
        match process.role {
            Role::Starting | Role::Candidate { .. } if before.as_ref() != Some(&place) => {
                self.processes[at].bound.push(Bound { place, before });
            }
            Role::Starting | Role::Candidate { .. } => {}
            // From now on it is wanted so by one that serves.
            Role::Serving | Role::Retired => {
                let others = self.processes.iter_mut();
                others.for_each(|other| other.bound.retain(|bound| !bound.place.is_where(&place)));
            }
        }
    }

    /// Whatever was bound stays: a process has all of it by now, and asks nobody before it listens there.
    fn keep_what_is_bound(&mut self) {
        self.processes.iter_mut().for_each(|process| process.bound.clear());
    }

    /// Has the sockets be as they were before a process that was never ready.
    fn unbind(&mut self, bound: Vec<Bound>) {
        // Then nobody listens any more.
        if self.is_stopping() {
            return;
        }
        for Bound { place, before } in bound.into_iter().rev() {
            match before {
                None => drop(self.sockets.close(&place)),
                // A file that is gone has no mode to give back.
                Some(before) => drop(self.sockets.bind(&before)),
            }
        }
    }

    fn is_ready(&mut self, at: usize) {
        self.first = First::WasReady;
        self.notes.clear();
        match self.processes[at].role {
            Role::Starting => self.processes[at].role = Role::Serving,
            Role::Candidate { asked_by, .. } => self.promote(at, asked_by),
            Role::Serving => {}
            Role::Retired => return,
        }
        self.keep_what_is_bound();
        self.restart_at = None;
        for signal in std::mem::take(&mut self.processes[at].owed) {
            self.processes[at].signal(signal);
        }
        self.notifier.ready();
        self.notifier.status(&format!("process {} serves", self.processes[at].pid().as_raw_nonzero()));
    }

    /// A serving process has ended.
    fn bury(&mut self, number: u64) {
        let Some(at) = self.processes.iter().position(|process| process.number == number) else { return };
        let mut process = self.processes.remove(at);
        let last_words = process.last_words.take();
        self.unbind(std::mem::take(&mut process.bound));
        let (role, pid) = (process.role, process.pid().as_raw_nonzero());
        let status = process.collect();
        let how = describe(&status);
        match role {
            // Also when all are to stop: somebody may wait for an answer.
            Role::Candidate { asked_by, .. } => {
                let why = last_words.unwrap_or_else(|| format!("the new process {how} before it was ready"));
                self.refuse(asked_by, &why);
            }
            _ if self.is_stopping() => {}
            Role::Retired => {}
            Role::Starting if self.first == First::Awaited => {
                // It has said why, and would say the same again.
                let code = status.ok().and_then(|status| status.code());
                self.begin_to_stop(
                    code.and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0).unwrap_or(1),
                );
            }
            Role::Starting | Role::Serving => {
                let why = last_words.map_or_else(String::new, |words| format!(": {words}"));
                self.restart_later(&format!("{pid} {how}{why}"));
            }
        }
    }

    /// Lets the sockets go and ends when the last process has ended.
    pub(super) fn begin_to_stop(&mut self, code: u8) {
        if !self.is_stopping() {
            self.course = Course::Stopping(code);
            self.notifier.stopping();
            self.restart_at = None;
            self.sockets.end();
            for process in &mut self.processes {
                match process.role {
                    Role::Candidate { .. } => process.kill(),
                    _ if code != 0 => process.signal(Signal::TERM),
                    _ => {}
                }
            }
            self.expect_ends();
        }
    }

    fn obey(&mut self, signal: i32) {
        let again = self.is_stopping();
        let is_meant = |process: &&Serving| process.is_current();
        match signal {
            SIGINT => {
                self.begin_to_stop(0);
                self.cut_all();
            }
            SIGTERM | SIGQUIT if again => self.cut_all(),
            SIGTERM | SIGQUIT => {
                self.begin_to_stop(0);
                // Those that are retired were told already, and a second time would cut them.
                self.processes.iter().filter(is_meant).for_each(|process| process.signal(Signal::TERM));
            }
            _ if again => {}
            SIGUSR2 => self.upgrade(None),
            SIGHUP => self.have_reloaded(),
            _ => self.have_logs_reopened(),
        }
    }

    fn have_reloaded(&mut self) {
        // One that is not ready may have read the configuration before.
        self.owe(Signal::HUP);
        let serves = |process: &&Serving| process.role == Role::Serving;
        self.processes.iter().filter(serves).for_each(|process| process.signal(Signal::HUP));
    }

    fn have_logs_reopened(&mut self) {
        // One that is not ready may have opened them before.
        self.owe(Signal::USR1);
        let has_opened = |process: &&Serving| matches!(process.role, Role::Serving | Role::Retired);
        self.processes.iter().filter(has_opened).for_each(|process| process.signal(Signal::USR1));
    }

    /// Has those that cannot hear a signal yet be told when they are ready.
    fn owe(&mut self, signal: Signal) {
        let cannot_hear = |process: &&mut Serving| matches!(process.role, Role::Starting | Role::Candidate { .. });
        for process in self.processes.iter_mut().filter(cannot_hear) {
            if !process.owed.contains(&signal) {
                process.owed.push(signal);
            }
        }
    }
}
