//! Receives HEADERS and CONTINUATION (RFC 9113 §6.2, §6.10, §8.1).

use super::reset_streams::InFlight;
use super::state::{ConnectionState, LastSection};
use super::{End, Event, FieldSection, Role, StreamId};
use crate::field_section::FieldClass;
use crate::http2::budget::Waste;
use crate::http2::error::{ConnectionError, StreamError};
use crate::http2::frame::{END_HEADERS, END_STREAM, FrameHeader, PADDED, PRIORITY, read_u32};
use crate::http2::hpack::DecodeOutcome;
use crate::http2::stream::{NewStream, PrioritySource, Side, Slot};

/// A field block whose last fragment has not arrived.
#[derive(Debug, Default)]
pub(super) struct IncomingBlock {
    head: Option<BlockHead>,
    fragments: Vec<u8>,
    continuations: u32,
}

/// What HEADERS has besides its fragment.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    stream: StreamId,
    end: End,
    dependency: Dependency,
}

/// Whether a stream depends on itself by the priority of RFC 7540, which is otherwise ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dependency {
    Ignored,
    Itself,
}

impl IncomingBlock {
    /// Whether CONTINUATION must follow.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.head.is_some()
    }

    /// Returns the stream of the block.
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.head.map(|head| head.stream)
    }

    /// Releases the memory of the last block.
    pub(super) fn compact(&mut self) {
        self.fragments.shrink_to_fit();
    }

    /// Processes HEADERS.
    pub(super) fn receive_headers(
        &mut self,
        state: &mut ConnectionState,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if header.stream == 0 {
            return Err(ConnectionError::StreamIdMissing);
        }
        let mut fragment = unpad(header, payload)?;
        let mut dependency = Dependency::Ignored;
        if header.has(PRIORITY) {
            let (priority, rest) = fragment.split_first_chunk::<5>().ok_or(ConnectionError::FrameLengthInvalid)?;
            fragment = rest;
            if read_u32(priority) & LAST_31_BITS == header.stream {
                dependency = Dependency::Itself;
            }
        }
        let end = if header.has(END_STREAM) { End::Last } else { End::More };
        let head = BlockHead { stream: StreamId(header.stream), end, dependency };
        if header.has(END_HEADERS) {
            return finish_block(state, head, fragment, out);
        }
        self.fragments.clear();
        self.continuations = 0;
        self.append(state, fragment)?;
        self.head = Some(head);
        Ok(None)
    }

    /// Processes CONTINUATION. The stream is that of the block.
    pub(super) fn receive_continuation(
        &mut self,
        state: &mut ConnectionState,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let head = self.head.ok_or(ConnectionError::ContinuationUnexpected)?;
        self.continuations += 1;
        if self.continuations > state.limits.continuation_frames_max {
            return Err(ConnectionError::ContinuationsTooMany);
        }
        state.charge(Waste::Continuation);
        self.append(state, payload)?;
        if !header.has(END_HEADERS) {
            return Ok(None);
        }
        self.head = None;
        let fragments = core::mem::take(&mut self.fragments);
        let event = finish_block(state, head, &fragments, out);
        self.fragments = fragments;
        event
    }

    fn append(&mut self, state: &ConnectionState, fragment: &[u8]) -> Result<(), ConnectionError> {
        if self.fragments.len() + fragment.len() > state.limits.field_block_bytes_max as usize {
            return Err(ConnectionError::FieldBlockTooLong);
        }
        self.fragments.extend_from_slice(fragment);
        Ok(())
    }
}

/// The bits of a stream identifier.
const LAST_31_BITS: u32 = 0x7fff_ffff;

/// Removes the padding of HEADERS.
fn unpad<'a>(header: &FrameHeader, payload: &'a [u8]) -> Result<&'a [u8], ConnectionError> {
    if !header.has(PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(ConnectionError::FrameLengthInvalid)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(ConnectionError::PaddingInvalid)?;
    Ok(&rest[..length])
}

/// Decodes a complete block, whatever happens to it, so that the decoder keeps its state (RFC 9113 §4.3).
fn finish_block(
    state: &mut ConnectionState,
    head: BlockHead,
    block: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<Event>, ConnectionError> {
    let outcome =
        state.decoder.decode_block(block, &state.limits.section).map_err(ConnectionError::CompressionInvalid)?;
    let previous = core::mem::replace(&mut state.last_section, LastSection::Discarded);
    let (section, repeats) = match outcome {
        DecodeOutcome::Fields => (FieldSection::New, None),
        DecodeOutcome::Repeated => (FieldSection::Repeated, Some(previous)),
        DecodeOutcome::LimitExceeded(limit) => {
            state.charge(Waste::SectionTooLarge);
            (FieldSection::TooLarge(limit), None)
        }
    };
    let mut event = match state.streams.find(head.stream) {
        Some(slot) => receive_on_open_stream(state, slot, head, section, out),
        None if state.is_peer_stream(head.stream.get()) && head.stream.get() > state.last_peer_stream => {
            open_stream(state, head, section, out)?
        }
        None => judge_closed(state, head)?,
    };
    // Only a section that the driver got as such can be a repetition for it.
    state.last_section = match &mut event {
        Some(Event::Headers { section, .. }) => {
            forget_repetition(section, repeats, LastSection::Head);
            LastSection::Head
        }
        Some(Event::Trailers { section, .. }) => {
            forget_repetition(section, repeats, LastSection::Trailers);
            LastSection::Trailers
        }
        _ => LastSection::Discarded,
    };
    Ok(event)
}

/// Reports a repeated section as new, unless it repeats a section of this kind that was reported.
fn forget_repetition(section: &mut FieldSection, repeats: Option<LastSection>, kind: LastSection) {
    if *section == FieldSection::Repeated && repeats != Some(kind) {
        *section = FieldSection::New;
    }
}

/// Processes a section of an open stream: trailers, or the head of a response.
fn receive_on_open_stream(
    state: &mut ConnectionState,
    slot: Slot,
    head: BlockHead,
    section: FieldSection,
    out: &mut Vec<u8>,
) -> Option<Event> {
    let BlockHead { stream, end, dependency } = head;
    let stream_state = state.streams.get(slot);
    let error = match (stream_state.remote, end) {
        (Side::Ended, _) => Some(StreamError::HalfClosed),
        _ if dependency == Dependency::Itself => Some(StreamError::SelfDependency),
        (Side::Content, End::More) => Some(StreamError::TrailersWithoutEnd),
        (Side::Content, End::Last) if stream_state.end_content().is_err() => Some(StreamError::ContentLengthMismatch),
        (Side::Head, End::Last) if is_interim(state) => Some(StreamError::InterimWithEnd),
        (Side::Head | Side::Content, _) => None,
    };
    if let Some(error) = error {
        return Some(state.violation(slot, error, out));
    }
    if stream_state.remote == Side::Content {
        state.end_remote(slot);
        return Some(Event::Trailers { stream, section });
    }
    match end {
        End::Last => state.end_remote(slot),
        End::More if is_interim(state) => state.charge(Waste::Interim),
        End::More => state.streams.get_mut(slot).remote = Side::Content,
    }
    Some(Event::Headers { stream, end, section })
}

/// Whether the section is an interim response: the first field is `:status` with a value of 1xx.
fn is_interim(state: &ConnectionState) -> bool {
    let first = state.decoder.fields().iter().next();
    first.is_some_and(|field| field.class == FieldClass::Status && field.value.first() == Some(&b'1'))
}

/// Opens a stream of the peer.
fn open_stream(
    state: &mut ConnectionState,
    head: BlockHead,
    section: FieldSection,
    out: &mut Vec<u8>,
) -> Result<Option<Event>, ConnectionError> {
    let BlockHead { stream, end, dependency } = head;
    if state.role == Role::Client {
        return Err(ConnectionError::StreamIdInvalid);
    }
    if stream.get() > state.last_peer_stream + 2 {
        state.skipped = (state.last_peer_stream + 1, stream.get());
    }
    state.last_peer_stream = stream.get();
    if state.is_excluded(stream.get()) {
        state.charge(Waste::RefusedStream);
        return Ok(None);
    }
    if dependency == Dependency::Itself {
        return Ok(Some(state.refuse(stream, end, StreamError::SelfDependency, out)));
    }
    if state.streams.open_count() >= state.limits.streams_max as usize {
        return Ok(Some(state.refuse(stream, end, StreamError::StreamsTooMany, out)));
    }
    let slot = state.streams.insert(NewStream {
        id: stream,
        remote: if end == End::Last { Side::Ended } else { Side::Content },
        local: Side::Head,
        send_window: state.peer.initial_window_bytes,
        receive_window: state.stream_window_bytes,
    });
    if let Some(index) = state.early_priorities.iter().position(|(id, _)| *id == stream) {
        let (_, priority) = state.early_priorities.swap_remove(index);
        state.streams.set_priority(slot, priority);
        state.streams.get_mut(slot).priority_source = PrioritySource::Frame;
    }
    Ok(Some(Event::Headers { stream, end, section }))
}

/// Judges a section of a stream that is closed or cannot be opened.
fn judge_closed(state: &mut ConnectionState, head: BlockHead) -> Result<Option<Event>, ConnectionError> {
    let id = head.stream.get();
    if state.role == Role::Server && !state.is_peer_stream(id) {
        return Err(ConnectionError::StreamIdInvalid);
    }
    if state.is_idle(id) {
        return Err(ConnectionError::StreamIdle);
    }
    if state.is_excluded(id) {
        state.charge(Waste::FrameAfterReset);
        return Ok(None);
    }
    if (state.skipped.0..state.skipped.1).contains(&id) {
        return Err(ConnectionError::StreamIdInvalid);
    }
    if !matches!(state.resets.receive(head.stream, 0), InFlight::Permitted | InFlight::Forgotten) {
        return Err(ConnectionError::StreamClosed);
    }
    state.charge(Waste::FrameAfterReset);
    if head.end == End::Last {
        state.resets.forget(head.stream);
    }
    Ok(None)
}
