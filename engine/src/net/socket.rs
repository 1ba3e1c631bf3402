//! A connected socket with either I/O back end.
//!
//! One enum instead of a type parameter: otherwise the connection code is compiled twice and is no longer inlined
//! into one function. That costs more than a match per call.

use crate::buffer::Buffer;
use crate::file::OpenFile;
use crate::net::connection_table::ConnectionId;
use crate::net::epoll::EpollSocket;
use crate::net::raw::{SendBuffer, SendMode};
use crate::net::stream::{SendState, Stream};
use crate::net::upgrade::UpgradeControl;
use crate::net::uring::UringSocket;
use crate::net::worker::Worker;
use crate::peer::Duplex;
use bytes::Bytes;
use std::fs::File;
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
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        dispatch!(self, socket => socket.poll_receive(cx, into))
    }

    fn send_deferred(&self, output: &mut SendBuffer) -> io::Result<SendState> {
        dispatch!(self, socket => socket.send_deferred(output))
    }

    fn take_unsent(&self, output: &mut SendBuffer) -> SendState {
        dispatch!(self, socket => socket.take_unsent(output))
    }

    fn has_unsent(&self) -> bool {
        dispatch!(self, socket => socket.has_unsent())
    }

    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        dispatch!(self, socket => socket.send(parts, mode))
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        dispatch!(self, socket => socket.send_file(file, offset, len))
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        dispatch!(self, socket => socket.send_copy(first, file, offset, len))
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        dispatch!(self, socket => socket.poll_writable(cx))
    }

    async fn prefetch(&self, file: &File, at: u64, len: u64) -> Option<()> {
        dispatch!(self, socket => socket.prefetch(file, at, len).await)
    }

    fn set_notsent_lowat(&self, bytes_max: i32) {
        dispatch!(self, socket => socket.set_notsent_lowat(bytes_max));
    }

    fn notsent_bytes(&self) -> usize {
        dispatch!(self, socket => socket.notsent_bytes())
    }

    fn shutdown_write(&self) {
        dispatch!(self, socket => socket.shutdown_write());
    }

    fn reset_on_close(&self) {
        dispatch!(self, socket => socket.reset_on_close());
    }

    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        dispatch!(self, socket => socket.poll_read_closed(cx))
    }

    fn has_pending_edge(&self) -> bool {
        dispatch!(self, socket => socket.has_pending_edge())
    }

    fn is_registered(&self) -> bool {
        dispatch!(self, socket => socket.is_registered())
    }

    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool {
        dispatch!(self, socket => socket.park(worker, id))
    }

    fn unpark(&mut self, worker: &Worker) {
        dispatch!(self, socket => socket.unpark(worker));
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl)> {
        dispatch!(self, socket => socket.into_duplex(first))
    }
}
