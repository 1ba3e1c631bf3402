//! Sends field sections and DATA.

use super::state::{ConnectionState, Shutdown};
use super::{End, Role, Section, StreamId};
use crate::http2::error::{OpenError, SendError};
use crate::http2::frame::{END_STREAM, FRAME_HEADER_BYTES, FrameHeader, FrameType, complete_headers};
use crate::http2::hpack::BlockEncoder;
use crate::http2::limits::STREAMS_CEILING;
use crate::http2::stream::{NewStream, Side};

/// The highest stream identifier (RFC 9113 §5.1.1).
const STREAM_ID_MAX: u32 = (1 << 31) - 1;

/// Opens a stream of a client with a request head.
pub(super) fn open(
    state: &mut ConnectionState,
    end: End,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut BlockEncoder<'_>),
) -> Result<StreamId, OpenError> {
    let id = state.next_own_stream;
    let is_ending = state.peer_goaway.is_some() || state.shutdown != Shutdown::No;
    if state.role == Role::Server || is_ending || id > STREAM_ID_MAX {
        return Err(OpenError::ConnectionEnding);
    }
    if state.streams.open_count() >= state.peer.streams_max.min(STREAMS_CEILING) as usize {
        return Err(OpenError::StreamsTooMany);
    }
    state.next_own_stream = id + 2;
    let stream = StreamId(id);
    state.streams.insert(NewStream {
        id: stream,
        remote: Side::Head,
        local: if end == End::Last { Side::Ended } else { Side::Content },
        send_window: state.peer.initial_window_bytes,
        receive_window: state.stream_window_bytes,
    });
    write_headers(state, stream, end, out, write);
    Ok(stream)
}

/// Sends a field section on an open stream.
pub(super) fn send_fields(
    state: &mut ConnectionState,
    stream: StreamId,
    section: Section,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut BlockEncoder<'_>),
) -> Result<(), SendError> {
    let slot = state.streams.find(stream).ok_or(SendError::StreamClosed)?;
    let end = match (section, state.streams.get(slot).local) {
        (_, Side::Ended) => return Err(SendError::StreamClosed),
        (Section::Interim, Side::Head) => End::More,
        (Section::Head(end), Side::Head) => end,
        (Section::Trailers, Side::Content) => End::Last,
        _ => return Err(SendError::OutOfOrder),
    };
    write_headers(state, stream, end, out, write);
    if section != Section::Interim {
        state.streams.get_mut(slot).local = Side::Content;
        state.end_local_if(slot, end);
    }
    Ok(())
}

/// Writes HEADERS, with CONTINUATION if the block is long.
fn write_headers(
    state: &mut ConnectionState,
    stream: StreamId,
    end: End,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut BlockEncoder<'_>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    write(&mut state.encoder.begin_block(out));
    complete_headers(out, start, state.peer.frame_bytes_max as usize, flag_of(end), stream.get());
}

/// Writes the header of a DATA frame, and accounts its payload.
pub(super) fn begin_data(
    state: &mut ConnectionState,
    stream: StreamId,
    length: usize,
    end: End,
    out: &mut Vec<u8>,
) -> Result<(), SendError> {
    let slot = state.streams.find(stream).ok_or(SendError::StreamClosed)?;
    let stream_state = state.streams.get(slot);
    match stream_state.local {
        Side::Head => return Err(SendError::OutOfOrder),
        Side::Ended => return Err(SendError::StreamClosed),
        Side::Content => {}
    }
    let window = stream_state.send_window.available().min(state.send_window.available());
    let frame_bytes = state.peer.frame_bytes_max.min(state.limits.sent_frame_bytes_max);
    if length > window.min(frame_bytes) as usize {
        return Err(SendError::WindowExceeded);
    }
    if length == 0 && end == End::More {
        return Ok(());
    }
    let bytes = length as u32;
    let header = FrameHeader { length: bytes, kind: FrameType::Data, flags: flag_of(end), stream: stream.get() };
    out.extend_from_slice(&header.to_bytes());
    state.send_window.send(bytes);
    state.streams.account_sent(slot, bytes);
    state.budget.data_sent(bytes);
    if end == End::Last {
        state.end_local(slot);
    }
    Ok(())
}

/// Returns END_STREAM if the frame is the last.
#[inline]
fn flag_of(end: End) -> u8 {
    match end {
        End::More => 0,
        End::Last => END_STREAM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::connection::Millis;
    use crate::http2::limits::Http2Limits;

    #[test]
    fn last_stream_identifier_is_used_and_then_none() {
        let mut state = ConnectionState::new(Role::Client, &Http2Limits::default(), Millis(0));
        state.next_own_stream = STREAM_ID_MAX;
        let mut open = || open(&mut state, End::Last, &mut Vec::new(), |_| {});
        assert_eq!(open(), Ok(StreamId(STREAM_ID_MAX)));
        assert_eq!(open(), Err(OpenError::ConnectionEnding));
    }
}
