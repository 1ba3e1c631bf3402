//! The seam between connections and sockets.
//!
//! What comes in is put into a pooled buffer only when bytes are there; what goes out is
//! owned by whoever sends until it has left. Nothing above borrows a buffer across a
//! wait, so another driver can take the place of readiness and `recv`.

use crate::buffer::Buffer;
use crate::net::disk;
use crate::net::duplex::{self, Rope};
use crate::net::notes::Place;
use crate::net::sys::{self, LazilyWatched};
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

/// Whether more follows what is sent, so that the kernel may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Send at once.
    Nothing,
    /// More follows immediately.
    More,
}

/// Bytes that have yet to leave, from `at` on.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) at: usize,
}

impl Output {
    /// The bytes, to add to them.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        self.buffer.get_or_insert_with(Buffer::take)
    }

    /// The bytes, to send them.
    pub(crate) fn rest(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.at..])
    }

    pub(crate) fn len(&self) -> usize {
        self.rest().len()
    }
}

/// Whether output that the stream was given earlier is still on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It is not.
    Clear,
    /// It is, so that nothing can follow it yet; [`Stream::poll_writable`] waits.
    Busy,
}

/// A two-way stream of bytes.
pub(crate) trait Stream: 'static {
    /// Receives what is there behind what `into` holds, taking a buffer from the pool if
    /// it holds none. Ready with 0 at the end of the stream.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>>;

    /// Sends output while something else is awaited. A stream may keep it and send it a little
    /// later; what then cannot be sent at once makes it [held up](Stream::is_held_up). `Busy`
    /// leaves what has not left, or not been kept, in the output.
    ///
    /// # Errors
    /// When the connection has failed.
    fn hand_over(&self, output: &mut Output) -> io::Result<Leaving> {
        send_all(self, output)
    }

    /// Puts what was handed over and could not be sent before the output again. Everything else
    /// that sends wants the way to be clear.
    fn reclaim(&self, _output: &mut Output) -> Leaving {
        Leaving::Clear
    }

    /// Whether what was handed over could not be sent at once. Whoever waits to receive is woken
    /// when that shows, and has to reclaim it.
    fn is_held_up(&self) -> bool {
        false
    }

    /// Sends the first part and then the second, or as much as can be sent now.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be sent now; then [`Stream::poll_writable`] waits.
    fn send(&self, parts: [&[u8]; 2], then: Then) -> io::Result<usize>;

    /// Sends part of a file, or as much as can be sent now; 0 when the file ends there. The
    /// client may get what is written to the file later.
    ///
    /// # Errors
    /// As [`Stream::send`].
    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize>;

    /// Sends `first` and behind it part of a file as its bytes are now, or as much of both as
    /// can be sent now; 0 when the file ends there or cannot be read. More follows.
    ///
    /// # Errors
    /// As [`Stream::send`].
    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize>;

    /// Waits until more can be sent, after a send that could not send.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads part of a file where waiting for the disk holds nobody up, so that sending it waits for
    /// none. `None` when it cannot be read.
    fn bring_into_memory(&self, file: &File, at: u64, len: u64) -> impl Future<Output = Option<()>> {
        disk::bring_into_memory(file, at, len)
    }

    /// Has the kernel take so many bytes before it can send them, where it has such a bound.
    fn bound_unsent(&self, bytes_max: i32);

    /// How many bytes the kernel has taken and not yet sent.
    fn unsent(&self) -> usize;

    /// Says that nothing more will be sent.
    fn finish(&self);

    /// Waits until the client says that it sends nothing more, or is gone. Receives nothing, and
    /// takes the place of whoever waits to receive.
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Whether [`Stream::poll_ended`] has seen that something came and taken the place of whoever waits
    /// to receive it.
    fn is_unread(&self) -> bool;

    /// Whether it has waited for something already. What came meanwhile can be looked for at no cost.
    fn has_waited(&self) -> bool;

    /// Takes as little as it can from now on, and has the connection of this place resumed when
    /// something comes ([`Notes::resume`](crate::net::notes::Notes::resume)); false where it cannot, and then nothing has changed. Whoever
    /// was waiting to receive waits no longer.
    fn park(&mut self, _worker: &Rc<Worker>, _place: Place) -> bool {
        false
    }

    /// Ends that.
    fn unpark(&mut self, _worker: &Worker) {}

    /// Whether waiting would take less some other way than it does, as things are on its worker
    /// ([`Stream::moved`]).
    fn would_move(&self, _worker: &Worker) -> bool {
        false
    }

    /// The stream as it waits with less. Nobody waits at the moment.
    fn moved(self, _worker: &Worker) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// The connection for another protocol, and what can end it from here. `first` was received
    /// already.
    ///
    /// # Errors
    /// When descriptors or memory run out.
    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)>;
}

/// A connected socket, not blocking.
///
/// It joins the worker's epoll set only when it first has to wait: a connection that is
/// answered at once and closed never does.
pub(crate) struct Socket {
    fd: LazilyWatched,
    /// Something came while only the end was waited for, and its edge is spent.
    is_unread: Cell<bool>,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd: LazilyWatched::new(fd), is_unread: Cell::new(false) }
    }

    /// Its descriptor, out of the epoll set.
    pub(crate) fn into_inner(self) -> OwnedFd {
        self.fd.into_inner()
    }
}

impl Stream for Socket {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        // The request has often come before the connection is accepted, so the first look
        // is made without waiting for the epoll set.
        if self.fd.known_readiness().is_none() || self.is_unread.get() {
            match retry_on_intr(|| receive(&self.fd, into)) {
                Err(Errno::AGAIN) => self.is_unread.set(false),
                done => {
                    let (received, room) = done?;
                    // What did not fit is there still, and will raise no edge.
                    self.is_unread.set(room == Room::Full && received > 0);
                    return Poll::Ready(Ok(received));
                }
            }
        }
        let readiness = self.fd.readiness()?;
        loop {
            let mut guard = ready!(readiness.poll_read_ready(cx))?;
            match receive(&self.fd, into) {
                Ok((received, Room::Left)) if received > 0 => {
                    // Less than was asked for: the socket is empty, and the next bytes will
                    // raise an edge. Clearing now saves the receive that would only say so.
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

    fn send(&self, parts: [&[u8]; 2], then: Then) -> io::Result<usize> {
        send(self.fd.as_fd(), parts, then)
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        send_file(self.fd.as_fd(), file, offset, len)
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        send_copy(self.fd.as_fd(), first, file, offset, len)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Readiness that was noted before the attempt may be stale, so it counts as spent.
        // Room that comes from now on raises an edge, and a stale note costs one more attempt.
        ready!(self.fd.readiness()?.poll_write_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    fn bound_unsent(&self, bytes_max: i32) {
        bound_unsent(self.fd.as_fd(), bytes_max);
    }

    fn unsent(&self) -> usize {
        sys::unsent(self.fd.as_fd())
    }

    fn finish(&self) {
        // A connection that is already gone has nothing to finish.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        // What cannot be watched is not watched; its end shows when it is used.
        let Ok(readiness) = self.fd.readiness() else { return Poll::Pending };
        loop {
            let Ok(mut guard) = ready!(readiness.poll_read_ready(cx)) else { return Poll::Pending };
            if guard.ready().is_read_closed() {
                return Poll::Ready(());
            }
            self.is_unread.set(true);
            guard.clear_ready();
        }
    }

    fn is_unread(&self) -> bool {
        self.is_unread.get()
    }

    fn has_waited(&self) -> bool {
        self.fd.known_readiness().is_some()
    }

    fn park(&mut self, worker: &Rc<Worker>, place: Place) -> bool {
        let Some(parking) = worker.parking() else { return false };
        let is_parked = parking.enter(&self.fd, place).is_ok();
        if is_parked {
            self.fd.forget();
        }
        is_parked
    }

    fn unpark(&mut self, worker: &Worker) {
        worker.parking().inspect(|parking| parking.leave(&self.fd));
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
        duplex::begin(sys::watch(self.into_inner())?, first)
    }
}

/// Sends output as far as it goes at once.
pub(super) fn send_all(stream: &(impl Stream + ?Sized), output: &mut Output) -> io::Result<Leaving> {
    while output.len() > 0 {
        match stream.send([output.rest(), &[]], Then::Nothing) {
            Ok(sent) => output.at += sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Leaving::Busy),
            Err(error) => return Err(error),
        }
    }
    *output = Output::default();
    Ok(Leaving::Clear)
}

/// As [`Stream::send`].
pub(super) fn send(fd: BorrowedFd<'_>, parts: [&[u8]; 2], then: Then) -> io::Result<usize> {
    let flags = match then {
        Then::Nothing => SendFlags::NOSIGNAL,
        Then::More => SendFlags::NOSIGNAL | SendFlags::MORE,
    };
    Ok(retry_on_intr(|| match parts {
        [first, []] | [[], first] => rustix::net::send(fd, first, flags),
        [first, second] => {
            let slices = [IoSlice::new(first), IoSlice::new(second)];
            rustix::net::sendmsg(fd, &slices, &mut SendAncillaryBuffer::default(), flags)
        }
    })?)
}

/// As [`Stream::send_file`].
pub(super) fn send_file(fd: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    Ok(retry_on_intr(|| {
        let mut at = offset;
        rustix::fs::sendfile(fd, file, Some(&mut at), len)
    })?)
}

/// As [`Stream::send_copy`].
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
        return if read == 0 { Ok(0) } else { send(fd, [first, &copy[..read]], Then::More) };
    };
    loop {
        let sent = mapping.send_behind(first, offset, len, fd);
        match sent.as_ref().map_err(io::Error::raw_os_error) {
            Err(Some(libc::EINTR)) => {}
            Err(Some(libc::EFAULT)) => return Ok(0),
            _ => return sent,
        }
    }
}

/// As [`Stream::bound_unsent`].
pub(super) fn bound_unsent(fd: BorrowedFd<'_>, bytes_max: i32) {
    // A Unix socket has none.
    let _ = sys::set_tcp_option(fd, libc::TCP_NOTSENT_LOWAT, bytes_max);
}

/// Whether the buffer had more room than bytes came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Left,
    Full,
}

/// Receives what is there behind what `into` holds.
pub(super) fn receive(fd: impl AsFd, into: &mut Option<Buffer>) -> rustix::io::Result<(usize, Room)> {
    let mut taken = None;
    let buffer = match into {
        Some(buffer) => buffer,
        None => taken.insert(Buffer::take()),
    };
    buffer.make_room();
    let room = buffer.capacity() - buffer.len();
    let (received, _) = rustix::net::recv(fd, rustix::buffer::spare_capacity(buffer), RecvFlags::empty())?;
    if received > 0 && taken.is_some() {
        *into = taken;
    }
    Ok((received, if received < room { Room::Left } else { Room::Full }))
}
