//! A child process of the supervisor: its start, its messages and its end.

use super::executable::Executable;
use super::link::{FromChild, Link, StartInfo, ToChild};
use super::listen_address::ListenAddress;
use super::notify::OWN_VARIABLES;
use super::sockets::Sockets;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use selvedge::Listener;
use std::env;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

/// Set for a serving process that a supervisor started; its standard input is the link to the supervisor.
pub(super) const SUPERVISED_VARIABLE: &str = "SELVEDGE_SUPERVISED";

/// An event for the supervisor.
#[derive(Debug)]
pub(super) enum SupervisorEvent {
    Signal(i32),
    /// A message of the serving process with this number, and its descriptors.
    Message(u64, FromChild, Vec<OwnedFd>),
    /// It has ended, so [`ChildProcess::reap`] does not block.
    Ended(u64),
}

/// Why a process is to replace others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateCause {
    /// Another binary.
    Upgrade,
    /// A configuration or a folder that the sandbox of the current process does not cover.
    Reload,
}

/// The role of a serving process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It was started and is not ready.
    Starting,
    /// It serves.
    Serving,
    /// It replaces another process if it is ready in time. `requested_by` waits for the result.
    Candidate { until: Instant, requested_by: Option<u64>, cause: CandidateCause },
    /// It was replaced. It finishes its requests, and serves on what lasts.
    Retired,
}

/// When a process is killed if it has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillDeadline {
    /// No stop was requested.
    Never,
    /// The process hands over, and may serve on what lasts: at this time, unless heartbeats continue.
    AfterHandOver(Instant),
    /// At this time, unless heartbeats continue.
    AfterDrain(Instant),
    /// At this time, in any case.
    Immediate(Instant),
    /// It was killed.
    Killed,
}

/// An address that was bound for a process, and the previous binding, if any.
#[derive(Debug)]
pub(super) struct BoundListener {
    pub(super) address: ListenAddress,
    pub(super) previous: Option<ListenAddress>,
}

/// A child process that was not reaped yet.
#[derive(Debug)]
pub(super) struct ChildProcess {
    pub(super) number: u64,
    pub(super) role: Role,
    pub(super) kill_deadline: KillDeadline,
    pub(super) binary: Executable,
    /// Time of the last message.
    pub(super) last_heartbeat: Instant,
    /// Version of its binary, once reported.
    pub(super) version: Option<String>,
    /// Signals to send when it can receive them.
    pub(super) pending_signals: Vec<Signal>,
    /// Why it is about to end, if reported.
    pub(super) exit_message: Option<String>,
    /// Changes to the sockets for it, until it is ready.
    pub(super) bound: Vec<BoundListener>,
    /// The memory of its flight recorder, once received.
    pub(super) recorder: Option<File>,
    /// Whether it was dumped because heartbeats are missing.
    pub(super) is_dumped: bool,
    child: Child,
    link: Arc<Link>,
}

/// What a serving process needs to start.
pub(super) struct ChildSetup<'a> {
    pub(super) sockets: &'a Sockets,
    pub(super) control: &'a Listener,
    pub(super) start_info: StartInfo,
}

impl ChildProcess {
    /// Starts a process and sends it its setup.
    pub(super) fn start(
        number: u64,
        role: Role,
        binary: Executable,
        setup: ChildSetup<'_>,
        events: &Sender<SupervisorEvent>,
    ) -> io::Result<Self> {
        let (link, child_end) = Link::pair()?;
        let link = Arc::new(link);
        let exec_handle = binary.exec_handle()?;
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| binary.path.clone().into());
        let mut command = Command::new(&exec_handle.path);
        // A process group of its own, so that a terminal's signals reach only the supervisor.
        command.arg0(name).args(arguments).stdin(Stdio::from(child_end)).process_group(0);
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        let child = command.env(SUPERVISED_VARIABLE, "1").spawn()?;
        // Closes the supervisor's copy of the child's end. It would hide the end of the child.
        drop(command);
        drop(exec_handle);
        let process = Self {
            number,
            role,
            kill_deadline: KillDeadline::Never,
            binary,
            last_heartbeat: Instant::now(),
            version: None,
            pending_signals: Vec::new(),
            exit_message: None,
            bound: Vec::new(),
            recorder: None,
            is_dumped: false,
            child,
            link,
        };
        process.watch(events.clone())?;
        // A failure means that the process has ended, which is reported as its end.
        let _ = process.send_setup(setup);
        Ok(process)
    }

    fn send_setup(&self, setup: ChildSetup<'_>) -> io::Result<()> {
        for entry in setup.sockets.bound() {
            for listener in &entry.listeners {
                self.link.send_listener(&entry.address, listener)?;
            }
        }
        for control in setup.control.sockets() {
            self.link.send_control(control)?;
        }
        self.link.send(&ToChild::Start(setup.start_info))
    }

    /// Watches its messages and its end on two threads.
    fn watch(&self, events: Sender<SupervisorEvent>) -> io::Result<()> {
        let (number, link, pid) = (self.number, self.link.clone(), self.pid());
        thread::Builder::new().name("selvedge-watch".to_owned()).spawn(move || {
            loop {
                match link.receive::<FromChild>() {
                    Ok(Some((message, descriptors))) => {
                        drop(events.send(SupervisorEvent::Message(number, message, descriptors)));
                    }
                    // A later version may send messages that this one does not know.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                    Ok(None) | Err(_) => break,
                }
            }
            // Its messages precede its end. It is not reaped here, so its process ID stays valid until the supervisor
            // handles the end.
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
            let _ = events.send(SupervisorEvent::Ended(number));
        })?;
        Ok(())
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether this process receives signals and commands.
    pub(super) fn is_current(&self) -> bool {
        matches!(self.role, Role::Starting | Role::Serving)
    }

    /// Whether this process was replaced, and was not told to stop since.
    pub(super) fn is_handing_over(&self) -> bool {
        matches!(self.kill_deadline, KillDeadline::AfterHandOver(_))
    }

    pub(super) fn signal(&self, signal: Signal) {
        // A process that has ended ignores the signal.
        let _ = kill_process(self.pid(), signal);
    }

    /// Kills the process.
    pub(super) fn kill(&mut self) {
        self.kill_deadline = KillDeadline::Killed;
        self.signal(Signal::KILL);
    }

    /// Sends a message.
    pub(super) fn send(&self, message: &ToChild) {
        let _ = self.link.send(message);
    }

    /// Sends a listener.
    pub(super) fn send_listener(&self, address: &ListenAddress, listener: &Listener) {
        let _ = self.link.send_listener(address, listener);
    }

    /// Reaps the process and returns its status.
    pub(super) fn reap(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// Formats an exit status for a message.
pub(super) fn describe_exit(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, Some(code)) => format!("ended with code {code}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("ended with an unknown status: {error}"),
    }
}
