//! What has arrived for one stream of HTTP/2.

use crate::client::error::{ClientErrorKind, RetrySafety};
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use std::collections::VecDeque;
use std::task::Waker;

/// A piece is not joined to one that would be longer than this.
const JOINED_BYTES_MAX: usize = 4 * 1024;

/// What has arrived for a stream.
#[derive(Default)]
pub(super) struct StreamState {
    /// Whether the request is HEAD.
    pub(super) is_head: bool,
    /// Whether the request is an extended CONNECT.
    pub(super) is_connect: bool,
    /// Where in the output of the connection its head begins.
    pub(super) head_at: u64,
    /// Interim responses that the exchange has not seen, and how many have arrived.
    pub(super) interim: Vec<(StatusCode, Fields)>,
    pub(super) interim_count: u32,
    /// The head of the response, until the exchange takes it.
    pub(super) head: Option<StreamHead>,
    pub(super) has_head: bool,
    /// Content that the exchange has not taken. The windows bound it.
    pub(super) received: VecDeque<Vec<u8>>,
    pub(super) trailers: Option<Fields>,
    /// Whether the response is complete.
    pub(super) is_complete: bool,
    pub(super) failure: Option<StreamFailure>,
    /// Whether the stream or its connection was closed by the upstream.
    pub(super) is_closed: bool,
    /// The task of the exchange.
    pub(super) waker: Option<Waker>,
    /// Whether the exchange waits for a window, or for room in the output.
    pub(super) awaits_window: bool,
}

/// The head of a response.
pub(super) struct StreamHead {
    pub(super) status: StatusCode,
    pub(super) fields: Fields,
    pub(super) length: Option<u64>,
}

/// Why a stream failed.
#[derive(Clone, Copy)]
pub(super) struct StreamFailure {
    pub(super) kind: ClientErrorKind,
    pub(super) retry: RetrySafety,
}

impl StreamState {
    /// Whether nothing more arrives.
    pub(super) fn has_ended(&self) -> bool {
        self.is_complete || self.failure.is_some()
    }

    /// Stores received content. Short pieces are joined, since each has a cost of its own.
    pub(super) fn push(&mut self, piece: &[u8]) {
        match self.received.back_mut() {
            _ if piece.is_empty() => {}
            Some(last) if last.len() + piece.len() <= JOINED_BYTES_MAX => last.extend_from_slice(piece),
            _ => self.received.push_back(piece.to_vec()),
        }
    }

    /// Ends the stream with an error.
    pub(super) fn fail(&mut self, failure: StreamFailure) {
        let retry = if self.has_head || self.interim_count > 0 { RetrySafety::Never } else { failure.retry };
        self.failure = Some(StreamFailure { retry, ..failure });
    }
}
