//! Connections that have been idle for a while, and have no task, no buffers and no place in the
//! runtime's epoll set: what is left of each is what it takes to go on.
//!
//! Their sockets are in an epoll set of the worker's own, which is in the runtime's. A ring needs no
//! such set, since it tells of each socket by a number.

use crate::net::notes::{Notes, Place};
use crate::net::sys;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;

/// Sockets that something came for, looked at in one turn.
const EVENTS_PER_TURN: usize = 64;

/// The sockets of parked connections.
pub(crate) struct Parking {
    set: AsyncFd<OwnedFd>,
}

impl Parking {
    /// An empty one.
    ///
    /// # Errors
    /// When descriptors or memory run out.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { set: sys::watch_readable(epoll::create(CreateFlags::CLOEXEC)?)? })
    }

    /// Waits for the client, for the connection of this place. Whatever is there already counts.
    ///
    /// # Errors
    /// When memory runs out, or the system's bound for such waits is reached.
    pub(crate) fn enter(&self, socket: impl AsFd, place: Place) -> io::Result<()> {
        let data = EventData::new_u64(place.into());
        Ok(epoll::add(self.set.get_ref(), socket, data, EventFlags::IN | EventFlags::RDHUP)?)
    }

    /// Waits for it no longer.
    pub(crate) fn leave(&self, socket: impl AsFd) {
        let left = epoll::delete(self.set.get_ref(), socket);
        debug_assert!(left.is_ok(), "what has entered leaves once");
    }

    /// Has those go on whom something came for.
    pub(crate) async fn drive(&self, notes: &Notes) {
        let mut room = [MaybeUninit::<Event>::uninit(); EVENTS_PER_TURN];
        loop {
            // What `readable` is made of: where accepting has that to itself, it costs 150 instructions less.
            let Ok(mut ready) = poll_fn(|cx| self.set.poll_read_ready(cx)).await else { return };
            let Ok((came, _)) = epoll::wait(self.set.get_ref(), &mut room, Some(&NOW)) else { continue };
            let count = came.len();
            for event in came {
                notes.resume(event.data.u64() as Place);
            }
            if count < EVENTS_PER_TURN {
                // What comes from now on raises an edge.
                ready.clear_ready();
            } else {
                yield_now().await;
            }
        }
    }
}

/// No waiting.
const NOW: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

#[cfg(test)]
mod tests;
