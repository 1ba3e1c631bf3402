//! The interface between connections and sockets.
//!
//! Received bytes go into a pooled buffer, which is taken only when bytes are available. The sender owns output
//! until it is sent. Callers never lend a buffer across a wait, so readiness and completion back ends both fit.

use crate::buffer::Buffer;
use crate::net::connection_table::ConnectionId;
use crate::net::prefetch;
use crate::net::sys::{self, LazyAsyncFd};
use crate::net::upgrade::{self, UpgradeControl};
use crate::net::worker::Worker;
use crate::service::{Duplex, OpenFile};
use bytes::Bytes;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Whether the kernel may delay a send because more follows (`MSG_MORE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// Send at once.
    Flush,
    /// More follows immediately.
    MoreFollows,
}

/// Bytes to send, from index `at`.
#[derive(Default)]
pub(crate) struct SendBuffer {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) at: usize,
}

impl SendBuffer {
    /// Returns the buffer to append to.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.buffer.get_or_insert_with(Buffer::take)
    }

    /// Returns the bytes that are not sent.
    pub(crate) fn rest(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.at..])
    }

    pub(crate) fn len(&self) -> usize {
        self.rest().len()
    }
}

/// Whether earlier output is still in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// No output is in flight.
    Idle,
    /// Output is in flight and nothing can follow it yet. [`Stream::poll_writable`] waits for its end.
    InFlight,
}

/// A bidirectional byte stream.
pub(crate) trait Stream: 'static {
    /// Receives available bytes and appends them to `into`. Takes a buffer from the pool if `into` is empty.
    /// Returns 0 at the end of the stream.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>>;

    /// Sends output while the connection waits for something else. A stream may take the output and send it
    /// slightly later; if it then cannot send all, [`Stream::has_unsent`] becomes true. `InFlight` leaves output
    /// that was neither sent nor taken in `output`.
    ///
    /// # Errors
    /// When the connection has failed.
    fn send_deferred(&self, output: &mut SendBuffer) -> io::Result<SendState> {
        send_all(self, output)
    }

    /// Puts deferred output that could not be sent back in front of `output`. Other sends require `Idle` from this
    /// method.
    fn take_unsent(&self, _output: &mut SendBuffer) -> SendState {
        SendState::Idle
    }

    /// Returns whether deferred output could not be sent. When that happens, the task that waits to receive is
    /// woken and calls [`Stream::take_unsent`].
    fn has_unsent(&self) -> bool {
        false
    }

    /// Sends as much as possible of the first part, then of the second.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be sent now; [`Stream::poll_writable`] then waits.
    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize>;

    /// Sends as much as possible of a part of a file; returns 0 at the end of the file. The kernel reads the page
    /// cache, so the client may receive bytes that are written to the file later.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be sent now; [`Stream::poll_writable`] then waits.
    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize>;

    /// Sends `first` and then a copy of a part of a file, as much as possible. Returns 0 if the file ends there or
    /// cannot be read. More output follows.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be sent now; [`Stream::poll_writable`] then waits.
    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize>;

    /// Waits until more can be sent. Call it after a send that returned `WouldBlock`.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads part of a file into the page cache without blocking the worker, so that sending it does not wait for
    /// the disk. Returns `None` if it cannot be read.
    fn prefetch(&self, file: &File, at: u64, len: u64) -> impl Future<Output = Option<()>> {
        prefetch::prefetch_file(file, at, len)
    }

    /// Limits the unsent bytes that the kernel accepts (`TCP_NOTSENT_LOWAT`). Ignored for Unix sockets.
    fn set_notsent_lowat(&self, bytes_max: i32);

    /// Returns the number of bytes that the kernel has accepted and not yet sent.
    fn notsent_bytes(&self) -> usize;

    /// Shuts down the sending side.
    fn shutdown_write(&self);

    /// Makes the close a reset, which discards unsent bytes. Otherwise the kernel keeps the bytes that a client does
    /// not read for minutes after the close.
    fn reset_on_close(&self);

    /// Waits until the client shuts down its sending side or the connection fails. Receives nothing. Replaces the
    /// waker of [`Stream::poll_receive`].
    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Returns whether [`Stream::poll_read_closed`] consumed a readiness edge for received bytes. The caller must
    /// then receive.
    fn has_pending_edge(&self) -> bool;

    /// Returns whether the socket has been waited for. If so, looking for further bytes costs no system call.
    fn is_registered(&self) -> bool;

    /// Releases what an idle connection does not need. Received bytes resume the connection `id`
    /// ([`ConnectionTable::resume`](crate::net::connection_table::ConnectionTable::resume)). Returns false if the
    /// stream cannot park; then nothing has changed. Clears the waker of [`Stream::poll_receive`].
    fn park(&mut self, _worker: &Rc<Worker>, _id: ConnectionId) -> bool {
        false
    }

    /// Ends parking.
    fn unpark(&mut self, _worker: &Worker) {}

    /// Returns whether waiting costs less with the worker's other back end ([`Stream::migrate`]).
    fn should_migrate(&self, _worker: &Worker) -> bool {
        false
    }

    /// Moves the stream to the worker's other back end. No task may wait for the stream.
    fn migrate(self, _worker: &Worker) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Splits the connection for another protocol. `first` was already received.
    ///
    /// # Errors
    /// When file descriptors or memory run out.
    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl)>;
}

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
            match retry_on_intr(|| receive(&self.fd, into)) {
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
            match receive(&self.fd, into) {
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
        send(self.fd.as_fd(), parts, mode)
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        send_file(self.fd.as_fd(), file, offset, len)
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        send_copy(self.fd.as_fd(), first, file, offset, len)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Readiness recorded before the send may be stale, so it is cleared. New space raises an edge. Stale
        // readiness costs one more attempt.
        ready!(self.fd.readiness()?.poll_write_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    fn set_notsent_lowat(&self, bytes_max: i32) {
        set_notsent_lowat(self.fd.as_fd(), bytes_max);
    }

    fn notsent_bytes(&self) -> usize {
        sys::notsent_bytes(self.fd.as_fd())
    }

    fn shutdown_write(&self) {
        // Fails only if the connection is already closed.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    fn reset_on_close(&self) {
        reset_on_close(self.fd.as_fd());
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

/// Sends as much output as possible.
pub(super) fn send_all(stream: &(impl Stream + ?Sized), output: &mut SendBuffer) -> io::Result<SendState> {
    while output.len() > 0 {
        match stream.send([output.rest(), &[]], SendMode::Flush) {
            Ok(sent) => output.at += sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(SendState::InFlight),
            Err(error) => return Err(error),
        }
    }
    *output = SendBuffer::default();
    Ok(SendState::Idle)
}

/// Sends two parts on a descriptor; see [`Stream::send`].
pub(super) fn send(fd: BorrowedFd<'_>, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
    let flags = match mode {
        SendMode::Flush => SendFlags::NOSIGNAL,
        SendMode::MoreFollows => SendFlags::NOSIGNAL | SendFlags::MORE,
    };
    Ok(retry_on_intr(|| match parts {
        [first, []] | [[], first] => rustix::net::send(fd, first, flags),
        [first, second] => {
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            rustix::net::sendmsg(fd, &slices, &mut SendAncillaryBuffer::default(), flags)
        }
    })?)
}

/// Sends part of a file on a descriptor; see [`Stream::send_file`].
pub(super) fn send_file(fd: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        let mut at = offset;
        rustix::fs::sendfile(fd, file, Some(&mut at), len)
    })?)
}

/// Sends a copy of part of a file on a descriptor; see [`Stream::send_copy`].
pub(super) fn send_copy(
    fd: BorrowedFd<'_>,
    first: &[u8],
    file: &OpenFile,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let Some(mapping) = file.mapping() else {
        let mut copy = Buffer::take();
        let room = copy.capacity();
        copy.resize(len.min(room), 0);
        let read = file.read_at(&mut copy[..], offset)?;
        return if read == 0 { Ok(0) } else { send(fd, [first, &copy[..read]], SendMode::MoreFollows) };
    };
    loop {
        let sent = mapping.send_with_prefix(first, offset, len, fd);
        match sent.as_ref().map_err(io::Error::raw_os_error) {
            Err(Some(libc::EINTR)) => {}
            Err(Some(libc::EFAULT)) => return Ok(0),
            _ => return sent,
        }
    }
}

/// Limits unsent bytes on a descriptor; see [`Stream::set_notsent_lowat`].
pub(super) fn set_notsent_lowat(fd: BorrowedFd<'_>, bytes_max: i32) {
    // Unix sockets do not have this option.
    let _ = sys::set_tcp_option(fd, libc::TCP_NOTSENT_LOWAT, bytes_max);
}

/// Makes the close of a descriptor a reset; see [`Stream::reset_on_close`].
pub(super) fn reset_on_close(fd: BorrowedFd<'_>) {
    // Fails only if the connection is already closed.
    let _ = rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Whether a receive filled the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RecvFill {
    Partial,
    Full,
}

/// Receives available bytes and appends them to `into`.
pub(super) fn receive(fd: impl AsFd, into: &mut Option<Buffer>) -> rustix::io::Result<(usize, RecvFill)> {
    let mut pooled = None;
    let buffer = match into {
        Some(buffer) => buffer,
        None => pooled.insert(Buffer::take()),
    };
    buffer.reserve();
    let room = buffer.capacity() - buffer.len();
    let (received, _) = rustix::net::recv(fd, rustix::buffer::spare_capacity(buffer), RecvFlags::empty())?;
    if received > 0 && pooled.is_some() {
        *into = pooled;
    }
    Ok((received, if received < room { RecvFill::Partial } else { RecvFill::Full }))
}
