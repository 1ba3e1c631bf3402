//! A connection after the switch to another protocol: bytes are copied in both directions.

use super::tunnel_end::TunnelEnd;
use crate::buffer::Buffer;
use crate::net::runtime::spawn_local;
use crate::peer::Duplex;
use crate::service::UpgradeHandler;
use bytes::{Buf, Bytes};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use std::time::Duration;

/// Most bytes of one read from the client.
const READ_BYTES_MAX: usize = 16 * 1024;
/// Most bytes that are moved before other tasks run.
const BYTES_PER_YIELD: usize = 256 * 1024;

/// A connection to an upstream after the switch to another protocol, such as WebSocket, or a stream of HTTP/2 for one.
/// Dropping it closes the connection, or resets the stream.
pub struct Tunnel {
    upstream: TunnelEnd,
    protocol: Bytes,
    silence: Duration,
    /// Bytes from the client that are not sent.
    from_client: Bytes,
    /// Bytes from the upstream that are not sent.
    from_upstream: Bytes,
    client_end: End,
    upstream_end: End,
}

/// How far the end of one direction has been passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More bytes may follow.
    Open,
    /// The sender has ended; the receiver does not know yet.
    Received,
    /// The receiver knows.
    PassedOn,
}

impl Tunnel {
    pub(super) fn new(upstream: TunnelEnd, protocol: Bytes, silence: Duration) -> Self {
        Self {
            upstream,
            protocol,
            silence,
            from_client: Bytes::new(),
            from_upstream: Bytes::new(),
            client_end: End::Open,
            upstream_end: End::Open,
        }
    }

    /// Returns the protocol that the upstream switched to: the value of Upgrade.
    pub fn protocol(&self) -> &Bytes {
        &self.protocol
    }

    /// Returns a handler for [`crate::service::UpgradeResponse`] that copies on the worker's thread.
    pub fn into_handler(self) -> UpgradeHandler {
        Box::new(move |client| {
            spawn_local(async move {
                // Either end may fail at any time. Both connections are closed then, and their logs have the reason.
                let _ = self.run(client).await;
            });
        })
    }

    /// Copies bytes between the client and the upstream until both directions have ended. The end of one direction is
    /// passed on, and the other one continues. At most 16 KiB from the client and one received buffer from the
    /// upstream wait; while nothing arrives, no buffer is held.
    ///
    /// When the server stops or the application is replaced ([`Duplex::stopping`]), the upstream gets the end of the
    /// client's direction. So it can send its last bytes, and the client gets them before the end.
    ///
    /// # Errors
    /// If a connection fails, or no byte moves for the time of [`super::ClientTimeouts::tunnel`].
    pub async fn run(mut self, mut client: Box<dyn Duplex>) -> io::Result<()> {
        let mut stopping = client.stopping();
        poll_fn(|cx| {
            if self.client_end == End::Open && stopping.as_mut().poll(cx).is_ready() {
                self.client_end = End::Received;
            }
            self.poll_copy(&mut *client, cx)
        })
        .await
    }

    fn poll_copy(&mut self, client: &mut dyn Duplex, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut moved = 0;
        loop {
            let up = self.poll_up(client, cx)?;
            let down = self.poll_down(client, cx)?;
            match (up, down) {
                (Poll::Pending, Poll::Pending) => break,
                (up, down) => {
                    let count = |polled| if let Poll::Ready(count) = polled { count } else { 0 };
                    moved += count(up) + count(down);
                    self.upstream.timer().end_wait();
                }
            }
            if (self.client_end, self.upstream_end) == (End::PassedOn, End::PassedOn) {
                return Poll::Ready(Ok(()));
            }
            if moved >= BYTES_PER_YIELD {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        if self.upstream.timer().wait(self.silence, cx) {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Poll::Pending
        }
    }

    /// Moves bytes or the end from the client to the upstream. Ready if something has moved.
    fn poll_up(&mut self, client: &mut dyn Duplex, cx: &mut Context<'_>) -> io::Result<Poll<usize>> {
        if self.client_end != End::PassedOn && self.upstream.is_closed() {
            self.from_client = Bytes::new();
            self.client_end = End::PassedOn;
            return Ok(Poll::Ready(0));
        }
        if self.client_end == End::Open && self.from_client.is_empty() {
            let mut buffer = Buffer::take();
            buffer.resize(READ_BYTES_MAX, 0);
            match client.poll_receive(cx, &mut buffer)? {
                Poll::Pending => {}
                Poll::Ready(0) => self.client_end = End::Received,
                Poll::Ready(count) => {
                    // The upstream takes nearly everything at once, without a copy.
                    let sent = self.upstream.try_send(&buffer[..count])?;
                    self.from_client = Bytes::copy_from_slice(&buffer[sent..count]);
                    return Ok(Poll::Ready(count));
                }
            }
        }
        let count = self.from_client.len();
        let flushed = self.upstream.poll_send(&mut self.from_client, cx)?;
        if flushed.is_ready() && self.client_end == End::Received {
            self.upstream.shutdown_write();
            self.client_end = End::PassedOn;
            return Ok(Poll::Ready(0));
        }
        Ok(if flushed.is_ready() && count > 0 { Poll::Ready(count) } else { Poll::Pending })
    }

    /// Moves bytes or the end from the upstream to the client. Ready if something has moved.
    fn poll_down(&mut self, client: &mut dyn Duplex, cx: &mut Context<'_>) -> io::Result<Poll<usize>> {
        if self.upstream_end == End::Open
            && self.from_upstream.is_empty()
            && let Poll::Ready(received) = self.upstream.poll_receive(cx)?
        {
            if received.is_empty() {
                self.upstream_end = End::Received;
            }
            self.from_upstream = received;
        }
        if !self.from_upstream.is_empty() {
            let Poll::Ready(sent) = client.poll_send(cx, &[IoSlice::new(&self.from_upstream)])? else {
                return Ok(Poll::Pending);
            };
            self.from_upstream.advance(sent);
            if self.from_upstream.is_empty() {
                self.from_upstream = Bytes::new();
            }
            return Ok(Poll::Ready(sent));
        }
        if self.upstream_end == End::Received {
            client.shutdown_write()?;
            self.upstream_end = End::PassedOn;
            return Ok(Poll::Ready(0));
        }
        Ok(Poll::Pending)
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tunnel({:?})", self.protocol)
    }
}
