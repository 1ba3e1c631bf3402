//! A connected socket with epoll.

use crate::buffer::Buffer;
use crate::file::OpenFile;
use crate::net::connection_table::ConnectionId;
use crate::net::raw::{self, RecvFill, SendMode};
use crate::net::stream::Stream;
use crate::net::sys::{self, LazyAsyncFd};
use crate::net::upgrade::{self, UpgradeControl};
use crate::net::worker::Worker;
use crate::peer::Duplex;
use bytes::Bytes;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::Shutdown;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// A non-blocking connected socket with epoll.
///
/// It is registered with epoll when it first has to wait. A connection that is served at once and closed is never
/// registered.
pub(crate) struct EpollSocket {
    fd: LazyAsyncFd,
    /// Readable data may remain, and its readiness edge is consumed.
    has_pending_edge: Cell<bool>,
}

impl EpollSocket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: LazyAsyncFd::new(fd), has_pending_edge: Cell::new(false) }
    }

    /// Deregisters the socket and returns its descriptor.
    pub(crate) fn into_inner(self) -> OwnedFd {
        self.fd.into_inner()
    }
}

impl Stream for EpollSocket {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        // The request is often received before the connection is accepted, so the first receive is tried without
        // registration.
        if self.fd.registered().is_none() || self.has_pending_edge.get() {
            match retry_on_intr(|| raw::receive(&self.fd, into)) {
                Err(Errno::AGAIN) => self.has_pending_edge.set(false),
                result => {
                    let (received, fill) = result?;
                    // Bytes that did not fit remain and raise no new edge.
                    self.has_pending_edge.set(fill == RecvFill::Full && received > 0);
                    return Poll::Ready(Ok(received));
                }
            }
        }
        let readiness = self.fd.readiness()?;
        loop {
            let mut guard = ready!(readiness.poll_read_ready(cx))?;
            match raw::receive(&self.fd, into) {
                Ok((received, RecvFill::Partial)) if received > 0 => {
                    // The socket is empty, and the next bytes raise an edge. Clearing the readiness now saves a
                    // receive that fails with `EAGAIN`.
                    guard.clear_ready();
                    return Poll::Ready(Ok(received));
                }
                Ok((received, _)) => return Poll::Ready(Ok(received)),
                Err(Errno::AGAIN) => guard.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        raw::send(self.fd.as_fd(), parts, mode)
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        raw::send_file(self.fd.as_fd(), file, offset, len)
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        raw::send_copy(self.fd.as_fd(), first, file, offset, len)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Readiness recorded before the send may be stale, so it is cleared. New space raises an edge. Stale
        // readiness costs one more attempt.
        ready!(self.fd.readiness()?.poll_write_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    fn set_notsent_lowat(&self, bytes_max: i32) {
        raw::set_notsent_lowat(self.fd.as_fd(), bytes_max);
    }

    fn notsent_bytes(&self) -> usize {
        sys::notsent_bytes(self.fd.as_fd())
    }

    fn shutdown_write(&self) {
        // Fails only if the connection is already closed.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    fn reset_on_close(&self) {
        raw::reset_on_close(self.fd.as_fd());
    }

    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        // If registration fails, the close is noticed at the next use.
        let Ok(readiness) = self.fd.readiness() else { return Poll::Pending };
        loop {
            let Ok(mut guard) = ready!(readiness.poll_read_ready(cx)) else { return Poll::Pending };
            if guard.ready().is_read_closed() {
                return Poll::Ready(());
            }
            self.has_pending_edge.set(true);
            guard.clear_ready();
        }
    }

    fn has_pending_edge(&self) -> bool {
        self.has_pending_edge.get()
    }

    fn is_registered(&self) -> bool {
        self.fd.registered().is_some()
    }

    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool {
        let Some(idle_epoll) = worker.idle_epoll() else { return false };
        let is_parked = idle_epoll.register(&self.fd, id).is_ok();
        if is_parked {
            self.fd.deregister();
        }
        is_parked
    }

    fn unpark(&mut self, worker: &Worker) {
        worker.idle_epoll().inspect(|idle_epoll| idle_epoll.deregister(&self.fd));
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl)> {
        upgrade::split(sys::register(self.into_inner())?, first)
    }
}
