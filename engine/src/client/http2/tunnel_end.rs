//! A stream of another protocol, which an extended CONNECT has opened (RFC 8441).

use super::handle::StreamHandle;
use crate::client::table::Lease;
use bytes::{Buf, Bytes};
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

/// A stream of another protocol. Dropping it resets the stream, unless both directions have ended.
pub(in crate::client) struct Http2TunnelEnd(pub(super) StreamHandle);

impl Http2TunnelEnd {
    pub(in crate::client) fn timer(&self) -> &Lease {
        &self.0.timer
    }

    /// Whether the upstream has ended its direction, and then the stream.
    pub(in crate::client) fn is_closed(&self) -> bool {
        self.0.with(|stream| stream.is_complete && stream.is_closed && stream.received.is_empty())
    }

    /// Writes what the windows and the output permit. Returns how much.
    pub(in crate::client) fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.with(|stream| stream.failure.is_some() || stream.is_closed) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        Ok(self.0.write(bytes))
    }

    pub(in crate::client) fn poll_send(&self, bytes: &mut Bytes, cx: &Context<'_>) -> Poll<io::Result<()>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let sent = self.try_send(bytes)?;
        bytes.advance(sent);
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.0.await_window(cx);
        Poll::Pending
    }

    pub(in crate::client) fn poll_receive(&self, cx: &Context<'_>) -> Poll<io::Result<Bytes>> {
        if let Some(piece) = self.0.take_content() {
            return Poll::Ready(Ok(piece));
        }
        let (is_complete, failure) = self.0.with(|stream| (stream.is_complete, stream.failure));
        match failure {
            _ if is_complete => Poll::Ready(Ok(Bytes::new())),
            Some(_) => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
            None => {
                self.0.set_waker(cx);
                Poll::Pending
            }
        }
    }

    pub(in crate::client) fn shutdown_write(&self) {
        self.0.write_end(None);
    }
}
