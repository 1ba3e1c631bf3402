//! A connected socket with either I/O back end.
//!
//! One enum instead of a type parameter: otherwise the connection code is compiled twice and is no longer inlined
//! into one function. That costs more than a match per call.

use crate::buffer::Buffer;
use crate::net::connection_table::ConnectionId;
use crate::net::epoll::EpollSocket;
use crate::net::raw::{FilePart, SendMode, ShutdownMode};
use crate::net::stream::{Detach, Stream};
use crate::net::uring::UringSocket;
use crate::net::worker::Worker;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A connected socket and its I/O back end.
pub(crate) enum Socket {
    Epoll(EpollSocket),
    Uring(UringSocket),
}

impl Socket {
    /// Wraps the socket of a new connection for the worker's I/O back end.
    pub(crate) fn new(fd: OwnedFd, worker: &Worker) -> Self {
        match worker.ring() {
            Some(ring) => Self::Uring(UringSocket::new(ring.clone(), fd)),
            None => Self::Epoll(EpollSocket::new(fd)),
        }
    }
}

/// Calls the method of the variant.
macro_rules! dispatch {
    ($this:ident, $socket:ident => $call:expr) => {
        match $this {
            Socket::Epoll($socket) => $call,
            Socket::Uring($socket) => $call,
        }
    };
}

impl Stream for Socket {
    #[inline]
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        dispatch!(self, socket => socket.poll_receive(cx, into))
    }

    #[inline]
    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        dispatch!(self, socket => socket.send(parts, mode))
    }

    #[inline]
    fn send_file(&self, first: &[u8], part: FilePart<'_>) -> io::Result<usize> {
        dispatch!(self, socket => socket.send_file(first, part))
    }

    fn send_pipe(&self, pipe: &mut SplicePipe) -> io::Result<usize> {
        dispatch!(self, socket => socket.send_pipe(pipe))
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        dispatch!(self, socket => socket.poll_writable(cx))
    }

    #[inline]
    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        dispatch!(self, socket => socket.poll_read_closed(cx))
    }

    fn shutdown(&self, how: ShutdownMode) {
        dispatch!(self, socket => socket.shutdown(how));
    }

    fn unsent_bytes(&self, limit: Option<i32>) -> usize {
        dispatch!(self, socket => socket.unsent_bytes(limit))
    }

    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool {
        dispatch!(self, socket => socket.park(worker, id))
    }

    fn unpark(&mut self, worker: &Worker) {
        dispatch!(self, socket => socket.unpark(worker));
    }
}

impl Detach for Socket {
    type Detached = EpollSocket;

    fn detach(self) -> io::Result<(EpollSocket, Bytes)> {
        dispatch!(self, socket => socket.detach())
    }
}
