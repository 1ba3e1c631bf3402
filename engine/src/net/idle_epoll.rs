//! Waits for the clients of parked connections. A parked connection has no task, no buffers and no registration in
//! the runtime's epoll instance.
//!
//! Their sockets are in a second epoll instance per worker, which itself is registered with the runtime.
//! Connections with io_uring do not need it: a completion names the connection.

use crate::net::connection_table::{ConnectionId, ConnectionTable};
use crate::net::sys;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::task::yield_now;

/// Readiness events taken with one `epoll_wait` call.
const EVENTS_PER_WAIT: usize = 64;

/// An epoll instance with the sockets of parked connections.
pub(crate) struct IdleEpoll {
    epoll: AsyncFd<OwnedFd>,
}

impl IdleEpoll {
    /// Creates an empty epoll instance.
    ///
    /// # Errors
    /// When file descriptors or memory run out.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: sys::register_readable(epoll::create(CreateFlags::CLOEXEC)?)? })
    }

    /// Registers the socket of a parked connection. Data that has already arrived counts as readiness.
    ///
    /// # Errors
    /// When memory runs out, or the limit of epoll watches (`fs.epoll.max_user_watches`) is reached.
    pub(crate) fn register(&self, socket: impl AsFd, id: ConnectionId) -> io::Result<()> {
        let data = EventData::new_u64(id.into());
        Ok(epoll::add(self.epoll.get_ref(), socket, data, EventFlags::IN | EventFlags::RDHUP)?)
    }

    /// Removes a socket.
    pub(crate) fn deregister(&self, socket: impl AsFd) {
        let deleted = epoll::delete(self.epoll.get_ref(), socket);
        debug_assert!(deleted.is_ok(), "a registered socket is removed once");
    }

    /// Resumes parked connections whose sockets become readable, until the task is aborted.
    pub(crate) async fn run(&self, connections: &ConnectionTable) {
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS_PER_WAIT];
        loop {
            // Like `readable()`, which is only instantiated for accepting: a second use prevents inlining there.
            let Ok(mut ready) = poll_fn(|cx| self.epoll.poll_read_ready(cx)).await else { return };
            let Ok((ready_events, _)) = epoll::wait(self.epoll.get_ref(), &mut events, Some(&NOW)) else { continue };
            let count = ready_events.len();
            for event in ready_events {
                connections.resume(event.data.u64() as ConnectionId);
            }
            if count < EVENTS_PER_WAIT {
                // Later events raise a new edge.
                ready.clear_ready();
            } else {
                yield_now().await;
            }
        }
    }
}

/// A timeout of zero.
const NOW: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };

#[cfg(test)]
mod tests;
