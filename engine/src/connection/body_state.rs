//! The state of the content of a request.

use crate::buffer::Size;
use crate::connection::progress::Progress;
use crate::net::clock::Tick;
use crate::service::ContentError;
use selvedge_proto::field::Fields;
use selvedge_proto::http1::chunked::ChunkedDecoder;
use std::task::Waker;

/// The content of the current request.
pub(super) struct BodyState {
    pub(super) request: u32,
    pub(super) framing: Remaining,
    /// The client expects `100 Continue` and has sent no content.
    pub(super) expects_continue: bool,
    /// The application reads while it responds.
    pub(super) reads_while_responding: bool,
    pub(super) error: Option<ContentError>,
    /// The application reads no more.
    pub(super) is_reading_stopped: bool,
    /// The response was sent and the rest of the content is being discarded. A reader gets an error, because it would
    /// get fragments.
    pub(super) is_discarding: bool,
    /// A reader waits for the client.
    pub(super) is_reading: bool,
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
}

/// What of the content has not arrived.
pub(super) enum Remaining {
    Length(u64),
    Chunks(ChunkedDecoder),
    Nothing(Option<Fields>),
}

impl BodyState {
    pub(super) fn is_done(&self) -> bool {
        matches!(self.framing, Remaining::Nothing(_))
    }
}
