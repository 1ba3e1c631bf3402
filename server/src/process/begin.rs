//! How the program that runs a configuration begins: as the supervisor, as a serving process
//! that a supervisor has started, or alone.

use super::Place;
use super::account::Account;
use super::binary;
use super::child::VARIABLE;
use super::claimed::OwnFile;
use super::link::{Asked, Link};
use super::notify::{Inherited, Notifier};
use super::post::Post;
use super::restarts::Restarts;
use super::sockets::Sockets;
use super::supervise::{Terms, supervise};
use crate::config::model::{self, Settings, Supervision, Switch};
use crate::config::value::Address;
use selvedge::Listener;
use std::env;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;

/// Who may give orders: the owner.
const CONTROL_MODE: u32 = 0o600;

/// What a message has of the reason why a process cannot begin, however it is escaped.
const LAST_WORDS_BYTES_MAX: usize = 16 * 1024;

/// What this process is to do.
pub(crate) enum Begun {
    /// Serve.
    Serve(Box<Post>),
    /// End: it was the supervisor, and all is over.
    Ended(ExitCode),
}

/// Why this process cannot begin.
#[derive(Debug)]
pub(crate) enum CannotBegin {
    /// These places cannot be listened at.
    Listen(Vec<CannotListen>),
    /// Something else.
    Other(String),
}

/// Why a place cannot be listened at.
#[derive(Debug)]
pub(crate) struct CannotListen {
    pub(crate) address: Address,
    pub(crate) why: String,
}

impl From<String> for CannotBegin {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

/// Begins. No thread may have been started yet: whoever becomes another user does it for the
/// one that calls.
pub(crate) fn begin(settings: &Settings, workers: usize) -> Result<Begun, CannotBegin> {
    let process = &settings.process;
    let account = Account::find(process.user.as_deref(), process.group.as_deref())?;
    let assume = || account.as_ref().map_or(Ok(()), Account::assume);
    if env::var_os(VARIABLE).is_some() {
        // It was started by a descriptor, whose number would be its name.
        let _ = rustix::thread::set_name(c"selvedge");
        let link = Link::of_standard_input().map_err(|error| format!("the supervisor cannot be reached: {error}"))?;
        let post = Post::supervised(link, Sockets::new(workers, Inherited::default()))?;
        post.drains_within(settings.limits.drain_time);
        assume()?;
        return Ok(Begun::Serve(Box::new(post)));
    }
    // Before anything else takes its time, in which the file may be moved.
    let program = binary::begun_at().map_err(|error| format!("the program's file cannot be found: {error}"))?;
    let mut sockets = Sockets::new(workers, Inherited::of_environment());
    let claimed = match claim(settings, &mut sockets) {
        Ok(claimed) => claimed,
        Err(problem) => {
            sockets.end();
            return Err(problem);
        }
    };
    let Claimed { control, files } = claimed;
    let notifier = Notifier::of_environment();
    if process.supervision.supervised == Switch::Off {
        let control = control.sockets().next().expect("a listener has a socket").try_clone_to_owned();
        let control = control.map_err(|error| format!("cannot take orders: {error}"))?;
        assume()?;
        let post = Post::alone(sockets, UnixListener::from(control), notifier, files);
        post.drains_within(settings.limits.drain_time);
        return Ok(Begun::Serve(Box::new(post)));
    }
    let (restarts, drain_time) = (Restarts::from(&process.supervision), settings.limits.drain_time);
    let terms = Terms { restarts, drain_time, program };
    let ended = supervise(sockets, control, notifier, terms);
    files.iter().for_each(OwnFile::remove);
    Ok(Begun::Ended(ended?))
}

/// Tells the supervisor, if there is one, why this process ends before it serves.
pub(crate) fn say_last(text: &str) {
    if env::var_os(VARIABLE).is_some() {
        // Whoever cannot be told sees it end.
        let link = Link::of_standard_input();
        // All of it is on standard error.
        let text = text[..text.floor_char_boundary(LAST_WORDS_BYTES_MAX)].to_owned();
        let _ = link.and_then(|link| link.send(&Asked::Failed { text }));
    }
}

/// What one running program has to itself.
struct Claimed {
    control: Listener,
    /// Those to remove at the end.
    files: Vec<OwnFile>,
}

/// Listens everywhere, and takes the control socket and the file with the process's number.
fn claim(settings: &Settings, sockets: &mut Sockets) -> Result<Claimed, CannotBegin> {
    let bind = |listener: &model::Listener| {
        let why = sockets.bind(&Place::from(listener)).err()?;
        Some(CannotListen { address: listener.address.clone(), why })
    };
    let problems: Vec<_> = settings.listeners.iter().filter_map(bind).collect();
    if !problems.is_empty() {
        return Err(CannotBegin::Listen(problems));
    }
    let process = &settings.process;
    let path = &process.control;
    let control = Listener::bind_unix(path, CONTROL_MODE)
        .map_err(|error| format!("cannot take orders at {}: {error}", path.display()))?;
    let socket = OwnFile::made(path).map_err(|error| format!("cannot take orders at {}: {error}", path.display()))?;
    let mut files = vec![socket];
    if let Some(file) = &process.pid_file {
        match OwnFile::with_process_number(file) {
            Ok(file) => files.push(file),
            Err(problem) => {
                files.iter().for_each(OwnFile::remove);
                return Err(CannotBegin::Other(problem));
            }
        }
    }
    Ok(Claimed { control, files })
}

impl From<&Supervision> for Restarts {
    fn from(supervision: &Supervision) -> Self {
        Self {
            max: supervision.restarts_max,
            within: supervision.restarts_within,
            back_off_min: supervision.back_off_min,
            back_off_max: supervision.back_off_max,
        }
    }
}
