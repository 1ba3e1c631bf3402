//! The interface between connections and sockets.
//!
//! Received bytes go into a pooled buffer, which is taken only when bytes are available. The sender owns output
//! until it is sent. Callers never lend a buffer across a wait, so readiness and completion back ends both fit.

use crate::buffer::Buffer;
use crate::file::OpenFile;
use crate::net::connection_table::ConnectionId;
use crate::net::prefetch;
use crate::net::raw::{SendBuffer, SendMode};
use crate::net::upgrade::UpgradeControl;
use crate::net::worker::Worker;
use crate::peer::Duplex;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll};

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

    /// Splits the connection for another protocol. `first` was already received.
    ///
    /// # Errors
    /// When file descriptors or memory run out.
    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, UpgradeControl)>;
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
