//! The seam between connections and sockets.
//!
//! What comes in is put into a pooled buffer only when bytes are there; what goes out is
//! owned by whoever sends until it has left. Nothing above borrows a buffer across a
//! wait, so another driver can take the place of readiness and `recv`.

use crate::buffer::Buffer;
use crate::net::duplex::{self, Rope};
use crate::net::sys::{self, LazilyWatched};
use crate::service::{Duplex, OpenFile};
use bytes::Bytes;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll, ready};

/// Whether more follows what is sent, so that the kernel may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Send at once.
    Nothing,
    /// More follows immediately.
    More,
}

/// A two-way stream of bytes.
pub(crate) trait Stream: 'static {
    /// Receives what is there behind what `into` holds, taking a buffer from the pool if
    /// it holds none. Ready with 0 at the end of the stream.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>>;

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

    /// Has the kernel take so many bytes before it can send them, where it has such a bound.
    fn bound_unsent(&self, bytes_max: i32);

    /// Says that nothing more will be sent.
    fn finish(&self);

    /// Waits until the client says that it sends nothing more, or is gone. Receives nothing, and
    /// takes the place of whoever waits to receive.
    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()>;

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
        let flags = match then {
            Then::Nothing => SendFlags::NOSIGNAL,
            Then::More => SendFlags::NOSIGNAL | SendFlags::MORE,
        };
        Ok(retry_on_intr(|| match parts {
            [first, []] | [[], first] => rustix::net::send(&self.fd, first, flags),
            [first, second] => {
                let slices = [IoSlice::new(first), IoSlice::new(second)];
                rustix::net::sendmsg(&self.fd, &slices, &mut SendAncillaryBuffer::default(), flags)
            }
        })?)
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        Ok(retry_on_intr(|| {
            let mut at = offset;
            rustix::fs::sendfile(&self.fd, file, Some(&mut at), len)
        })?)
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        let Some(mapping) = file.mapping() else {
            let mut copy = Buffer::take();
            let room = copy.capacity();
            copy.resize(len.min(room), 0);
            let read = file.read_at(&mut copy[..], offset)?;
            return if read == 0 { Ok(0) } else { self.send([first, &copy[..read]], Then::More) };
        };
        loop {
            let sent = mapping.send_behind(first, offset, len, self.fd.as_fd());
            match sent.as_ref().map_err(io::Error::raw_os_error) {
                Err(Some(libc::EINTR)) => {}
                Err(Some(libc::EFAULT)) => return Ok(0),
                _ => return sent,
            }
        }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Readiness that was noted before the attempt may be stale, so it counts as spent.
        // Room that comes from now on raises an edge, and a stale note costs one more attempt.
        ready!(self.fd.readiness()?.poll_write_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    fn bound_unsent(&self, bytes_max: i32) {
        // A Unix socket has none.
        let _ = sys::set_tcp_option(self.fd.as_fd(), libc::TCP_NOTSENT_LOWAT, bytes_max);
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

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
        duplex::begin(sys::watch(self.fd.into_inner())?, first)
    }
}

/// Whether the buffer had more room than bytes came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Left,
    Full,
}

fn receive(fd: impl AsFd, into: &mut Option<Buffer>) -> rustix::io::Result<(usize, Room)> {
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
