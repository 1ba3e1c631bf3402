//! The interface between connections and what they send and receive through.
//!
//! Received bytes go into a pooled buffer, which is taken only when bytes are available. Callers never lend a buffer
//! across a wait, so sockets by readiness, sockets by completion and encrypted links all fit.
//!
//! A stream may accept output and send it slightly later. A send of nothing succeeds when all accepted output has left.

use crate::buffer::Buffer;
use crate::net::connection_table::ConnectionId;
use crate::net::raw::{FilePart, SendMode, ShutdownMode};
use crate::net::worker::Worker;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A bidirectional byte stream.
pub(crate) trait Stream: 'static {
    /// Receives available bytes and appends them to `into`. Takes a buffer from the pool if `into` is empty.
    /// Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is received and accepted output cannot be sent; [`Stream::poll_writable`] then waits.
    /// Received bytes wake the task as well.
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>>;

    /// Sends as much as possible of the first part, then of the second. Returns how much was accepted.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be accepted now; [`Stream::poll_writable`] then waits.
    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize>;

    /// Sends as much as possible of `first`, then of a part of a file. Returns how much was accepted, 0 at the end of
    /// the file or if it cannot be read.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be accepted now; [`Stream::poll_writable`] then waits.
    fn send_file(&self, first: &[u8], part: FilePart<'_>) -> io::Result<usize>;

    /// Sends as much as possible of the bytes in a pipe, unchanged. Returns how much was accepted.
    ///
    /// # Errors
    /// `WouldBlock` when nothing can be accepted now; [`Stream::poll_writable`] then waits.
    fn send_pipe(&self, pipe: &mut SplicePipe) -> io::Result<usize>;

    /// Waits until more can be sent. Call it after a send that returned `WouldBlock`.
    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Waits until the client shuts down its sending side or the connection fails. Receives nothing. May be waited for
    /// by another task than [`Stream::poll_receive`].
    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Ends one direction or both.
    fn shutdown(&self, how: ShutdownMode);

    /// Returns the number of accepted bytes that the kernel has not sent. Sets their limit, if one is given
    /// (`TCP_NOTSENT_LOWAT`); a Unix socket has none.
    fn unsent_bytes(&self, limit: Option<i32>) -> usize;

    /// Releases what an idle connection does not need. Received bytes resume the connection `id`
    /// ([`ConnectionTable::resume`](crate::net::connection_table::ConnectionTable::resume)). Returns false if the
    /// stream cannot park; then nothing has changed. Clears all wakers.
    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool;

    /// Ends parking.
    fn unpark(&mut self, worker: &Worker);
}

/// A stream that can leave its worker's thread, for another protocol than HTTP.
pub(crate) trait Detach: Stream {
    /// The stream after it was detached.
    type Detached: Stream + Send;

    /// Detaches the stream from its worker's data. Returns it with bytes that were received and not read.
    ///
    /// # Errors
    /// When file descriptors or memory run out.
    fn detach(self) -> io::Result<(Self::Detached, Bytes)>;
}
