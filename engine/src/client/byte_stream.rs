//! A connection for another protocol than HTTP, such as FastCGI, with the pool and the timeouts of the client.

use super::error::{ClientError, ClientErrorKind, ClientPhase, ConnectionUse, RetrySafety};
use super::table::Lease;
use crate::net::raw::{SendMode, ShutdownMode};
use crate::net::stream::Stream;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A connection to an upstream, for bytes of any protocol. Dropping it closes the connection.
pub struct ByteStream {
    lease: Lease,
    timeout: Duration,
    has_received: bool,
}

impl ByteStream {
    pub(super) const fn new(lease: Lease, timeout: Duration) -> Self {
        Self { lease, timeout, has_received: false }
    }

    /// Returns whether the connection was used before, so that the upstream may be closing it.
    pub fn connection_use(&mut self) -> ConnectionUse {
        self.lease.connection().connection_use
    }

    /// Sets the longest time of a wait in [`ByteStream::poll_receive`] and [`ByteStream::poll_send`] without progress
    /// in either of them.
    pub const fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Ends the current wait, if this task does not wait for the upstream, so that its time does not pass.
    pub fn pause_timeout(&self) {
        self.lease.end_wait();
    }

    /// Receives available bytes and appends them to `into`. Returns how many, 0 at the end of the stream.
    ///
    /// # Errors
    /// If the connection fails, or a timeout passes.
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, ClientError>> {
        let connection = self.lease.connection();
        let received = connection.poll_receive(cx);
        let phase = if self.has_received { ClientPhase::ReadContent } else { ClientPhase::AwaitHead };
        let received = ready!(self.progress(received, phase, cx))?;
        if received > 0 {
            self.has_received = true;
            let input = &mut self.lease.connection().input;
            into.extend_from_slice(input.bytes());
            input.consume(received);
        }
        Poll::Ready(Ok(received))
    }

    /// Sends as much as is accepted now of the first part, then of the second. Returns how much, at least one byte.
    ///
    /// # Errors
    /// If the connection fails, or a timeout passes.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, parts: [&[u8]; 2]) -> Poll<Result<usize, ClientError>> {
        let link = &self.lease.connection().link;
        let sent = loop {
            match link.send(parts, SendMode::Flush) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => match link.poll_writable(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                    Poll::Pending => break Poll::Pending,
                },
                sent => break Poll::Ready(sent),
            }
        };
        self.progress(sent, ClientPhase::SendRequest, cx)
    }

    /// Ends the sending direction.
    pub fn shutdown_write(&mut self) {
        self.lease.connection().link.shutdown(ShutdownMode::Write);
    }

    /// Returns the connection to the pool of its destination. Call it only between two messages, if the upstream keeps
    /// the connection open.
    pub fn release(self) {
        self.lease.release(None);
    }

    /// Counts the time of a wait, and adds what an error means to it.
    fn progress(
        &self,
        polled: Poll<io::Result<usize>>,
        phase: ClientPhase,
        cx: &Context<'_>,
    ) -> Poll<Result<usize, ClientError>> {
        let retry = if self.has_received { RetrySafety::Never } else { RetrySafety::NoResponse };
        let kind = match polled {
            Poll::Ready(Ok(count)) => {
                self.lease.end_wait();
                return Poll::Ready(Ok(count));
            }
            Poll::Ready(Err(error)) => ClientErrorKind::of_io(&error),
            Poll::Pending if self.lease.wait(self.timeout, cx) => ClientErrorKind::TimedOut,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(Err(ClientError::new(phase, kind, retry)))
    }
}

impl std::fmt::Debug for ByteStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByteStream")
    }
}
