//! Receives DATA (RFC 9113 §6.1).

use super::reset_streams::InFlight;
use super::state::ConnectionState;
use super::{End, Event, StreamId};
use crate::http2::budget::{TINY_DATA_BYTES, Waste};
use crate::http2::error::{ConnectionError, StreamError};
use crate::http2::frame::{END_STREAM, FrameHeader, PADDED};
use crate::http2::stream::{Side, Slot};

/// The payload of a DATA frame that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncomingData {
    stream: StreamId,
    content_left: u32,
    padding_left: u32,
    end: End,
    use_of_content: UseOfContent,
}

/// What happens to arriving content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UseOfContent {
    /// The driver gets it.
    Deliver,
    /// It is dropped, since its stream is closed.
    Discard,
}

/// Judges a DATA frame by its header and padding length. Returns the payload that is to arrive.
pub(super) fn begin_data(
    state: &mut ConnectionState,
    header: &FrameHeader,
    pad_length: Option<u8>,
    out: &mut Vec<u8>,
) -> Result<(IncomingData, Option<Event>), ConnectionError> {
    if header.stream == 0 {
        return Err(ConnectionError::StreamIdMissing);
    }
    let padding = match pad_length {
        Some(length) => u32::from(length) + 1,
        None if header.has(PADDED) => return Err(ConnectionError::FrameLengthInvalid),
        None => 0,
    };
    let content = header.length.checked_sub(padding).ok_or(ConnectionError::PaddingInvalid)?;
    if !state.receive_window.receive(header.length) {
        return Err(ConnectionError::WindowExceeded);
    }
    let stream = StreamId(header.stream);
    let end = if header.has(END_STREAM) { End::Last } else { End::More };
    charge_size(state, content, end);
    let mut data = IncomingData {
        stream,
        content_left: content,
        padding_left: padding.saturating_sub(1),
        end,
        use_of_content: UseOfContent::Deliver,
    };
    let event = match state.streams.find(stream) {
        Some(slot) => match judge_content(state, slot, header.length, content, end) {
            Ok(()) => {
                state.budget.data_received(content);
                // The driver never sees padding, so the windows reopen here.
                if padding > 0 {
                    state.credit_connection(padding, out);
                    state.credit_stream(slot, padding, out);
                }
                None
            }
            Err(error) => {
                data.use_of_content = UseOfContent::Discard;
                Some(state.violation(slot, error, out))
            }
        },
        None => {
            judge_closed(state, header, end)?;
            data.use_of_content = UseOfContent::Discard;
            None
        }
    };
    if data.use_of_content == UseOfContent::Discard {
        state.credit_connection(header.length, out);
    }
    Ok((data, event))
}

/// Charges for frames with little or no content.
fn charge_size(state: &mut ConnectionState, content: u32, end: End) {
    match (content, end) {
        (0, End::More) => state.charge(Waste::EmptyData),
        (1..TINY_DATA_BYTES, End::More) => state.charge(Waste::TinyData),
        _ => {}
    }
}

/// Accounts a frame on an open stream.
fn judge_content(
    state: &mut ConnectionState,
    slot: Slot,
    length: u32,
    content: u32,
    end: End,
) -> Result<(), StreamError> {
    let stream = state.streams.get_mut(slot);
    match stream.remote {
        Side::Head => return Err(StreamError::ContentBeforeHead),
        Side::Ended => return Err(StreamError::HalfClosed),
        Side::Content => {}
    }
    if !stream.receive_window.receive(length) {
        return Err(StreamError::StreamWindowExceeded);
    }
    let judged = stream.receive_content(content).and_then(|()| match end {
        End::More => Ok(()),
        End::Last => stream.end_content(),
    });
    judged.map_err(|_| StreamError::ContentLengthMismatch)
}

/// Judges a frame of a stream that is not open.
fn judge_closed(state: &mut ConnectionState, header: &FrameHeader, end: End) -> Result<(), ConnectionError> {
    let (id, stream) = (header.stream, StreamId(header.stream));
    if state.is_idle(id) {
        return Err(ConnectionError::StreamIdle);
    }
    if state.is_excluded(id) {
        state.charge(Waste::FrameAfterReset);
        return Ok(());
    }
    match state.resets.receive(stream, header.length) {
        // The window of the stream bounds it.
        InFlight::Permitted => {}
        InFlight::Forgotten => state.charge(Waste::FrameAfterReset),
        InFlight::Exceeded | InFlight::Unknown => return Err(ConnectionError::StreamClosed),
    }
    if end == End::Last {
        state.resets.forget(stream);
    }
    Ok(())
}

impl IncomingData {
    /// Takes what has arrived of the payload. Returns the number of bytes, and whether the frame is complete.
    pub(super) fn receive(
        &mut self,
        state: &mut ConnectionState,
        input: &[u8],
        at: usize,
        out: &mut Vec<u8>,
    ) -> ReceivedData {
        let available = input.len() - at;
        if self.use_of_content == UseOfContent::Deliver && state.streams.find(self.stream).is_none() {
            // The driver has reset the stream within the frame; what was not delivered is credited here.
            self.use_of_content = UseOfContent::Discard;
            state.credit_connection(self.content_left, out);
        }
        let content = (self.content_left as usize).min(available);
        let padding = (self.padding_left as usize).min(available - content);
        self.content_left -= content as u32;
        self.padding_left -= padding as u32;
        let is_complete = self.content_left == 0 && self.padding_left == 0;
        let end = if is_complete { self.end } else { End::More };
        let is_delivered = self.use_of_content == UseOfContent::Deliver && (content > 0 || end == End::Last);
        if is_delivered
            && end == End::Last
            && let Some(slot) = state.streams.find(self.stream)
        {
            state.end_remote(slot);
        }
        let event = is_delivered.then(|| Event::Data { stream: self.stream, content: at..at + content, end });
        ReceivedData { consumed: content + padding, is_complete, event }
    }
}

/// What arrived of the payload of a DATA frame.
#[derive(Debug)]
pub(super) struct ReceivedData {
    pub(super) consumed: usize,
    pub(super) is_complete: bool,
    pub(super) event: Option<Event>,
}
