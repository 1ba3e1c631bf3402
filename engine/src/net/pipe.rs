//! Pipes to and from another process.

use crate::net::sys;
use rustix::buffer::spare_capacity;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, retry_on_intr};
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

/// Makes this end of a pipe return instead of waiting. The other end is not affected.
fn nonblocking(end: OwnedFd) -> io::Result<OwnedFd> {
    fcntl_setfl(&end, fcntl_getfl(&end)? | OFlags::NONBLOCK)?;
    Ok(end)
}
