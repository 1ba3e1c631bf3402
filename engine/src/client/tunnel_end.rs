//! The upstream's end of a tunnel: a connection after an Upgrade of HTTP/1.1, or a stream of HTTP/2.

use super::http2::Http2TunnelEnd;
use super::table::Lease;
use crate::net::raw::{SendMode, ShutdownMode};
use crate::net::stream::Stream;
use bytes::Bytes;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

/// The upstream's end of a tunnel. Dropping it closes the connection, or resets the stream.
pub(super) enum TunnelEnd {
    Connection(Lease),
    Stream(Http2TunnelEnd),
}

impl TunnelEnd {
    /// Returns what counts the time of waits.
    pub(super) fn timer(&self) -> &Lease {
        match self {
            Self::Connection(lease) => lease,
            Self::Stream(stream) => stream.timer(),
        }
    }

    /// Whether the upstream has ended both directions, so that it takes no more bytes.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Connection(_) => false,
            Self::Stream(stream) => stream.is_closed(),
        }
    }

    /// Sends what is accepted now, without a copy. Returns how much.
    pub(super) fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Connection(lease) => match lease.connection().link.send([bytes, &[]], SendMode::Flush) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                sent => sent,
            },
            Self::Stream(stream) => stream.try_send(bytes),
        }
    }

    /// Sends bytes, and leaves in `bytes` what was not accepted. Ready when all of them were.
    pub(super) fn poll_send(&mut self, bytes: &mut Bytes, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Connection(lease) => {
                let connection = lease.connection();
                connection.piece = std::mem::take(bytes);
                let flushed = connection.poll_flush(cx);
                *bytes = std::mem::take(&mut connection.piece);
                flushed
            }
            Self::Stream(stream) => stream.poll_send(bytes, cx),
        }
    }

    /// Receives the next bytes. They are empty at the end of the upstream's direction.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        match self {
            Self::Connection(lease) => {
                let connection = lease.connection();
                // Bytes after the head of the response are at hand.
                if connection.input.bytes().is_empty() {
                    std::task::ready!(connection.poll_receive(cx))?;
                }
                Poll::Ready(Ok(connection.input.take_all()))
            }
            Self::Stream(stream) => stream.poll_receive(cx),
        }
    }

    /// Ends the direction to the upstream.
    pub(super) fn shutdown_write(&mut self) {
        match self {
            Self::Connection(lease) => lease.connection().link.shutdown(ShutdownMode::Write),
            Self::Stream(stream) => stream.shutdown_write(),
        }
    }
}
