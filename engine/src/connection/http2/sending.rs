//! The send buffer of a connection: how much fits into it, and how long a client has not received.

use super::connection::Connection;
use super::data_frame::FRAME_HEADER_BYTES;
use crate::buffer::Size;
use crate::connection::progress::TransferLimits;
use crate::connection::transport::Transport;
use crate::limits::BUFFER_BYTES;
use crate::net::clock::Tick;
use crate::net::raw::{SendBuffer, SendMode};
use crate::net::stream::Stream;
use crate::service::CloseReason;
use selvedge_proto::http2::Turn;
use std::task::{Context, Poll};

/// A send buffer with less room than this, for the content of a frame, is full.
const FRAME_BYTES_MIN: usize = 1024;

/// What the task of a connection knows about sending.
#[derive(Default)]
pub(super) struct Sending {
    wait: Option<SendWait>,
    /// The size of the send buffer: long while the client takes content faster than usual buffers are filled.
    buffer_size: Size,
    /// Whether content was left over because the send buffer was full.
    is_cut: bool,
}

/// A wait of the whole connection for a client that receives nothing.
pub(super) struct SendWait {
    began: Tick,
    /// Bytes that left since then.
    bytes: u64,
    /// When the last of them left.
    last: Tick,
}

impl Sending {
    /// Whether content was left over because the send buffer was full.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether written bytes wait for the client.
    pub(super) fn waits(&self) -> bool {
        self.wait.is_some()
    }

    /// Begins to wait for the client, if it does not already.
    pub(super) fn begin_wait(&mut self, now: Tick) -> &mut SendWait {
        self.wait.get_or_insert(SendWait { began: now, bytes: 0, last: now })
    }

    /// Returns when the client has received too slowly.
    pub(super) fn due(&self, limits: TransferLimits) -> Option<Tick> {
        self.wait.as_ref().map(|wait| limits.due(wait.began, wait.bytes, wait.last))
    }

    /// Returns the stream that writes next, and how much fits into the send buffer.
    pub(super) fn next_turn<S: Stream>(&mut self, connection: &Connection<S>) -> Option<Turn> {
        let turn = connection.protocol.borrow_mut().next_to_send()?;
        let mut output = connection.transport.output.borrow_mut();
        if self.buffer_size == Size::Long && output.len() < BUFFER_BYTES {
            output.use_long_buffer();
        }
        let out = output.bytes();
        let room = (out.capacity() - out.len()).saturating_sub(FRAME_HEADER_BYTES);
        let is_full = room < turn.bytes_max.min(FRAME_BYTES_MIN);
        self.is_cut |= is_full;
        (!is_full).then(|| Turn { bytes_max: turn.bytes_max.min(room), ..turn })
    }

    /// Sends what was written. Returns whether all of it left.
    pub(super) fn flush<S: Stream>(
        &mut self,
        transport: &Transport<S>,
        cx: &mut Context<'_>,
    ) -> Result<bool, CloseReason> {
        let mut unsent = transport.unsent_len();
        // A session may hold encoded bytes that the socket has not accepted.
        if unsent == 0 && self.wait.is_none() {
            // The protocol got a buffer, and has written nothing. An idle connection holds none.
            *transport.output.borrow_mut() = SendBuffer::default();
            return Ok(true);
        }
        let now = transport.timeouts.worker.clock.tick();
        loop {
            if transport.send_now(SendMode::Flush)? {
                self.buffer_size = if self.is_cut { Size::Long } else { Size::Usual };
                self.is_cut = false;
                self.wait = None;
                return Ok(true);
            }
            self.buffer_size = Size::Usual;
            let wait = self.begin_wait(now);
            let left = transport.unsent_len();
            if left < unsent {
                wait.bytes += (unsent - left) as u64;
                wait.last = now;
            }
            unsent = left;
            match transport.link.poll_writable(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Err(CloseReason::Reset),
                Poll::Pending => return Ok(false),
            }
        }
    }
}
