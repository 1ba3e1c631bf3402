//! The exchange's end of a stream.

use super::connection::SharedConnection;
use super::stream::StreamState;
use crate::client::table::Lease;
use bytes::Bytes;
use selvedge_proto::http2::{ErrorCode, StreamId};
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
        let mut state = self.connection.state.borrow_mut();
        let state = &mut *state;
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
        self.connection.wake_driver();
    }
}
