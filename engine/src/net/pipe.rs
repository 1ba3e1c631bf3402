//! Pipes to and from another process, and sockets for messages between them.

use crate::net::sys;
use rustix::buffer::spare_capacity;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// The reading end of a pipe.
pub(crate) struct PipeReader(AsyncFd<OwnedFd>);

/// The writing end of a pipe.
pub(crate) struct PipeWriter(AsyncFd<OwnedFd>);

impl PipeReader {
    /// Creates a pipe. Returns its reading end, and the writing end for another process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(sys::register_readable(nonblocking(reader)?)?), writer))
    }

    /// Reads available bytes into the spare capacity of `into`, which is not empty. Returns 0 at the end of the stream.
    pub(crate) fn poll_read(&self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        debug_assert!(into.capacity() > into.len());
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            match retry_on_intr(|| rustix::io::read(self.0.get_ref(), spare_capacity(into))) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                read => return Poll::Ready(Ok(read?)),
            }
        }
    }
}

impl PipeWriter {
    /// Creates a pipe. Returns its writing end, and the reading end for another process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(sys::register(nonblocking(writer)?)?), reader))
    }

    /// Writes as much as the pipe accepts now.
    ///
    /// # Errors
    /// `BrokenPipe` if no process has the reading end. The signal about that is ignored, as by every Rust program.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            match retry_on_intr(|| rustix::io::write(self.0.get_ref(), bytes)) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                written => return Poll::Ready(Ok(written?)),
            }
        }
    }
}

/// One end of a socket that carries messages.
pub(crate) struct MessageSocket(AsyncFd<OwnedFd>);

impl MessageSocket {
    /// Creates a socket. Returns its end, and the one for another process.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(sys::register_readable(own)?), other))
    }

    /// Sends a message. If the other end is closed or takes no more, nothing is sent.
    pub(crate) fn send(&self, message: &[u8]) {
        let _ = send(self.0.get_ref(), message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Receives a message that has arrived. Returns its length, and 0 if the other end is closed.
    ///
    /// # Errors
    /// `WouldBlock` if none has arrived.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match retry_on_intr(|| recv(self.0.get_ref(), &mut *into, RecvFlags::DONTWAIT)) {
                Ok((count, _)) => return Ok(count),
                // The other end was closed before it had received all messages. The ones that it has sent follow.
                Err(Errno::CONNRESET) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives the next message. Returns its length, and 0 if the other end is closed.
    pub(crate) fn poll_receive(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            match self.receive(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                received => return Poll::Ready(received),
            }
        }
    }
}

/// Makes this end of a pipe return instead of waiting. The other end is not affected.
fn nonblocking(end: OwnedFd) -> io::Result<OwnedFd> {
    fcntl_setfl(&end, fcntl_getfl(&end)? | OFlags::NONBLOCK)?;
    Ok(end)
}
