//! The supervisor: a small process that owns the listening sockets and keeps a serving process alive. It reads
//! nothing from clients.
//!
//! While no serving process runs, clients wait in the accept queues. If the first process does not become ready, the
//! program exits with its code; a later one that ends unexpectedly is restarted.

use super::child::{BoundListener, CandidateCause, ChildProcess, ChildSetup, Role, SupervisorEvent, describe_exit};
use super::cookie_secret::CookieSecret;
use super::executable::Executable;
use super::kill_deadline;
use super::link::{FromChild, StartInfo, ToChild};
use super::listen_address::ListenAddress;
use super::notify::Notifier;
use super::recorder_dump::{self, RecorderDumps};
use super::restarts::Restarts;
use super::sockets::Sockets;
use crate::log::{Totals, print_line};
use rustix::process::Signal;
use selvedge::Listener;
use selvedge::tls::TicketKeys;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Exit code when the serving process ended too often.
const GAVE_UP: u8 = 3;
/// Most ended processes that the next one reports.
const NOTES_MAX: usize = 20;

/// The supervisor's part of the configuration at its start.
#[derive(Clone, Debug)]
pub(super) struct SupervisorConfig {
    pub(super) restarts: Restarts,
    /// The shutdown timeout of serving processes.
    pub(super) shutdown_timeout: Duration,
    /// Path of the executable at the start, where an upgrade looks for a new one.
    pub(super) program: PathBuf,
    /// Where dumps of flight recorders are written.
    pub(super) dump_folder: PathBuf,
}

/// Whether the program is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Running,
    /// A process that starts has until this time to become ready. Then the program stops.
    StoppingWhenReady(Instant),
    /// Stops with this exit code.
    Stopping(u8),
}

/// The state of the supervisor.
pub(super) struct Supervisor {
    pub(super) config: SupervisorConfig,
    pub(super) sockets: Sockets,
    control: Listener,
    pub(super) notifier: Notifier,
    pub(super) processes: Vec<ChildProcess>,
    /// The executable of the next serving process.
    pub(super) binary: Executable,
    /// Times of recent restarts.
    pub(super) recent: VecDeque<Instant>,
    pub(super) restart_at: Option<Instant>,
    pub(super) started: u64,
    /// Serving processes that ended unexpectedly.
    crashes: u64,
    /// Serving processes that another one has replaced.
    pub(super) replacements: u64,
    /// The number of the last configuration that was in force.
    configuration: u64,
    /// What all serving processes have counted.
    totals: Totals,
    /// For the error log of the next serving process.
    pub(super) notes: Vec<String>,
    dumps: RecorderDumps,
    cookie_secret: CookieSecret,
    pub(super) phase: Phase,
    readiness: Readiness,
    events: Sender<SupervisorEvent>,
}

/// Whether any serving process was ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    NotYetReady,
    WasReady,
}

/// Runs the supervisor until the end, and returns the exit code.
pub(super) fn supervise(
    sockets: Sockets,
    control: Listener,
    notifier: Notifier,
    config: SupervisorConfig,
) -> Result<ExitCode, String> {
    let (events, received) = channel();
    forward_signals(events.clone()).map_err(|error| format!("cannot watch signals: {error}"))?;
    let own = Executable::running(config.program.clone());
    let own = own.map_err(|error| format!("the program's file cannot be opened: {error}"))?;
    let mut supervisor = Supervisor {
        binary: own.clone(),
        dumps: RecorderDumps::new(config.dump_folder.clone()),
        config,
        sockets,
        control,
        notifier,
        processes: Vec::new(),
        recent: VecDeque::new(),
        restart_at: None,
        started: 0,
        crashes: 0,
        replacements: 0,
        configuration: 0,
        totals: Totals::default(),
        notes: Vec::new(),
        cookie_secret: CookieSecret::default(),
        phase: Phase::Running,
        readiness: Readiness::NotYetReady,
        events,
    };
    supervisor.start(Role::Starting, own).map_err(|error| format!("cannot start: {error}"))?;
    let code = supervisor.run(&received);
    supervisor.dumps.finish();
    supervisor.sockets.close_all();
    Ok(ExitCode::from(code))
}

fn forward_signals(events: Sender<SupervisorEvent>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if events.send(SupervisorEvent::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

impl Supervisor {
    fn run(&mut self, received: &Receiver<SupervisorEvent>) -> u8 {
        loop {
            if let (Phase::Stopping(code), []) = (self.phase, self.processes.as_slice()) {
                return code;
            }
            match received.recv_timeout(self.time_to_next()) {
                Ok(SupervisorEvent::Signal(signal)) => self.on_signal(signal),
                Ok(SupervisorEvent::Message(number, FromChild::Recorder, descriptors)) => {
                    recorder_dump::keep(&mut self.processes, number, descriptors);
                }
                Ok(SupervisorEvent::Message(number, message, _)) => self.on_message(number, message),
                Ok(SupervisorEvent::Ended(number)) => self.on_child_end(number),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the supervisor has a sender"),
            }
            self.on_timer();
        }
    }

    fn time_to_next(&self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(3600);
        let candidates = self.processes.iter().filter_map(|process| match process.role {
            Role::Candidate { until, .. } => Some(until),
            _ => None,
        });
        let of_all = candidates.chain(self.restart_at).chain(self.phase.stop_at());
        let next = of_all.chain(kill_deadline::next(&self.processes)).min();
        let until = next.map_or(LONGEST, |next| next.saturating_duration_since(Instant::now()));
        self.notifier.watchdog().map_or(until, |watchdog| until.min(watchdog / 4))
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.phase != Phase::Running
    }

    fn on_timer(&mut self) {
        let now = Instant::now();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            let binary = self.binary.clone();
            if let Err(error) = self.start(Role::Starting, binary) {
                self.restart_later(&format!("cannot be started: {error}"));
            }
        }
        if self.phase.stop_at().is_some_and(|until| until <= now) {
            self.stop();
        }
        self.abandon_late_candidates(now);
        kill_deadline::kill_overdue(&mut self.processes, now);
        if let Some(watchdog) = self.notifier.watchdog() {
            // If the serving process sends no heartbeat, neither does the supervisor, so that systemd's watchdog
            // acts.
            let is_alive =
                |process: &ChildProcess| process.role != Role::Serving || now - process.last_heartbeat < watchdog / 2;
            if self.processes.iter().all(is_alive) {
                self.notifier.heartbeat();
            }
            // Before the service manager ends the program.
            self.dumps.write_unresponsive(&mut self.processes, is_alive);
        }
    }

    /// Starts a serving process.
    pub(super) fn start(&mut self, role: Role, binary: Executable) -> std::io::Result<()> {
        confirm_bindings(&mut self.processes);
        let heartbeat_interval = self.notifier.watchdog().map(|watchdog| watchdog / 8);
        let notes = self.notes.clone();
        let start_info = StartInfo {
            restarts: self.crashes,
            // A candidate is one if it becomes ready.
            replacements: self.replacements + u64::from(matches!(role, Role::Candidate { .. })),
            configuration_before: self.configuration,
            notes,
            tries_expectations: matches!(role, Role::Candidate { cause: CandidateCause::Reload, .. }),
            keeps_counts: true,
            stops_replaced: true,
            heartbeat_interval,
            ticket_keys: TicketKeys::of_process().export(),
            cookie_secret: self.cookie_secret.clone(),
        };
        let setup = ChildSetup { sockets: &self.sockets, control: &self.control, start_info };
        let process = ChildProcess::start(self.started, role, binary, setup, &self.events)?;
        self.started += 1;
        self.processes.push(process);
        Ok(())
    }

    /// Handles a message of a serving process.
    fn on_message(&mut self, number: u64, message: FromChild) {
        let Some(at) = self.processes.iter().position(|process| process.number == number) else { return };
        self.processes[at].last_heartbeat = Instant::now();
        let is_current = self.processes[at].is_current();
        match message {
            FromChild::Heartbeat | FromChild::Recorder => {}
            FromChild::DumpRecorder { why } => self.dumps.write(&self.processes[at], &why),
            FromChild::Version { version } => self.processes[at].version = Some(version),
            FromChild::Ready => self.on_ready(at),
            // A process may reload while the one that is to replace it starts.
            FromChild::Configuration { number } => self.configuration = self.configuration.max(number),
            FromChild::Failed { text } => self.processes[at].exit_message = Some(text),
            FromChild::Reloading if is_current => {
                // A process that is not ready may have read the previous configuration.
                queue_signal(&mut self.processes, Signal::HUP);
                self.notifier.reloading();
            }
            FromChild::Stopping if is_current => self.begin_shutdown(0),
            FromChild::Release { address } if is_current => drop(self.sockets.close(&address)),
            FromChild::Reloading | FromChild::Stopping | FromChild::Release { .. } => {}
            FromChild::Bind { address } => self.bind(at, address),
            FromChild::Upgrade => self.upgrade(Some(number)),
            FromChild::Replace => self.replace(number),
            FromChild::Counted { totals } => self.totals.add(&totals),
            FromChild::Counts => self.send_counts(at),
        }
    }

    /// Sends the counts of all processes to one.
    fn send_counts(&self, at: usize) {
        let process = &self.processes[at];
        for part in self.totals.clone().into_parts() {
            process.send(&ToChild::Counts { totals: Box::new(part) });
        }
        process.send(&ToChild::Done { text: String::new() });
    }

    /// Binds an address for a process. The binding is undone if the process never becomes ready.
    fn bind(&mut self, at: usize, address: ListenAddress) {
        let before = self.sockets.known(&address).cloned();
        let process = &self.processes[at];
        let message = match self.sockets.bind(&address) {
            Ok(listeners) => {
                listeners.iter().for_each(|listener| process.send_listener(&address, listener));
                ToChild::Done { text: String::new() }
            }
            Err(text) => ToChild::Refused { text },
        };
        process.send(&message);
        if matches!(message, ToChild::Refused { .. }) {
            return;
        }
        match process.role {
            Role::Starting | Role::Candidate { .. } if before.as_ref() != Some(&address) => {
                self.processes[at].bound.push(BoundListener { address, previous: before });
            }
            Role::Starting | Role::Candidate { .. } => {}
            // A serving process uses it now, so a process that never becomes ready must not undo it.
            Role::Serving | Role::Retired => {
                let others = self.processes.iter_mut();
                others.for_each(|other| other.bound.retain(|bound| !bound.address.is_same_socket(&address)));
            }
        }
    }

    /// Restores the sockets to their state before a process that never became ready.
    fn restore_sockets(&mut self, bound: Vec<BoundListener>) {
        // During a shutdown, all listeners are closed.
        if matches!(self.phase, Phase::Stopping(_)) {
            return;
        }
        for BoundListener { address, previous: before } in bound.into_iter().rev() {
            match before {
                None => drop(self.sockets.close(&address)),
                // A removed file has no mode to restore.
                Some(before) => drop(self.sockets.bind(&before)),
            }
        }
    }

    fn on_ready(&mut self, at: usize) {
        self.readiness = Readiness::WasReady;
        self.notes.clear();
        match self.processes[at].role {
            Role::Starting => self.processes[at].role = Role::Serving,
            Role::Candidate { requested_by, .. } => self.promote(at, requested_by),
            Role::Serving => {}
            Role::Retired => return,
        }
        confirm_bindings(&mut self.processes);
        self.restart_at = None;
        if self.phase.stop_at().is_some() {
            return self.stop();
        }
        for signal in std::mem::take(&mut self.processes[at].pending_signals) {
            self.processes[at].signal(signal);
        }
        self.notifier.ready();
        self.notifier.status(&format!("process {} serves", self.processes[at].pid().as_raw_nonzero()));
    }

    /// Handles the end of a serving process.
    fn on_child_end(&mut self, number: u64) {
        let Some(at) = self.processes.iter().position(|process| process.number == number) else { return };
        let mut process = self.processes.remove(at);
        let exit_message = process.exit_message.take();
        self.restore_sockets(std::mem::take(&mut process.bound));
        let (role, pid) = (process.role, process.pid().as_raw_nonzero());
        // The recorder is dumped after a failure and after a kill, also after one by this process. One that was never ready
        // has no requests.
        let memory = process.recorder.take().filter(|_| matches!(role, Role::Serving | Role::Retired));
        let status = process.reap();
        let how = describe_exit(&status);
        if !status.as_ref().is_ok_and(ExitStatus::success) {
            self.dumps.write_memory(memory, pid, format!("process {pid} {how}"));
        }
        match role {
            // Also during a shutdown, because a caller may wait for the result.
            Role::Candidate { requested_by, .. } => {
                let why = exit_message.unwrap_or_else(|| format!("the new process {how} before it was ready"));
                self.refuse(requested_by, &why);
            }
            Role::Starting if self.phase.stop_at().is_some() => self.stop(),
            _ if self.is_stopping() => {}
            Role::Retired if status.as_ref().is_ok_and(|status| status.success()) => {}
            Role::Retired => print_line(&format!("selvedge: process {pid}, which was to end, {how}")),
            Role::Starting if self.readiness == Readiness::NotYetReady => {
                // It has reported the reason, and a restart would fail for that reason too.
                let code = status.ok().and_then(|status| status.code());
                self.begin_shutdown(
                    code.and_then(|code| u8::try_from(code).ok()).filter(|&code| code != 0).unwrap_or(1),
                );
            }
            Role::Starting | Role::Serving => {
                let why = exit_message.map_or_else(String::new, |words| format!(": {words}"));
                self.restart_later(&format!("{pid} {how}{why}"));
            }
        }
    }

    fn on_signal(&mut self, signal: i32) {
        let is_stopping = self.is_stopping();
        match signal {
            SIGINT => self.stop_now(),
            SIGTERM | SIGQUIT if is_stopping => self.stop_now(),
            SIGTERM | SIGQUIT => self.stop_when_ready(),
            _ if is_stopping => {}
            SIGUSR2 => self.upgrade(None),
            SIGHUP => reload(&mut self.processes),
            _ => reopen_logs(&mut self.processes),
        }
    }

    /// Schedules a restart, or gives up.
    fn restart_later(&mut self, why: &str) {
        self.crashes += 1;
        let now = Instant::now();
        while self.recent.front().is_some_and(|at| now - *at >= self.config.restarts.within) {
            self.recent.pop_front();
        }
        let earlier = self.recent.len();
        if earlier as u64 >= self.config.restarts.max {
            let within = self.config.restarts.within.as_secs_f64();
            print_line(&format!(
                "selvedge: the serving process {why}, after {earlier} restarts within {within} s: giving up"
            ));
            self.begin_shutdown(GAVE_UP);
            return;
        }
        let back_off = self.config.restarts.back_off(earlier);
        self.recent.push_back(now);
        self.restart_at = Some(now + back_off);
        let note = format!(
            "the serving process {why}; started again after {} ms (restart {} of {} within {} s)",
            back_off.as_millis(),
            earlier + 1,
            self.config.restarts.max,
            self.config.restarts.within.as_secs_f64()
        );
        print_line(&format!("selvedge: {note}"));
        self.notifier.status(&note);
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }
}

/// Makes all bindings permanent, because a process with these sockets is ready.
fn confirm_bindings(processes: &mut [ChildProcess]) {
    processes.iter_mut().for_each(|process| process.bound.clear());
}

fn reload(processes: &mut [ChildProcess]) {
    // A process that is not ready may have read the previous configuration.
    queue_signal(processes, Signal::HUP);
    let serves = |process: &&ChildProcess| process.role == Role::Serving;
    processes.iter().filter(serves).for_each(|process| process.signal(Signal::HUP));
}

fn reopen_logs(processes: &mut [ChildProcess]) {
    // A process that is not ready may have opened the logs before.
    queue_signal(processes, Signal::USR1);
    let has_opened = |process: &&ChildProcess| matches!(process.role, Role::Serving | Role::Retired);
    processes.iter().filter(has_opened).for_each(|process| process.signal(Signal::USR1));
}

/// Stores a signal for processes that are not ready to receive signals.
fn queue_signal(processes: &mut [ChildProcess], signal: Signal) {
    let is_not_ready = |process: &&mut ChildProcess| matches!(process.role, Role::Starting | Role::Candidate { .. });
    for process in processes.iter_mut().filter(is_not_ready) {
        if !process.pending_signals.contains(&signal) {
            process.pending_signals.push(signal);
        }
    }
}
