//! The exchange's end of a stream.

use super::connection::{Http2State, SharedConnection};
use super::stream::StreamState;
use crate::client::limits::HTTP2_OUTPUT_BYTES_MAX;
use crate::client::table::Lease;
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::http2::{End, ErrorCode, Section, StreamId};
use std::rc::Rc;
use std::task::Context;

/// The exchange's end of a stream. Dropping it resets the stream, unless both directions have ended.
pub(super) struct StreamHandle {
    pub(super) connection: Rc<SharedConnection>,
    pub(super) id: StreamId,
    /// The deadline of the exchange.
    pub(super) timer: Lease,
}

impl StreamHandle {
    /// Acts on the state of the stream.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut StreamState) -> T) -> T {
        let mut state = self.connection.state.borrow_mut();
        act(state.streams.entry(self.id).or_default())
    }

    /// Registers the task of the exchange for what arrives.
    pub(super) fn set_waker(&self, cx: &Context<'_>) {
        let replaced = self.with(|stream| match &stream.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            _ => stream.waker.replace(cx.waker().clone()),
        });
        drop(replaced);
    }

    /// Writes content as far as the windows and the output permit. Returns how much.
    pub(super) fn write(&self, content: &[u8]) -> usize {
        let mut written = 0;
        let mut state = self.connection.state.borrow_mut();
        let Http2State { protocol, output, .. } = &mut *state;
        while written < content.len() {
            let room = HTTP2_OUTPUT_BYTES_MAX.saturating_sub(output.len());
            let count = protocol.sendable(self.id).min(content.len() - written).min(room);
            if count == 0 || protocol.begin_data(self.id, count, End::More, output.bytes()).is_err() {
                break;
            }
            output.bytes().extend_from_slice(&content[written..written + count]);
            written += count;
        }
        drop(state);
        if written > 0 {
            self.timer.end_wait();
            self.connection.wake_driver();
        }
        written
    }

    /// Writes the end of the request, with its trailers if it has any.
    pub(super) fn write_end(&self, trailers: Option<Fields>) {
        let mut state = self.connection.state.borrow_mut();
        let Http2State { protocol, output, .. } = &mut *state;
        // It fails only if the stream is closed, and the response tells why.
        let _ = match trailers {
            None => protocol.begin_data(self.id, 0, End::Last, output.bytes()),
            Some(trailers) => protocol.send_fields(self.id, Section::Trailers, output.bytes(), |block| {
                trailers.iter().for_each(|(name, value)| block.field(name.as_bytes(), value));
            }),
        };
        drop(state);
        self.connection.wake_driver();
    }

    /// Registers the task of the exchange for a window, or for room in the output.
    pub(super) fn await_window(&self, cx: &Context<'_>) {
        self.with(|stream| stream.awaits_window = true);
        self.connection.state.borrow_mut().has_waiting_senders = true;
        self.set_waker(cx);
    }

    /// Takes the next received content, which reopens the windows.
    pub(super) fn take_content(&self) -> Option<Bytes> {
        let mut state = self.connection.state.borrow_mut();
        let state = &mut *state;
        let piece = state.streams.get_mut(&self.id)?.received.pop_front()?;
        let before = state.output.len();
        state.protocol.consumed(self.id, piece.len(), state.output.bytes());
        if state.output.len() > before {
            self.connection.wake_driver();
        }
        Some(piece.into())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        let mut borrowed = self.connection.state.borrow_mut();
        let state = &mut *borrowed;
        let stream = state.streams.remove(&self.id);
        let unread = stream.as_ref().map_or(0, |stream| stream.received.iter().map(Vec::len).sum());
        let code = match &stream {
            // The upstream needs no more of the request (RFC 9113 §8.1).
            Some(stream) if stream.is_complete => ErrorCode::NO_ERROR,
            _ => ErrorCode::CANCEL,
        };
        let output = state.output.bytes();
        state.protocol.reset(self.id, code, output);
        state.protocol.consumed(self.id, unread, output);
        drop(borrowed);
        self.connection.wake_driver();
        self.connection.call_waiting();
    }
}
