//! Pipes through which the kernel moves bytes from one socket to another, without a copy into this process.
//!
//! Invariant: a pipe is filled only while it is empty, and only an empty pipe returns to the pool of its thread. So bytes
//! of one response never get into another. A pipe that is dropped with bytes in it is closed.

use crate::limits::{SPLICE_PIPE_BYTES, SPLICE_PIPES_MAX};
use rustix::io::{Errno, retry_on_intr};
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

thread_local! {
    static POOL: RefCell<PipePool> = const { RefCell::new(PipePool { empty: Vec::new(), open: 0, support: Support::Yes }) };
}

/// The pipes of a thread.
struct PipePool {
    empty: Vec<PipeEnds>,
    /// Pipes that exist.
    open: usize,
    support: Support,
}

/// Whether the system moves bytes from a socket into a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Support {
    Yes,
    No,
}

/// Both ends of a pipe. It belongs to the thread that counts it.
struct PipeEnds {
    reader: OwnedFd,
    writer: OwnedFd,
    _thread: PhantomData<Rc<()>>,
}

impl PipeEnds {
    /// Takes an empty pipe, or opens one if fewer than [`SPLICE_PIPES_MAX`] exist.
    fn take() -> Option<Self> {
        POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            if pool.support == Support::No {
                return None;
            }
            pool.empty.pop().or_else(|| {
                if pool.open >= SPLICE_PIPES_MAX {
                    return None;
                }
                // Without descriptors, content is copied.
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
                // The system limits the pages of all pipes of a user. A shorter pipe works, too.
                let _ = fcntl_setpipe_size(&writer, SPLICE_PIPE_BYTES);
                pool.open += 1;
                Some(Self { reader, writer, _thread: PhantomData })
            })
        })
        .ok()
        .flatten()
    }

    /// Returns an empty pipe to the pool.
    fn give_back(self) {
        let _ = POOL.try_with(|pool| pool.borrow_mut().empty.push(self));
    }
}

impl Drop for PipeEnds {
    fn drop(&mut self) {
        // A pool that is being destroyed counts no more.
        let _ = POOL.try_with(|pool| pool.borrow_mut().open -= 1);
    }
}

/// A pipe that holds bytes on the way from one socket to another. The default is empty, and has no descriptors.
///
/// The engine gives it to [`Chunks::poll_splice`](crate::service::Chunks::poll_splice). Only content that the engine's
/// client receives can use it; other content passes it on.
#[derive(Default)]
pub struct SplicePipe {
    ends: Option<PipeEnds>,
    /// Bytes in the pipe.
    len: usize,
}

impl SplicePipe {
    /// Returns the number of bytes in the pipe.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes sure that it has descriptors. Returns false if none are left, or the system moves no bytes: copy them.
    pub(crate) fn open(&mut self) -> bool {
        if self.ends.is_none() {
            self.ends = PipeEnds::take();
        }
        self.ends.is_some()
    }

    /// Moves up to `count` available bytes of a socket into the empty pipe, at most [`SPLICE_PIPE_BYTES`]. Returns how
    /// many, 0 at the end of the stream. Without any, the pipe returns to the pool.
    ///
    /// # Errors
    /// As `splice(2)`: `AGAIN` if no bytes are available.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>, count: usize) -> rustix::io::Result<usize> {
        debug_assert!(self.len == 0, "bytes of two fills would not be told apart");
        if !self.open() {
            return Err(Errno::NOTSUP);
        }
        let Some(ends) = &self.ends else { return Err(Errno::NOTSUP) };
        let count = count.min(SPLICE_PIPE_BYTES);
        let moved = retry_on_intr(|| splice(socket, None, &ends.writer, None, count, SpliceFlags::NONBLOCK));
        match moved {
            Ok(moved @ 1..) => self.len = moved,
            _ => self.release(),
        }
        moved.map_err(|error| match error {
            // The kernel has no such call for this socket, or a filter forbids it.
            Errno::INVAL | Errno::NOSYS | Errno::PERM => {
                let _ = POOL.try_with(|pool| pool.borrow_mut().support = Support::No);
                Errno::NOTSUP
            }
            error => error,
        })
    }

    /// Moves as many bytes as a socket accepts. Returns how many. When it is empty, the pipe returns to the pool.
    ///
    /// # Errors
    /// As `splice(2)`: `WouldBlock` if the socket accepts none now.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let Some(ends) = &self.ends else { return Ok(0) };
        let moved = retry_on_intr(|| splice(&ends.reader, None, socket, None, self.len, SpliceFlags::NONBLOCK))?;
        if moved == 0 && self.len > 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.len -= moved;
        if self.len == 0 {
            self.release();
        }
        Ok(moved)
    }

    /// Returns the descriptors of the empty pipe to the pool.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.len == 0, "a pipe with bytes is not for another response");
        if let Some(ends) = self.ends.take() {
            ends.give_back();
        }
    }

    /// Takes the bytes out of the pipe, for a stream without a descriptor.
    #[cfg(test)]
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count.min(self.len)];
        let Some(ends) = &self.ends else { return Vec::new() };
        let read = rustix::io::read(&ends.reader, &mut bytes).expect("the pipe has these bytes");
        assert_eq!(read, bytes.len());
        self.len -= read;
        if self.len == 0 {
            self.release();
        }
        bytes
    }
}

impl Drop for SplicePipe {
    fn drop(&mut self) {
        // With bytes in it, it is closed instead.
        if self.len == 0 {
            self.release();
        }
    }
}

impl fmt::Debug for SplicePipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SplicePipe({} bytes)", self.len)
    }
}

/// Returns the numbers of pipes of this thread that exist, and that are in the pool.
#[cfg(test)]
pub(crate) fn pipe_counts() -> (usize, usize) {
    POOL.with_borrow(|pool| (pool.open, pool.empty.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// Returns both ends of a connection. The second one does not block.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        other.set_nonblocking(true).unwrap();
        (one, other)
    }

    /// Waits until the whole text has arrived, and fills the pipe with it.
    fn fill(pipe: &mut SplicePipe, from: &TcpStream, text: &[u8]) {
        let mut arrived = vec![0; text.len()];
        while from.peek(&mut arrived).unwrap_or(0) < text.len() {
            std::thread::yield_now();
        }
        assert_eq!(pipe.fill(from.as_fd(), text.len()), Ok(text.len()));
    }

    #[test]
    fn bytes_arrive_and_the_pipe_is_used_again() {
        let ((mut upstream, from), (mut client, to)) = (connection(), connection());
        for text in [&b"first"[..], b"second"] {
            let mut pipe = SplicePipe::default();
            assert_eq!(pipe.fill(from.as_fd(), 100), Err(Errno::AGAIN));
            assert!(pipe.ends.is_none(), "a wait holds no pipe");
            upstream.write_all(text).unwrap();
            fill(&mut pipe, &from, text);
            assert_eq!(pipe.send(to.as_fd()).unwrap(), text.len());
            let mut received = vec![0; text.len()];
            client.read_exact(&mut received).unwrap();
            assert_eq!(received, text);
            assert_eq!(pipe_counts(), (1, 1));
        }
        drop(upstream);
        let mut pipe = SplicePipe::default();
        while pipe.fill(from.as_fd(), 100) == Err(Errno::AGAIN) {
            std::thread::yield_now();
        }
        assert_eq!(pipe.fill(from.as_fd(), 100), Ok(0), "the end");
        assert_eq!(pipe_counts(), (1, 1));
    }

    #[test]
    fn a_pipe_with_bytes_is_closed_and_not_used_again() {
        let ((mut upstream, from), (mut client, to)) = (connection(), connection());
        upstream.write_all(b"secret").unwrap();
        let mut aborted = SplicePipe::default();
        fill(&mut aborted, &from, b"secret");
        drop(aborted);
        assert_eq!(pipe_counts(), (0, 0));
        upstream.write_all(b"public").unwrap();
        let mut pipe = SplicePipe::default();
        fill(&mut pipe, &from, b"public");
        pipe.send(to.as_fd()).unwrap();
        let mut received = [0; 6];
        client.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"public");
    }

    #[test]
    fn the_number_of_pipes_is_bounded() {
        let mut pipes: Vec<_> = (0..SPLICE_PIPES_MAX).map(|_| SplicePipe::default()).collect();
        assert!(pipes.iter_mut().all(SplicePipe::open));
        let mut another = SplicePipe::default();
        assert!(!another.open());
        pipes.pop();
        assert!(another.open());
        drop((pipes, another));
        assert_eq!(pipe_counts(), (SPLICE_PIPES_MAX, SPLICE_PIPES_MAX));
    }

    #[test]
    fn without_support_of_the_system_no_pipe_is_used() {
        let mut pipe = SplicePipe::default();
        let not_a_socket = rustix::event::eventfd(1, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        assert_eq!(pipe.fill(not_a_socket.as_fd(), 8), Err(Errno::NOTSUP));
        assert!(!pipe.open() && !SplicePipe::default().open());
    }
}
