//! A connected socket with epoll.

use crate::buffer::Buffer;
use crate::net::connection_table::ConnectionId;
use crate::net::raw::{self, FilePart, RecvFill, SendMode, ShutdownMode};
use crate::net::stream::{Detach, Stream};
use crate::net::sys::LazyAsyncFd;
use crate::net::worker::Worker;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use rustix::io::{Errno, retry_on_intr};
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

/// A non-blocking connected socket with epoll.
///
/// It is registered with epoll when it first has to wait. A connection that is served at once and closed is never
/// registered.
pub(crate) struct EpollSocket {
    fd: LazyAsyncFd,
    /// Readable data may remain, and its readiness edge is consumed.
    has_pending_edge: Cell<bool>,
    /// Most bytes of the next receive; 0: what the buffer holds.
    next_receive_max: Cell<u16>,
    // The runtime wakes only the task that polled last, so each wakes the other.
    /// The task that waits to receive.
    reader: WakerSlot,
    /// The task that waits for the client's end.
    watcher: WakerSlot,
}

/// The waker of a waiting task, if any.
#[derive(Default)]
struct WakerSlot(Cell<Option<Waker>>);

impl WakerSlot {
    fn set(&self, cx: &Context<'_>) {
        let (waker, replaced) = match self.0.take() {
            Some(waker) if waker.will_wake(cx.waker()) => (waker, None),
            replaced => (cx.waker().clone(), replaced),
        };
        self.0.set(Some(waker));
        // Dropping it may run other code, so it is dropped last.
        drop(replaced);
    }

    fn wake(&self) {
        self.0.take().inspect(Waker::wake_by_ref);
    }
}

impl EpollSocket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd: LazyAsyncFd::new(fd),
            has_pending_edge: Cell::new(false),
            next_receive_max: Cell::new(0),
            reader: WakerSlot::default(),
            watcher: WakerSlot::default(),
        }
    }

    /// Lets the next receive call the system, even if epoll has reported nothing.
    pub(crate) fn expect_readiness(&self) {
        self.has_pending_edge.set(true);
    }

    /// Receives at most `bytes` bytes next, so that those after them can be moved to another socket.
    pub(crate) fn limit_next_receive(&self, bytes: u16) {
        self.next_receive_max.set(bytes);
    }

    /// Moves up to `count` available bytes into an empty pipe. Returns how many, 0 at the end of the stream.
    ///
    /// # Errors
    /// As `splice(2)`; `Unsupported` if the system cannot move them.
    pub(crate) fn poll_splice(
        &self,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        // A pipe may have too few places for all available bytes, so more may always follow.
        let attempt = |fd: BorrowedFd<'_>| Ok((pipe.fill(fd, count)?, RecvFill::Full));
        let polled = self.poll_available(cx, attempt);
        if polled.is_pending() {
            pipe.release();
        }
        self.note_waiting(&polled, cx);
        polled
    }

    /// Returns why an attempt to connect has failed.
    ///
    /// # Errors
    /// The error of the attempt.
    pub(crate) fn take_error(&self) -> io::Result<()> {
        rustix::net::sockopt::socket_error(&self.fd)?.map_err(Into::into)
    }

    /// Attempts to receive, and waits if nothing is available.
    #[inline]
    fn poll_available(
        &self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<(usize, RecvFill)>,
    ) -> Poll<io::Result<usize>> {
        // The request is often received before the connection is accepted, so the first receive is tried without
        // registration.
        if self.fd.registered().is_none() || self.has_pending_edge.get() {
            match retry_on_intr(|| attempt(self.fd.as_fd())) {
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
            match attempt(self.fd.as_fd()) {
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

    /// Keeps the waker of a task that has to wait, and wakes the one that waits for the end.
    fn note_waiting(&self, polled: &Poll<io::Result<usize>>, cx: &Context<'_>) {
        match polled {
            Poll::Pending => self.reader.set(cx),
            Poll::Ready(Ok(1..)) => {}
            // The end of the stream wakes only the reader.
            Poll::Ready(_) => self.watcher.wake(),
        }
    }
}

impl Stream for EpollSocket {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        let polled = self.poll_available(cx, |fd| match self.next_receive_max.get() {
            0 => raw::receive(fd, into),
            max => raw::receive_at_most(fd, into, max.into()),
        });
        if polled.is_ready() {
            self.next_receive_max.set(0);
        }
        self.note_waiting(&polled, cx);
        polled
    }

    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        if let [[], []] = parts {
            return Ok(0);
        }
        raw::send(self.fd.as_fd(), parts, mode)
    }

    fn send_file(&self, first: &[u8], part: FilePart<'_>) -> io::Result<usize> {
        raw::send_file(self.fd.as_fd(), first, part)
    }

    fn send_pipe(&self, pipe: &mut SplicePipe) -> io::Result<usize> {
        pipe.send(self.fd.as_fd())
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Readiness recorded before the send may be stale, so it is cleared. New space raises an edge. Stale
        // readiness costs one more attempt.
        ready!(self.fd.readiness()?.poll_write_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        // If registration fails, the close is noticed at the next use.
        let Ok(readiness) = self.fd.readiness() else { return Poll::Pending };
        loop {
            let Poll::Ready(ready) = readiness.poll_read_ready(cx) else {
                self.watcher.set(cx);
                return Poll::Pending;
            };
            let Ok(mut guard) = ready else { return Poll::Pending };
            if guard.ready().is_read_closed() {
                self.reader.wake();
                return Poll::Ready(());
            }
            self.has_pending_edge.set(true);
            guard.clear_ready();
            self.reader.wake();
        }
    }

    fn shutdown(&self, how: ShutdownMode) {
        raw::shutdown(self.fd.as_fd(), how);
    }

    fn unsent_bytes(&self, limit: Option<i32>) -> usize {
        raw::unsent_bytes(self.fd.as_fd(), limit)
    }

    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool {
        let Some(idle_epoll) = worker.idle_epoll() else { return false };
        let is_parked = idle_epoll.register(&self.fd, id).is_ok();
        if is_parked {
            self.fd.deregister();
            drop((self.reader.0.take(), self.watcher.0.take()));
        }
        is_parked
    }

    fn unpark(&mut self, worker: &Worker) {
        worker.idle_epoll().inspect(|idle_epoll| idle_epoll.deregister(&self.fd));
    }
}

impl Detach for EpollSocket {
    type Detached = Self;

    fn detach(self) -> io::Result<(Self, Bytes)> {
        // On another thread, there may be no runtime to register it with.
        self.fd.readiness()?;
        Ok((self, Bytes::new()))
    }
}
