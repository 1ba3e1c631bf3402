//! A serving process, as the supervisor sees it: how it is started, what it says, its end.

use super::binary::Binary;
use super::link::{Asked, Beginning, Link, Told};
use super::notify::OWN_VARIABLES;
use super::place::Place;
use super::sockets::Sockets;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use selvedge::Listener;
use std::env;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Instant;

/// By this a serving process knows that it was started by a supervisor, which its standard
/// input leads to.
pub(super) const VARIABLE: &str = "SELVEDGE_SUPERVISED";

/// Something that the supervisor waits for.
#[derive(Debug)]
pub(super) enum Event {
    Signal(i32),
    /// The serving process of that number says something.
    Said(u64, Asked),
    /// It has ended, and [`Serving::collect`] does not wait.
    Ended(u64),
}

/// What a serving process is to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It was started and is to serve.
    Starting,
    /// It serves.
    Serving,
    /// It is to take the place of another, if it is ready in time; whoever asked for that
    /// is to be told.
    Candidate { until: Instant, asked_by: Option<u64> },
    /// It lets what runs finish, and is not missed.
    Retired,
}

/// By when a process has to have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It was not told to.
    Never,
    /// By then, or whenever it falls silent after that.
    Drained(Instant),
    /// By then, whatever it says.
    AtOnce(Instant),
    /// It was killed.
    Killed,
}

/// A place that was bound for a process, and how it was bound before, if it was.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) place: Place,
    pub(super) before: Option<Place>,
}

/// A process that was started and not yet collected.
#[derive(Debug)]
pub(super) struct Serving {
    pub(super) number: u64,
    pub(super) role: Role,
    pub(super) due: Due,
    pub(super) binary: Binary,
    /// When it last said that it is alive, or anything else.
    pub(super) heard: Instant,
    /// What it runs, where it said so.
    pub(super) version: Option<String>,
    /// What it is to be told once it can hear it.
    pub(super) owed: Vec<Signal>,
    /// Why it is about to end, where it said so.
    pub(super) last_words: Option<String>,
    /// What was changed of the sockets for it, as long as it is not ready.
    pub(super) bound: Vec<Bound>,
    child: Child,
    link: Arc<Link>,
}

/// What a serving process is started with.
pub(super) struct Outfit<'a> {
    pub(super) sockets: &'a Sockets,
    pub(super) control: &'a Listener,
    pub(super) beginning: Beginning,
}

impl Serving {
    /// Starts one, and hands it what it needs.
    pub(super) fn start(
        number: u64,
        role: Role,
        binary: Binary,
        outfit: Outfit<'_>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let (link, theirs) = Link::pair()?;
        let link = Arc::new(link);
        let startable = binary.startable()?;
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_else(|| binary.path.clone().into());
        let mut command = Command::new(&startable.path);
        // A group of its own, so that a terminal's signals reach the supervisor alone.
        command.arg0(name).args(arguments).stdin(Stdio::from(theirs)).process_group(0);
        for name in OWN_VARIABLES {
            command.env_remove(name);
        }
        let child = command.env(VARIABLE, "1").spawn()?;
        // The supervisor's copy of the other end, which would hide that the process has ended.
        drop(command);
        drop(startable);
        let (due, heard) = (Due::Never, Instant::now());
        let (version, owed, last_words, bound) = (None, Vec::new(), None, Vec::new());
        let serving = Self { number, role, due, binary, heard, version, owed, last_words, bound, child, link };
        serving.watch(events.clone())?;
        // To a process that has ended already nothing can be said, which its end says.
        let _ = serving.hand_over(outfit);
        Ok(serving)
    }

    fn hand_over(&self, outfit: Outfit<'_>) -> io::Result<()> {
        for held in outfit.sockets.held() {
            for listener in &held.listeners {
                self.link.send_listener(&held.place, listener)?;
            }
        }
        for control in outfit.control.sockets() {
            self.link.send_control(control)?;
        }
        self.link.send(&Told::Begin(outfit.beginning))
    }

    /// Tells of what it says and of its end.
    fn watch(&self, events: Sender<Event>) -> io::Result<()> {
        let (number, link, pid) = (self.number, self.link.clone(), self.pid());
        thread::Builder::new().name("selvedge-watch".to_owned()).spawn(move || {
            loop {
                match link.receive::<Asked>() {
                    Ok(Some((asked, _))) => drop(events.send(Event::Said(number, asked))),
                    // One of a later version may say what is not understood here.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
                    Ok(None) | Err(_) => break,
                }
            }
            // What it has said comes before its end. It is not collected here, so that its number
            // stays its own until the supervisor knows.
            while let Err(rustix::io::Errno::INTR) =
                waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            {}
            let _ = events.send(Event::Ended(number));
        })?;
        Ok(())
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it takes the place that signals and orders are meant for.
    pub(super) fn is_current(&self) -> bool {
        matches!(self.role, Role::Starting | Role::Serving)
    }

    pub(super) fn signal(&self, signal: Signal) {
        // One that has ended and was not collected hears nothing.
        let _ = kill_process(self.pid(), signal);
    }

    /// Ends it, whatever it is doing.
    pub(super) fn kill(&mut self) {
        self.due = Due::Killed;
        self.signal(Signal::KILL);
    }

    /// Answers what it asked.
    pub(super) fn tell(&self, told: &Told) {
        let _ = self.link.send(told);
    }

    /// Hands it a listener.
    pub(super) fn give(&self, place: &Place, listener: &Listener) {
        let _ = self.link.send_listener(place, listener);
    }

    /// How it has ended.
    pub(super) fn collect(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }
}

/// How a process has ended, in words.
pub(super) fn describe(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, Some(code)) => format!("ended with code {code}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("is gone: {error}"),
    }
}
