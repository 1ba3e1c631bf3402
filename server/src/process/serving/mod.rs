//! The serving process's context: its sockets, its parent, and its control commands. It runs under a supervisor or
//! unsupervised.

mod commands;
mod counts;
mod handed_counts;
mod recorder;
mod request;
mod shutdown;
mod shutdown_watch;
mod sockets;

pub(crate) use commands::{ControlHandler, StopMode};
pub(crate) use counts::{all_counts, hand_over_counts, report_configuration};
pub(crate) use recorder::{PanicWatch, hand_over_recorder};

use super::ListenAddress;
use super::control::ControlReply;
use super::link::{FromChild, Link, StartInfo, ToChild};
use super::lock::{lock, try_lock};
use super::notify::{Inherited, Notifier};
use super::owned_file::OwnedFile;
use super::sandbox::{Confinement, Sandbox};
use super::single_flight::SingleFlight;
use super::sockets::Sockets;
use handed_counts::HandedCounts;
use request::{PendingListeners, call, receive};
use selvedge::tls::TicketKeys;
use shutdown_watch::ShutdownWatch;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Reply to a stop command and to later ones.
const STOPPING: &str = "stopping";

/// The context of a serving process.
#[derive(Debug)]
pub(crate) struct ServingProcess {
    sockets: Mutex<Sockets>,
    control: Mutex<Option<UnixListener>>,
    /// Reload commands, which share executions.
    reloads: SingleFlight<ControlReply>,
    /// Locked while a replacement process is awaited.
    replacing: Mutex<()>,
    /// Set when the shutdown has begun.
    stopping: AtomicBool,
    /// The shutdown timeout.
    shutdown_timeout: Mutex<Duration>,
    /// Dropped when no more commands are accepted.
    commands_end: Mutex<Option<UnixStream>>,
    /// Dropped when draining has ended.
    busy: Mutex<Option<Sender<()>>>,
    shutdown_watch: Arc<ShutdownWatch>,
    /// Cloned by each call in progress.
    calls: Arc<()>,
    parent: Parent,
    start_info: StartInfo,
    counts: Mutex<HandedCounts>,
}

/// The parent of a serving process.
#[derive(Debug)]
enum Parent {
    /// A supervisor. One request at a time.
    Supervisor { link: Link, request_lock: Mutex<()> },
    /// None. The files are removed at the end.
    None { notifier: Notifier, files: Vec<OwnedFile> },
}

impl ServingProcess {
    pub(super) fn unsupervised(
        sockets: Sockets,
        control: UnixListener,
        notifier: Notifier,
        files: Vec<OwnedFile>,
    ) -> Self {
        Self::of(Parent::None { notifier, files }, sockets, Some(control), StartInfo::default())
    }

    /// Creates the context of a process that accepts no commands, such as that of `selvedge serve`.
    pub(crate) fn without_commands(workers: usize) -> Self {
        let sockets = Sockets::new(workers, Inherited::of_environment());
        let parent = Parent::None { notifier: Notifier::of_environment(), files: Vec::new() };
        Self::of(parent, sockets, None, StartInfo::default())
    }

    /// Receives the setup from the supervisor.
    pub(super) fn supervised(link: Link, mut sockets: Sockets) -> Result<Self, String> {
        // If the supervisor has ended, the first receive reports it.
        let _ = link.send(&FromChild::Version { version: env!("CARGO_PKG_VERSION").to_owned() });
        let mut control = None;
        let mut pending = PendingListeners::default();
        let start_info = loop {
            match receive(&link)? {
                (ToChild::Listener { address, batch }, sockets) => pending.add(address, batch, sockets),
                (ToChild::Control, sockets) => control = sockets.into_iter().next().map(UnixListener::from),
                (ToChild::Start(start_info), _) => break start_info,
                (ToChild::Done { .. } | ToChild::Refused { .. } | ToChild::Counts { .. }, _) => {}
            }
        };
        TicketKeys::continue_with(&start_info.ticket_keys);
        for (address, listener) in pending.listeners()? {
            sockets.add(address, listener);
        }
        Ok(Self::of(Parent::Supervisor { link, request_lock: Mutex::default() }, sockets, control, start_info))
    }

    fn of(parent: Parent, sockets: Sockets, control: Option<UnixListener>, start_info: StartInfo) -> Self {
        Self {
            sockets: Mutex::new(sockets),
            control: Mutex::new(control),
            reloads: SingleFlight::default(),
            replacing: Mutex::default(),
            stopping: AtomicBool::default(),
            shutdown_timeout: Mutex::new(selvedge::Limits::default().shutdown_timeout),
            commands_end: Mutex::default(),
            busy: Mutex::default(),
            shutdown_watch: Arc::default(),
            calls: Arc::default(),
            parent,
            start_info,
            counts: Mutex::default(),
        }
    }

    /// Returns what the supervisor told the process at its start.
    pub(crate) fn start_info(&self) -> &StartInfo {
        &self.start_info
    }

    /// Enters the sandbox for good. Call it while the process has one thread.
    pub(crate) fn confine(&self, sandbox: &Sandbox) -> Result<Confinement, String> {
        let mut sandbox = sandbox.clone();
        if let Parent::None { files, .. } = &self.parent {
            // Files to remove at the end.
            files.iter().for_each(|file| sandbox.allow_writing_file(file.path()));
            for bound in lock(&self.sockets).bound() {
                if let ListenAddress::Unix { path, .. } = &bound.address {
                    sandbox.allow_writing_file(path);
                }
            }
        }
        sandbox.enter()
    }

    /// Reports that the process serves the configuration in force.
    pub(crate) fn ready(&self) {
        match &self.parent {
            Parent::Supervisor { link, .. } => drop(link.send(&FromChild::Ready)),
            Parent::None { notifier, .. } => notifier.ready(),
        }
    }

    /// Requests a new process with the sandbox that the configuration needs. When it is ready, the supervisor
    /// stops this one.
    pub(crate) fn replace_process(&self) -> ControlReply {
        self.replace(&FromChild::Replace, "no other process can be started without a supervisor")
    }

    /// Whether no supervisor exists.
    pub(crate) fn is_unsupervised(&self) -> bool {
        matches!(self.parent, Parent::None { .. })
    }

    /// Whether the shutdown has begun.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn replace(&self, request: &FromChild, reason: &str) -> ControlReply {
        if self.is_shutting_down() {
            return shutting_down();
        }
        let Some(_one_at_a_time) = try_lock(&self.replacing) else {
            return ControlReply::Refused("another upgrade is in progress".to_owned());
        };
        match &self.parent {
            Parent::None { .. } => ControlReply::Refused(reason.to_owned()),
            Parent::Supervisor { link, request_lock: asking } => {
                match call(link, asking, request, &mut PendingListeners::default()) {
                    Ok(Ok(text)) => ControlReply::Done(text),
                    Ok(Err(text)) | Err(text) => ControlReply::Refused(text),
                }
            }
        }
    }
}

/// Returns the reply to a command that arrives during a shutdown.
fn shutting_down() -> ControlReply {
    ControlReply::Refused(format!("the server is {STOPPING}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopping_process_requests_no_replacement() {
        let (ours, theirs) = Link::pair().unwrap();
        ours.send(&ToChild::Start(StartInfo::default())).unwrap();
        let serving = ServingProcess::supervised(Link::from(theirs), Sockets::new(1, Inherited::default())).unwrap();
        serving.stop_listening(None);
        serving.mark_drained();
        // If the process sent a request, it would read this reply.
        ours.send(&ToChild::Refused { text: "it has sent a request".to_owned() }).unwrap();
        assert!(serving.is_shutting_down());
        assert_eq!(serving.replace_process(), ControlReply::Refused("the server is stopping".to_owned()));
        drop(serving);
        while let Some((request, _)) = ours.receive::<FromChild>().unwrap() {
            assert!(matches!(request, FromChild::Version { .. } | FromChild::Heartbeat), "{request:?}");
        }
    }
}
