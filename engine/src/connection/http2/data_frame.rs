//! Writes DATA frames.

use super::connection::Connection;
use crate::net::stream::Stream;
use crate::service::CloseReason;
use selvedge_proto::http2::{End, SendError, StreamId};

/// The header of a frame (RFC 9113 §4.1).
pub(super) const FRAME_HEADER_BYTES: usize = 9;

/// The result of one turn of a stream.
pub(super) enum SendStep {
    /// A frame with this many bytes of content was written, and more follows.
    More(usize),
    /// The end was written, with this many bytes of content.
    All(usize),
    /// The response cannot be completed.
    Failed(CloseReason),
}

/// Writes a DATA frame.
pub(super) fn send_bytes<S: Stream>(connection: &Connection<S>, stream: StreamId, bytes: &[u8], end: End) -> SendStep {
    let begun = connection.with_protocol(|protocol, out| {
        protocol.begin_data(stream, bytes.len(), end, out)?;
        out.extend_from_slice(bytes);
        Ok::<(), SendError>(())
    });
    after_frame(begun, bytes.len(), end)
}

pub(super) fn after_frame(begun: Result<(), SendError>, count: usize, end: End) -> SendStep {
    match (begun, end) {
        (Ok(()), End::More) => SendStep::More(count),
        (Ok(()), End::Last) => SendStep::All(count),
        (Err(_), _) => SendStep::Failed(CloseReason::ClientDisconnected),
    }
}
