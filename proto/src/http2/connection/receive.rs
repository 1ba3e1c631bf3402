//! Receives frames: reads them, and processes those without content or fields.

use super::reader::{PartialFrame, Reading, bytes_needed, match_preface};
use super::receive_data::begin_data;
use super::receive_fields::IncomingBlock;
use super::state::{ConnectionState, SHUTDOWN_PING, Shutdown};
use super::{Event, ResetCause, Role, Step, StreamId};
use crate::http2::budget::{SMALL_INCREMENT_BYTES, Waste};
use crate::http2::error::{ConnectionError, ErrorCode, StreamError};
use crate::http2::frame::{
    ACK, CLIENT_PREFACE, FRAME_HEADER_BYTES, FrameHeader, FrameType, PADDED, read_u32, write_frame,
};
use crate::http2::hpack::INITIAL_TABLE_BYTES;
use crate::http2::limits::WINDOW_INITIAL;
use crate::http2::priority::Priority;
use crate::http2::stream::{PrioritySource, Side};

/// Most priorities that are kept for streams that are not open yet. RFC 9218 §7.1 permits to discard them.
const EARLY_PRIORITIES_MAX: usize = 16;

/// The reading half of a connection.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) reading: Reading,
    pub(super) partial: PartialFrame,
    pub(super) block: IncomingBlock,
    /// Whether SETTINGS, the first frame, has arrived.
    progress: Progress,
    /// Streams above this one are reported as not processed, after the peer's GOAWAY (client).
    not_processed_above: Option<u32>,
}

/// How far the peer's connection preface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    AwaitsSettings,
    Established,
}

impl Receiver {
    pub(super) fn new(role: Role) -> Self {
        Self {
            reading: match role {
                Role::Server => Reading::Preface { received: 0 },
                Role::Client => Reading::Frame,
            },
            partial: PartialFrame::default(),
            block: IncomingBlock::default(),
            progress: Progress::AwaitsSettings,
            not_processed_above: None,
        }
    }

    /// Releases unused memory.
    pub(super) fn compact(&mut self) {
        self.partial.compact();
        self.block.compact();
    }

    /// Processes input up to the next event.
    pub(super) fn receive(
        &mut self,
        state: &mut ConnectionState,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let mut at = 0;
        loop {
            if let Some(event) = self.next_not_processed(state) {
                return Ok(Step { consumed: at, event: Some(event) });
            }
            let before = at;
            let event = match &mut self.reading {
                Reading::Frame => self.read_frame(state, input, &mut at, out)?,
                Reading::Data(data) => {
                    let received = data.receive(state, input, at, out);
                    at += received.consumed;
                    if received.is_complete {
                        self.reading = Reading::Frame;
                    }
                    received.event
                }
                Reading::Skip { bytes } => {
                    let skipped = (*bytes as usize).min(input.len() - at);
                    at += skipped;
                    *bytes -= skipped as u32;
                    if *bytes == 0 {
                        self.reading = Reading::Frame;
                    }
                    None
                }
                Reading::Preface { received } => {
                    let matched = match_preface(*received, &input[at..]).ok_or(ConnectionError::PrefaceInvalid)?;
                    at += usize::from(matched);
                    *received += matched;
                    if usize::from(*received) == CLIENT_PREFACE.len() {
                        self.reading = Reading::Frame;
                    }
                    None
                }
            };
            if let Some(waste) = state.budget.exhausted_by() {
                return Err(ConnectionError::BudgetExhausted(waste));
            }
            if event.is_some() {
                return Ok(Step { consumed: at, event });
            }
            // A frame without payload that was begun completes without further input.
            if at == input.len() && (at == before || matches!(self.reading, Reading::Frame)) {
                return Ok(Step { consumed: at, event: None });
            }
        }
    }

    /// Reads one frame, or stores a part of it.
    #[inline]
    fn read_frame(
        &mut self,
        state: &mut ConnectionState,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let rest = &input[*at..];
        if self.partial.is_empty()
            && let Some(bytes) = rest.first_chunk::<FRAME_HEADER_BYTES>()
        {
            let header = FrameHeader::parse(bytes);
            self.judge_header(state, &header)?;
            let needed = bytes_needed(&header);
            if let Some(frame) = rest.get(..needed) {
                *at += needed;
                return self.process(state, &header, &frame[FRAME_HEADER_BYTES..], out);
            }
        }
        self.read_partial(state, input, at, out)
    }

    /// Reads a frame whose parts arrive one after the other.
    fn read_partial(
        &mut self,
        state: &mut ConnectionState,
        input: &[u8],
        at: &mut usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        *at += self.partial.fill(FRAME_HEADER_BYTES, &input[*at..]);
        let Some(header) = self.partial.header() else {
            return Ok(None);
        };
        self.judge_header(state, &header)?;
        let needed = bytes_needed(&header);
        *at += self.partial.fill(needed, &input[*at..]);
        if self.partial.bytes().len() < needed {
            return Ok(None);
        }
        let frame = self.partial.take();
        let event = self.process(state, &header, &frame[FRAME_HEADER_BYTES..], out);
        self.partial.reuse(frame);
        event
    }

    /// Refuses a frame that its header alone makes invalid, before any of its payload is stored.
    #[inline]
    fn judge_header(&self, state: &ConnectionState, header: &FrameHeader) -> Result<(), ConnectionError> {
        if header.length > state.limits.frame_bytes_max {
            return Err(ConnectionError::FrameTooLarge);
        }
        if self.progress == Progress::AwaitsSettings && (header.kind != FrameType::Settings || header.has(ACK)) {
            return Err(ConnectionError::SettingsMissing);
        }
        if self.block.is_open() != (header.kind == FrameType::Continuation) {
            return Err(if self.block.is_open() {
                ConnectionError::ContinuationMissing
            } else {
                ConnectionError::ContinuationUnexpected
            });
        }
        if self.block.is_open() && self.block.stream() != Some(StreamId(header.stream)) {
            return Err(ConnectionError::ContinuationMissing);
        }
        let length_is_valid = match header.kind {
            FrameType::RstStream | FrameType::WindowUpdate => header.length == 4,
            FrameType::Ping => header.length == 8,
            FrameType::GoAway => header.length >= 8,
            FrameType::PriorityUpdate => header.length >= 4,
            FrameType::Settings if header.has(ACK) => header.length == 0,
            FrameType::Settings => header.length.is_multiple_of(6),
            _ => true,
        };
        if length_is_valid { Ok(()) } else { Err(ConnectionError::FrameLengthInvalid) }
    }

    /// Processes a frame. Of DATA, `payload` is at most the padding length.
    #[inline]
    fn process(
        &mut self,
        state: &mut ConnectionState,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        match header.kind {
            FrameType::Headers => self.block.receive_headers(state, header, payload, out),
            FrameType::Data => {
                let pad_length = if header.has(PADDED) { payload.first().copied() } else { None };
                let (data, event) = begin_data(state, header, pad_length, out)?;
                self.reading = Reading::Data(data);
                Ok(event)
            }
            FrameType::Continuation => self.block.receive_continuation(state, header, payload, out),
            _ => self.process_control(state, header, payload, out),
        }
    }

    fn process_control(
        &mut self,
        state: &mut ConnectionState,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let is_of_connection = matches!(
            header.kind,
            FrameType::Settings | FrameType::Ping | FrameType::GoAway | FrameType::PriorityUpdate
        );
        let is_of_stream = matches!(header.kind, FrameType::Priority | FrameType::RstStream | FrameType::PushPromise);
        if is_of_connection && header.stream != 0 {
            return Err(ConnectionError::StreamIdUnexpected);
        }
        if is_of_stream && header.stream == 0 {
            return Err(ConnectionError::StreamIdMissing);
        }
        match header.kind {
            FrameType::Settings => self.receive_settings(state, header, payload, out),
            FrameType::Ping => Ok(receive_ping(state, header, payload, out)),
            FrameType::GoAway => Ok(Some(self.receive_goaway(state, payload))),
            FrameType::WindowUpdate => receive_window_update(state, header, payload, out),
            FrameType::RstStream => receive_rst_stream(state, header, payload),
            FrameType::Priority => receive_priority(state, header, payload, out),
            FrameType::PriorityUpdate => receive_priority_update(state, payload),
            //= RFC 9113 §8.4: a client cannot push, and this client has disabled push
            FrameType::PushPromise => Err(ConnectionError::PushUnexpected),
            FrameType::Data | FrameType::Headers | FrameType::Continuation | FrameType::Unknown => {
                state.charge(Waste::Ignored);
                self.reading = Reading::Skip { bytes: header.length };
                Ok(None)
            }
        }
    }

    fn receive_settings(
        &mut self,
        state: &mut ConnectionState,
        header: &FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        if header.has(ACK) {
            receive_settings_ack(state);
            return Ok(None);
        }
        let (was_writable, before) = (state.is_writable(), state.peer);
        match self.progress {
            Progress::Established => state.charge(Waste::Settings),
            Progress::AwaitsSettings => state.peer.begin(),
        }
        self.progress = Progress::Established;
        let peer_role = if state.role == Role::Server { Role::Client } else { Role::Server };
        state.peer.apply(payload, peer_role)?;
        let difference = i64::from(state.peer.initial_window_bytes) - i64::from(before.initial_window_bytes);
        if difference != 0 {
            let changed = state.streams.change_send_windows(difference);
            changed.map_err(|_| ConnectionError::InitialWindowInvalid)?;
        }
        if state.peer.header_table_bytes != before.header_table_bytes {
            state.encoder.set_peer_table_bytes(state.peer.header_table_bytes);
        }
        write_frame(out, FrameType::Settings, ACK, 0, &[]);
        Ok((!was_writable && state.is_writable()).then_some(Event::Writable))
    }

    fn receive_goaway(&mut self, state: &mut ConnectionState, payload: &[u8]) -> Event {
        state.charge(Waste::Ignored);
        let last_stream = read_u32(payload) & 0x7fff_ffff;
        let code = ErrorCode(read_u32(&payload[4..]));
        state.peer_goaway = Some(last_stream);
        if state.role == Role::Client {
            self.not_processed_above = Some(last_stream);
        }
        Event::GoAway { last_stream, code }
    }

    /// Closes and reports one of the streams that the peer's GOAWAY excludes (RFC 9113 §6.8).
    #[inline]
    fn next_not_processed(&mut self, state: &mut ConnectionState) -> Option<Event> {
        let last_stream = self.not_processed_above?;
        let Some(slot) = state.streams.find_above(last_stream) else {
            self.not_processed_above = None;
            return None;
        };
        let stream = state.streams.get(slot);
        let stream_id = stream.id;
        if stream.remote != Side::Ended {
            state.resets.remember(stream_id, stream.receive_window);
        }
        state.streams.remove(slot);
        Some(Event::Reset { stream: stream_id, code: ErrorCode::REFUSED_STREAM, cause: ResetCause::NotProcessed })
    }
}

/// Applies those of our settings that the peer must know before they hold.
fn receive_settings_ack(state: &mut ConnectionState) {
    if state.settings_deadline.take().is_none() {
        return state.charge(Waste::Ignored);
    }
    if state.limits.decoder_table_bytes_max != INITIAL_TABLE_BYTES as u32 {
        state.decoder.set_table_bytes_max(state.limits.decoder_table_bytes_max as usize);
    }
    if state.limits.stream_window_bytes < WINDOW_INITIAL {
        let difference = state.limits.stream_window_bytes as i32 - WINDOW_INITIAL as i32;
        state.streams.change_receive_windows(difference);
        state.resets.change_windows(difference);
        state.stream_window_bytes = state.limits.stream_window_bytes;
    }
}

fn receive_ping(state: &mut ConnectionState, header: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Option<Event> {
    let payload = *payload.first_chunk::<8>()?;
    if !header.has(ACK) {
        state.charge(Waste::Ping);
        write_frame(out, FrameType::Ping, ACK, 0, &payload);
        return None;
    }
    if payload == SHUTDOWN_PING && matches!(state.shutdown, Shutdown::Announced { .. }) {
        state.finish_shutdown(out);
        return None;
    }
    if state.pings == 0 {
        state.charge(Waste::Ping);
        return None;
    }
    state.pings -= 1;
    Some(Event::PingAcknowledged { payload })
}

fn receive_window_update(
    state: &mut ConnectionState,
    header: &FrameHeader,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<Event>, ConnectionError> {
    let increment = read_u32(payload) & 0x7fff_ffff;
    let small_or_large = if increment < SMALL_INCREMENT_BYTES { Waste::SmallWindowUpdate } else { Waste::WindowUpdate };
    let was_writable = state.is_writable();
    if header.stream == 0 {
        state.charge(small_or_large);
        if increment == 0 {
            return Err(ConnectionError::WindowIncrementZero);
        }
        state.send_window.change(i64::from(increment)).map_err(|_| ConnectionError::WindowOverflow)?;
    } else if let Some(slot) = state.streams.find(StreamId(header.stream)) {
        state.charge(small_or_large);
        if increment == 0 {
            return Ok(Some(state.violation(slot, StreamError::StreamWindowIncrementZero, out)));
        }
        if state.streams.get_mut(slot).send_window.change(i64::from(increment)).is_err() {
            return Ok(Some(state.violation(slot, StreamError::StreamWindowOverflow, out)));
        }
        state.streams.reschedule(slot);
    } else if state.is_idle(header.stream) {
        return Err(ConnectionError::StreamIdle);
    } else {
        state.charge(Waste::FrameOnClosedStream);
    }
    Ok((!was_writable && state.is_writable()).then_some(Event::Writable))
}

fn receive_rst_stream(
    state: &mut ConnectionState,
    header: &FrameHeader,
    payload: &[u8],
) -> Result<Option<Event>, ConnectionError> {
    let (stream, code) = (StreamId(header.stream), ErrorCode(read_u32(payload)));
    let Some(slot) = state.streams.find(stream) else {
        if state.is_idle(header.stream) {
            return Err(ConnectionError::StreamIdle);
        }
        state.charge(Waste::FrameOnClosedStream);
        state.resets.forget(stream);
        return Ok(None);
    };
    if state.streams.get(slot).local != Side::Ended && state.role == Role::Server {
        state.charge(Waste::ResetByPeer);
    }
    state.streams.remove(slot);
    Ok(Some(Event::Reset { stream, code, cause: ResetCause::Peer }))
}

/// Processes PRIORITY of RFC 7540, which is otherwise ignored (RFC 9113 §5.3.2).
fn receive_priority(
    state: &mut ConnectionState,
    header: &FrameHeader,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<Event>, ConnectionError> {
    state.charge(Waste::Priority);
    let error = if payload.len() != 5 {
        StreamError::PriorityLengthInvalid
    } else if read_u32(payload) & 0x7fff_ffff == header.stream {
        StreamError::SelfDependency
    } else {
        return Ok(None);
    };
    match (state.streams.find(StreamId(header.stream)), error) {
        (Some(slot), _) => Ok(Some(state.violation(slot, error, out))),
        // RST_STREAM is not permitted on an idle stream.
        (None, StreamError::PriorityLengthInvalid) => Err(ConnectionError::FrameLengthInvalid),
        (None, _) => Err(ConnectionError::StreamIdInvalid),
    }
}

/// Applies PRIORITY_UPDATE (RFC 9218 §7.1), or keeps it until its stream is opened.
fn receive_priority_update(state: &mut ConnectionState, payload: &[u8]) -> Result<Option<Event>, ConnectionError> {
    let id = read_u32(payload) & 0x7fff_ffff;
    if state.role == Role::Client || !state.is_peer_stream(id) {
        return Err(ConnectionError::PriorityUpdateInvalid);
    }
    state.charge(Waste::Priority);
    let (stream, priority) = (StreamId(id), Priority::parse(&payload[4..]));
    if let Some(slot) = state.streams.find(stream) {
        state.streams.get_mut(slot).priority_source = PrioritySource::Frame;
        state.streams.set_priority(slot, priority);
    } else if state.is_idle(id) {
        state.early_priorities.retain(|(early, _)| *early != stream);
        if state.early_priorities.len() == EARLY_PRIORITIES_MAX {
            state.early_priorities.remove(0);
        }
        state.early_priorities.push((stream, priority));
    }
    Ok(None)
}
