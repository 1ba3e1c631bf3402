//! Writes DATA frames of content in memory.

use super::connection::Connection;
use crate::net::stream::Stream;
use crate::service::CloseReason;
use selvedge_proto::http2::{End, SendError, StreamId};

/// The result of one turn of a stream.
pub(super) enum Sent {
    /// A frame was written, and more follows.
    More,
    /// The end was written.
    All,
    /// The response cannot be completed.
    Failed(CloseReason),
}

/// Writes a DATA frame.
pub(super) fn send_bytes<S: Stream>(connection: &Connection<S>, stream: StreamId, bytes: &[u8], end: End) -> Sent {
    let begun = connection.with_protocol(|protocol, out| {
        protocol.begin_data(stream, bytes.len(), end, out)?;
        out.extend_from_slice(bytes);
        Ok::<(), SendError>(())
    });
    after_frame(begun, end)
}

/// Returns the result of a frame.
pub(super) fn after_frame(begun: Result<(), SendError>, end: End) -> Sent {
    match (begun, end) {
        (Ok(()), End::More) => Sent::More,
        (Ok(()), End::Last) => Sent::All,
        (Err(_), _) => Sent::Failed(CloseReason::ClientDisconnected),
    }
}
