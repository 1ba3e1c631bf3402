//! What a process owes its system: how it begins, whose orders it takes, what it may touch.
//!
//! ```text
//! begin ─► supervise: owns the sockets ──link──► child: the same program once more ─► post
//!   │         restarts, upgrade, notify            sockets, account, sandbox, control, signals
//!   └─────► post: alone, with sockets of its own
//! ```

mod account;
mod begin;
mod binary;
mod child;
mod claimed;
mod control;
mod enclosure;
mod ending;
mod identity;
mod letters;
mod link;
mod notify;
mod place;
mod post;
mod restarts;
mod sandbox;
mod sockets;
mod supervise;
mod together;
mod upgrade;

#[cfg(test)]
mod tests;

pub(crate) use begin::{Begun, CannotBegin, CannotListen, begin, say_last};
pub(crate) use control::{Answer, Form, Order, ask};
pub(crate) use enclosure::Enclosure;
pub(crate) use identity::Identity;
pub(crate) use letters::connect;
pub(crate) use place::Place;
pub(crate) use post::{Orders, Pace, Post};
pub(crate) use sandbox::{Confinement, Coverage, Sandbox};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use selvedge::Handle;
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::{io, thread};

/// Takes as many descriptors as the system allows without asking.
pub(crate) fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Refused, the limit stays where it was, and the connection limit follows it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// TERM and QUIT stop gracefully; INT, or a second TERM, stops at once; USR1 calls `reopen`.
pub(crate) fn obey_signals(handle: Handle, reopen: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGQUIT, SIGINT, SIGUSR1])?;
    thread::Builder::new().name("selvedge-signal".to_owned()).spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => reopen(),
                SIGINT => handle.stop_now(),
                _ if stopping => handle.stop_now(),
                _ => {
                    handle.stop();
                    stopping = true;
                }
            }
        }
    })?;
    Ok(())
}
