//! One HTTP/2 connection (RFC 9113), of a server or of a client.

mod event;
mod memory;
mod reader;
mod receive;
mod receive_data;
mod receive_fields;
mod reset_streams;
mod send;
mod state;

pub use event::{Content, End, Event, FieldSection, Millis, ResetCause, Role, Section, Step, StreamId, Turn, WindowOf};

use super::budget::Waste;
use super::error::{ConnectionError, ErrorCode, OpenError, SendError, StreamError};
use super::frame::{CLIENT_PREFACE, FrameType, write_frame, write_goaway, write_window_update};
use super::hpack::BlockEncoder;
use super::limits::{Http2Limits, WINDOW_INITIAL};
use super::priority::Priority;
use super::settings::{PeerSettings, write_settings};
use super::stream::{PrioritySource, Stream};
use crate::field_section::DecodedFields;
use receive::Receiver;
use state::{ConnectionState, LAST_STREAM_MAX, SHUTDOWN_PING, Shutdown};

/// The state of one connection. See the [module documentation](super) for the loop of a driver.
#[derive(Debug)]
pub struct Connection {
    receiver: Receiver,
    state: ConnectionState,
    /// The error that has ended the connection.
    error: Option<ConnectionError>,
}

impl Connection {
    /// Creates the state of a new connection. Nothing is allocated until the peer opens a stream.
    pub fn new(role: Role, limits: &Http2Limits, now: Millis) -> Self {
        Self { receiver: Receiver::new(role), state: ConnectionState::new(role, limits, now), error: None }
    }

    /// Writes the connection preface: SETTINGS, and WINDOW_UPDATE for the connection's window. To be called
    /// once, before anything else.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        let state = &mut self.state;
        if state.role == Role::Client {
            out.extend_from_slice(CLIENT_PREFACE);
        }
        write_settings(state.role, &state.limits, out);
        state.settings_deadline = Some(Millis(state.now.0.saturating_add(state.limits.settings_timeout_ms)));
        if state.limits.connection_window_bytes > WINDOW_INITIAL {
            write_window_update(out, 0, state.limits.connection_window_bytes - WINDOW_INITIAL);
        }
    }

    /// Processes received bytes up to the next event. Replies such as acknowledgements are appended to `out`.
    ///
    /// The driver calls it again with the bytes after [`Step::consumed`] until [`Step::event`] is `None`. Then
    /// all of `input` is consumed: partial frames are kept inside, except for content, which is delivered as it
    /// arrives. A call with an empty `input` is permitted.
    ///
    /// # Errors
    /// The peer violated the protocol, or its budget is exhausted. `out` then ends with GOAWAY; the driver sends it
    /// and closes the connection. Later calls return that error again.
    pub fn receive(&mut self, input: &[u8], now: Millis, out: &mut Vec<u8>) -> Result<Step, ConnectionError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.state.now = self.state.now.max(now);
        self.receiver.receive(&mut self.state, input, out).map_err(|error| self.fail(error, out))
    }

    /// Returns the fields of the last [`Event::Headers`] or [`Event::Trailers`], until the next call of
    /// [`Connection::receive`].
    pub fn fields(&self) -> &DecodedFields {
        self.state.decoder.fields()
    }

    /// Sets the length of the content that the peer announces for a stream, in bytes: the value of Content-Length.
    ///
    /// To be called after [`Event::Headers`]: with 0, whatever is announced, for a response to HEAD or with status 204 or
    /// 304, and not for one that accepts CONNECT. Content of another length resets the stream with [`StreamError::ContentLengthMismatch`] (RFC 9113 §8.1.1). Nothing
    /// happens if both sides have ended the stream: then the message rules alone judge the head.
    ///
    /// # Errors
    /// The stream has already ended with another length. It is reset.
    pub fn expect_content(&mut self, stream: StreamId, length: u64, out: &mut Vec<u8>) -> Result<(), StreamError> {
        let Some(slot) = self.state.streams.find(stream) else {
            return Ok(());
        };
        if self.state.streams.get_mut(slot).expect_content(length).is_ok() {
            return Ok(());
        }
        self.state.violation(slot, StreamError::ContentLengthMismatch, out);
        Err(StreamError::ContentLengthMismatch)
    }

    /// Opens a stream with a request head (client). `write` encodes the fields.
    ///
    /// # Errors
    /// The peer's limit of streams is reached, or the connection is ending.
    pub fn open(
        &mut self,
        end: End,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut BlockEncoder<'_>),
    ) -> Result<StreamId, OpenError> {
        send::open(&mut self.state, end, out, write)
    }

    /// Sends a field section on a stream: an interim response, the head of a response, or trailers.
    ///
    /// `write` encodes the fields. A long block is split into CONTINUATION frames. Trailers always end the stream.
    ///
    /// # Errors
    /// The stream is closed, or the section is not permitted now. `write` is then not called.
    pub fn send_fields(
        &mut self,
        stream: StreamId,
        section: Section,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut BlockEncoder<'_>),
    ) -> Result<(), SendError> {
        send::send_fields(&mut self.state, stream, section, out, write)
    }

    /// Sets whether the driver has content of a stream to send. A stream with content and a window takes its turn
    /// in [`Connection::next_to_send`].
    pub fn set_content(&mut self, stream: StreamId, content: Content) {
        if let Some(slot) = self.state.streams.find(stream) {
            self.state.streams.get_mut(slot).content = content;
            self.state.streams.reschedule(slot);
        }
    }

    /// Returns the stream that sends next and how much, or `None` if no stream has content and a window.
    ///
    /// The most urgent stream is first (RFC 9218). Streams of one urgency take turns: of
    /// [`Http2Limits::turn_bytes`], or of one frame if they are incremental; the last frame of a turn may exceed it. The call itself changes nothing;
    /// [`Connection::begin_data`] does. Cost: constant.
    pub fn next_to_send(&mut self) -> Option<Turn> {
        let stream = self.state.streams.next_turn()?;
        let bytes_max = sendable_of(&self.state, stream);
        (bytes_max > 0).then_some(Turn { stream: stream.id, bytes_max: bytes_max as usize })
    }

    /// Returns how many bytes one DATA frame of a stream may have now: the least of the stream's window, the
    /// connection's window and the frame size. 0 if the stream is closed.
    pub fn sendable(&self, stream: StreamId) -> usize {
        self.state
            .streams
            .slot_of(stream)
            .map_or(0, |slot| sendable_of(&self.state, self.state.streams.get(slot)) as usize)
    }

    /// Returns whose window is closed, so that a stream cannot send content. `None` if both are open, or if the stream
    /// is closed.
    pub fn closed_window(&self, stream: StreamId) -> Option<WindowOf> {
        let stream = self.state.streams.get(self.state.streams.slot_of(stream)?);
        if stream.send_window.available() == 0 {
            return Some(WindowOf::Stream);
        }
        (self.state.send_window.available() == 0).then_some(WindowOf::Connection)
    }

    /// Writes the header of a DATA frame and accounts its payload. The driver appends exactly `length` bytes of
    /// content to `out`, or sends them after `out`.
    ///
    /// [`End::Last`] ends the stream; `length` may be 0 then, whatever the windows are.
    ///
    /// # Errors
    /// The stream is closed, has no head yet, or `length` is more than [`Connection::sendable`].
    pub fn begin_data(
        &mut self,
        stream: StreamId,
        length: usize,
        end: End,
        out: &mut Vec<u8>,
    ) -> Result<(), SendError> {
        send::begin_data(&mut self.state, stream, length, end, out)
    }

    /// Reports that the driver has consumed content of a stream, which reopens the windows. WINDOW_UPDATE is written
    /// when half of a window is consumed.
    ///
    /// Every byte of every [`Event::Data`] must be reported once, also if it is discarded, and also if the stream is
    /// closed: the connection's window depends on it.
    pub fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.state.credit_connection(bytes, out);
        if let Some(slot) = self.state.streams.find(stream) {
            self.state.credit_stream(slot, bytes, out);
        }
    }

    /// Resets a stream. Nothing happens if it is closed. No [`Event::Reset`] follows.
    ///
    /// Codes that blame the peer cost its budget: `PROTOCOL_ERROR`, `FLOW_CONTROL_ERROR`, `STREAM_CLOSED`,
    /// `FRAME_SIZE_ERROR`, `REFUSED_STREAM`, `ENHANCE_YOUR_CALM`.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(slot) = self.state.streams.find(stream) {
            self.state.reset(slot, code, out);
            if BLAMING_CODES.contains(&code) {
                self.state.charge(Waste::ResetOfPeer);
            }
        }
    }

    /// Sends PING with this payload. Its acknowledgement is [`Event::PingAcknowledged`].
    pub fn ping(&mut self, payload: [u8; 8], out: &mut Vec<u8>) {
        self.state.pings = self.state.pings.saturating_add(1);
        write_frame(out, FrameType::Ping, 0, 0, &payload);
    }

    /// Begins a graceful shutdown (RFC 9113 §6.8): sends GOAWAY that refuses nothing yet, and PING. After the
    /// acknowledgement or [`Http2Limits::shutdown_notice_ms`], GOAWAY with the last stream follows, and later
    /// streams are ignored. The driver closes the connection when [`Connection::is_finished`].
    pub fn begin_shutdown(&mut self, now: Millis, out: &mut Vec<u8>) {
        let state = &mut self.state;
        state.now = state.now.max(now);
        if state.shutdown != Shutdown::No {
            return;
        }
        if state.role == Role::Client {
            return state.finish_shutdown(out);
        }
        state.shutdown =
            Shutdown::Announced { until: Millis(state.now.0.saturating_add(state.limits.shutdown_notice_ms)) };
        write_goaway(out, LAST_STREAM_MAX, ErrorCode::NO_ERROR.0, "");
        write_frame(out, FrameType::Ping, 0, 0, &SHUTDOWN_PING);
    }

    /// Ends a graceful shutdown without its notice: sends GOAWAY with the last stream, if that was not sent. Later
    /// streams are ignored.
    pub fn finish_shutdown(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.state.shutdown, Shutdown::Final { .. }) {
            self.state.finish_shutdown(out);
        }
    }

    /// Whether no stream is open and none will be: after a shutdown, or after GOAWAY from the peer.
    pub fn is_finished(&self) -> bool {
        let state = &self.state;
        let is_ending = matches!(state.shutdown, Shutdown::Final { .. }) || state.peer_goaway.is_some();
        is_ending && state.streams.open_count() == 0
    }

    /// Returns when [`Connection::expired`] is to be called, if anything is awaited.
    pub fn deadline(&self) -> Option<Millis> {
        let shutdown = match self.state.shutdown {
            Shutdown::Announced { until } => Some(until),
            Shutdown::No | Shutdown::Final { .. } => None,
        };
        [self.state.settings_deadline, shutdown].into_iter().flatten().min()
    }

    /// Acts on a deadline that has passed: the peer did not acknowledge SETTINGS, or did not notice the shutdown.
    ///
    /// # Errors
    /// [`ConnectionError::SettingsTimeout`]. `out` then ends with GOAWAY.
    pub fn expired(&mut self, now: Millis, out: &mut Vec<u8>) -> Result<(), ConnectionError> {
        self.state.now = self.state.now.max(now);
        let now = self.state.now;
        if self.state.settings_deadline.is_some_and(|deadline| deadline <= now) {
            return Err(self.fail(ConnectionError::SettingsTimeout, out));
        }
        if matches!(self.state.shutdown, Shutdown::Announced { until } if until <= now) {
            self.state.finish_shutdown(out);
        }
        Ok(())
    }

    /// Releases the memory that an idle connection does not need. Of the dynamic tables, only that of received fields is
    /// kept: the other one is emptied on both sides by the next head.
    pub fn compact(&mut self) {
        self.receiver.compact();
        self.state.streams.compact();
        self.state.resets.compact();
        self.state.early_priorities.shrink_to_fit();
        self.state.decoder.release_buffers();
        self.state.encoder.release_buffers();
    }

    /// Returns the number of open streams.
    pub fn open_streams(&self) -> usize {
        self.state.streams.open_count()
    }

    /// Changes the priority of a stream, for example by the field Priority of a request or of a response (RFC 9218
    /// §4 and §8). The core itself applies PRIORITY_UPDATE, after which this call has no effect on the stream.
    pub fn set_priority(&mut self, stream: StreamId, priority: Priority) {
        if let Some(slot) = self.state.streams.find(stream)
            && self.state.streams.get(slot).priority_source == PrioritySource::Field
        {
            self.state.streams.set_priority(slot, priority);
        }
    }

    /// Returns the settings of the peer, with defaults until they arrive.
    pub fn peer_settings(&self) -> &PeerSettings {
        &self.state.peer
    }

    /// Ends the connection with GOAWAY.
    #[cold]
    fn fail(&mut self, error: ConnectionError, out: &mut Vec<u8>) -> ConnectionError {
        self.error = Some(error);
        write_goaway(out, self.state.last_stream(), error.code().0, error.message());
        error
    }
}

/// Returns the most bytes of one DATA frame of a stream.
#[inline]
fn sendable_of(state: &ConnectionState, stream: &Stream) -> u32 {
    let frame_bytes = state.peer.frame_bytes_max.min(state.limits.sent_frame_bytes_max);
    stream.send_window.available().min(state.send_window.available()).min(frame_bytes)
}

/// Codes of RST_STREAM that blame the peer.
const BLAMING_CODES: [ErrorCode; 6] = [
    ErrorCode::PROTOCOL_ERROR,
    ErrorCode::FLOW_CONTROL_ERROR,
    ErrorCode::STREAM_CLOSED,
    ErrorCode::FRAME_SIZE_ERROR,
    ErrorCode::REFUSED_STREAM,
    ErrorCode::ENHANCE_YOUR_CALM,
];
