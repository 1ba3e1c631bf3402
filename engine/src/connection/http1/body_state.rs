//! The state of the content of a request.

use crate::buffer::Size;
use crate::connection::progress::Progress;
use crate::net::clock::Tick;
use crate::service::{ContentError, StreamId};
use selvedge_proto::field::Fields;
use selvedge_proto::http1::chunked::ChunkedDecoder;
use std::task::Waker;
use std::time::Instant;

/// The content of the current request.
pub(super) struct BodyState {
    pub(super) stream: StreamId,
    pub(super) remaining: Remaining,
    pub(super) phase: BodyPhase,
    /// The client expects `100 Continue` and has sent no content.
    pub(super) expects_continue: bool,
    /// The application reads while it responds.
    pub(super) reads_while_responding: bool,
    /// Time of the last received byte, or of the start of the wait.
    pub(super) last_activity: Tick,
    pub(super) progress: Progress,
    /// Size of the next receive buffer: long while each receive fills a usual one.
    pub(super) next_buffer_size: Size,
    /// Bytes received since the last yield.
    pub(super) bytes_since_yield: usize,
    /// Time spent waiting for the client, without the application's own time.
    pub(super) time_waited: Tick,
    pub(super) reader: Option<Waker>,
    /// When all of it had arrived.
    pub(super) ended_at: Option<Instant>,
}

/// What of the content has not arrived.
pub(super) enum Remaining {
    Length(u64),
    Chunks(ChunkedDecoder),
    Nothing(Option<Fields>),
}

/// Who reads the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyPhase {
    /// The application does not read now.
    Unread,
    /// The application waits for the client.
    Waiting,
    /// The application reads no more, because the content is too large for it.
    Stopped,
    /// The response was sent, and the rest is being discarded. The application would get fragments, so it gets an
    /// error.
    Discarding,
    /// Reading failed.
    Failed(ContentError),
}

impl BodyState {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.remaining, Remaining::Nothing(_))
    }

    /// Ends the content, with trailers if it was chunked.
    pub(super) fn end(&mut self, trailers: Option<Fields>) {
        self.remaining = Remaining::Nothing(trailers);
        self.ended_at = Some(Instant::now());
    }

    /// Starts to wait for the client at `now`.
    pub(super) fn begin_wait(&mut self, phase: BodyPhase, now: Tick) {
        self.phase = phase;
        self.last_activity = now;
        self.progress.began = now.saturating_sub(self.time_waited);
    }
}
