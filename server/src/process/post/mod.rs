//! What a serving process has of the world around it: its sockets, whom it reports to, and
//! whose orders it takes. It serves alone, or under a supervisor.

mod ending;
mod orders;
mod sockets;

pub(crate) use orders::{Orders, Pace};

use super::Place;
use super::claimed::OwnFile;
use super::control::Answer;
use super::link::{Asked, Beginning, Link, Told};
use super::notify::Notifier;
use super::sandbox::{Confinement, Sandbox};
use super::sockets::Sockets;
use super::together::Together;
use sockets::{Parts, ask, receive};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// What is said of an order to stop, and of others after it.
const STOPPING: &str = "stopping";

/// The place of a serving process.
#[derive(Debug)]
pub(crate) struct Post {
    sockets: Mutex<Sockets>,
    control: Mutex<Option<UnixListener>>,
    /// Orders to reload.
    reloads: Together<Answer>,
    /// Held by whoever waits for another process in the place of this one.
    replacing: Mutex<()>,
    /// Set when this process has begun to stop.
    stopping: AtomicBool,
    /// How long what runs may take then.
    drain_time: Mutex<Duration>,
    /// Dropped when no more orders are taken.
    orders_end: Mutex<Option<UnixStream>>,
    /// Dropped when nothing is left that may take its time.
    busy: Mutex<Option<Sender<()>>>,
    /// Held by whoever is answering one.
    answering: Arc<()>,
    chain: Chain,
    beginning: Beginning,
}

/// Whom a serving process answers to.
#[derive(Debug)]
enum Chain {
    /// The supervisor. One question at a time.
    Supervised { link: Link, asking: Mutex<()> },
    /// Nobody but the system. The files to remove at the end.
    Alone { notifier: Notifier, files: Vec<OwnFile> },
}

impl Post {
    pub(super) fn alone(sockets: Sockets, control: UnixListener, notifier: Notifier, files: Vec<OwnFile>) -> Self {
        Self::of(Chain::Alone { notifier, files }, sockets, Some(control), Beginning::default())
    }

    /// Takes what the supervisor hands over.
    pub(super) fn supervised(link: Link, mut sockets: Sockets) -> Result<Self, String> {
        // A supervisor that hears nothing more is gone, which the first message says, too.
        let _ = link.send(&Asked::Runs { version: env!("CARGO_PKG_VERSION").to_owned() });
        let mut control = None;
        let mut parts = Parts::default();
        let beginning = loop {
            match receive(&link)? {
                (Told::Listener { place, part }, some) => parts.add(place, part, some),
                (Told::Control, some) => control = some.into_iter().next().map(UnixListener::from),
                (Told::Begin(beginning), _) => break beginning,
                (Told::Done { .. } | Told::Refused { .. }, _) => {}
            }
        };
        for (place, listener) in parts.listeners()? {
            sockets.adopt(place, listener);
        }
        Ok(Self::of(Chain::Supervised { link, asking: Mutex::default() }, sockets, control, beginning))
    }

    fn of(chain: Chain, sockets: Sockets, control: Option<UnixListener>, beginning: Beginning) -> Self {
        Self {
            sockets: Mutex::new(sockets),
            control: Mutex::new(control),
            reloads: Together::default(),
            replacing: Mutex::default(),
            stopping: AtomicBool::default(),
            drain_time: Mutex::new(selvedge::Limits::default().drain_time),
            orders_end: Mutex::default(),
            busy: Mutex::default(),
            answering: Arc::default(),
            chain,
            beginning,
        }
    }

    /// What became of the serving processes before this one, for the error log.
    pub(crate) fn notes(&self) -> &[String] {
        &self.beginning.notes
    }

    /// How many serving processes there were before this one.
    pub(crate) fn restarts(&self) -> u64 {
        self.beginning.restarts
    }

    /// Enters the sandbox, for good. No other thread may run yet.
    pub(crate) fn confine(&self, sandbox: &Sandbox) -> Result<Confinement, String> {
        let mut sandbox = sandbox.clone();
        if let Chain::Alone { files, .. } = &self.chain {
            // What is removed at the end.
            files.iter().for_each(|file| sandbox.write_file(file.path()));
            for held in guard(&self.sockets).held() {
                if let Place::Unix { path, .. } = &held.place {
                    sandbox.write_file(path);
                }
            }
        }
        sandbox.enter()
    }

    /// Says that it serves, under the configuration that is now in force.
    pub(crate) fn ready(&self) {
        match &self.chain {
            Chain::Supervised { link, .. } => drop(link.send(&Asked::Ready)),
            Chain::Alone { notifier, .. } => notifier.ready(),
        }
    }

    /// Another process in the place of this one, which has yet to see what the configuration
    /// needs now. When it is ready, this one is told to stop.
    pub(crate) fn renew(&self) -> Answer {
        self.replace(&Asked::Renew, "without a supervisor there is nobody to start another process")
    }

    /// Whether nobody could start another process.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.chain, Chain::Alone { .. })
    }

    /// Whether this process has begun to stop: it has another in its place, or none is to have it.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn replace(&self, asked: &Asked, alone: &str) -> Answer {
        if self.is_stopping() {
            return too_late();
        }
        let Some(_one_at_a_time) = try_guard(&self.replacing) else {
            return Answer::Refused("another upgrade is under way".to_owned());
        };
        match &self.chain {
            Chain::Alone { .. } => Answer::Refused(alone.to_owned()),
            Chain::Supervised { link, asking } => match ask(link, asking, asked, &mut Parts::default()) {
                Ok(Ok(text)) => Answer::Done(text),
                Ok(Err(text)) | Err(text) => Answer::Refused(text),
            },
        }
    }
}

/// What is said of an order that comes too late.
fn too_late() -> Answer {
    Answer::Refused(format!("the server is {STOPPING}"))
}

/// Nothing is left half done by whoever panics with one of these.
pub(super) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nothing where somebody else has it.
fn try_guard<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::notify::Inherited;

    #[test]
    fn whoever_stops_asks_for_no_other_process() {
        let (ours, theirs) = Link::pair().unwrap();
        ours.send(&Told::Begin(Beginning::default())).unwrap();
        let post = Post::supervised(Link::from(theirs), Sockets::new(1, Inherited::default())).unwrap();
        post.leave_all();
        post.has_drained();
        // For one that would ask.
        ours.send(&Told::Refused { text: "it has asked".to_owned() }).unwrap();
        assert!(post.is_stopping());
        assert_eq!(post.renew(), Answer::Refused("the server is stopping".to_owned()));
        drop(post);
        while let Some((asked, _)) = ours.receive::<Asked>().unwrap() {
            assert!(matches!(asked, Asked::Runs { .. } | Asked::Alive), "{asked:?}");
        }
    }
}
