//! One HTTP/2 connection (RFC 9113), of a server or of a client.

mod event;

pub use event::{Content, End, Event, FieldSection, Millis, ResetCause, Role, Section, Step, StreamId, Turn};

use super::error::{ConnectionError, ErrorCode, OpenError, SendError, StreamError};
use super::limits::Http2Limits;
use super::priority::Priority;
use super::settings::PeerSettings;

/// The state of one connection. See the [module documentation](super) for the loop of a driver.
#[derive(Debug)]
pub struct Connection {}

impl Connection {
    /// Creates the state of a new connection. Nothing is allocated until the peer opens a stream.
    pub fn new(role: Role, limits: &Http2Limits, now: Millis) -> Self {
        unimplemented!("{role:?} {limits:?} {now:?}")
    }

    /// Writes the connection preface: SETTINGS, and WINDOW_UPDATE for the connection's window. To be called
    /// once, before anything else.
    pub fn start(&mut self, out: &mut Vec<u8>) {
        unimplemented!("{out:?}")
    }

    /// Processes received bytes up to the next event. Replies such as acknowledgements are appended to `out`.
    ///
    /// The driver calls it again with the bytes after [`Step::consumed`] until [`Step::event`] is `None`. Then
    /// all of `input` is consumed: partial frames are kept inside, except for content, which is delivered as it
    /// arrives. A call with an empty `input` is permitted.
    ///
    /// # Errors
    /// The peer violated the protocol, or its budget is exhausted. `out` then ends with GOAWAY; the driver sends it
    /// and closes the connection. Later calls return the same error.
    pub fn receive(&mut self, input: &[u8], now: Millis, out: &mut Vec<u8>) -> Result<Step, ConnectionError> {
        unimplemented!("{input:?} {now:?} {out:?}")
    }

    /// Sets the length of the content that the peer announces for a stream, in bytes: the value of Content-Length.
    ///
    /// To be called after [`Event::Headers`], and not for a response to HEAD or with status 304. Content of
    /// another length resets the stream with [`StreamError::ContentLengthMismatch`] (RFC 9113 §8.1.1).
    ///
    /// # Errors
    /// The stream has already ended with another length. It is reset.
    pub fn expect_content(&mut self, stream: StreamId, length: u64, out: &mut Vec<u8>) -> Result<(), StreamError> {
        unimplemented!("{stream:?} {length} {out:?}")
    }

    /// Opens a stream with a request head (client). `write` appends the field block.
    ///
    /// # Errors
    /// The peer's limit of streams is reached, or the connection is ending.
    pub fn open(
        &mut self,
        end: End,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<StreamId, OpenError> {
        write(out);
        unimplemented!("{end:?}")
    }

    /// Sends a field section on a stream: an interim response, the head of a response, or trailers.
    ///
    /// `write` appends the field block; pieces that were encoded before, without reference to the dynamic table, may
    /// be appended as they are. A long block is split into CONTINUATION frames. Trailers always end the stream.
    ///
    /// # Errors
    /// The stream is closed, or the section is not permitted now. `write` is then not called.
    pub fn send_fields(
        &mut self,
        stream: StreamId,
        section: Section,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), SendError> {
        write(out);
        unimplemented!("{stream:?} {section:?}")
    }

    /// Sets whether the driver has content of a stream to send. A stream with content and a window takes its turn
    /// in [`Connection::next_to_send`].
    pub fn set_content(&mut self, stream: StreamId, content: Content) {
        unimplemented!("{stream:?} {content:?}")
    }

    /// Returns the stream that sends next and how much, or `None` if no stream has content and a window.
    ///
    /// The most urgent stream is first (RFC 9218). Streams of one urgency take turns: of
    /// [`Http2Limits::turn_bytes`], or of one frame if they are incremental. The call itself changes nothing;
    /// [`Connection::begin_data`] does. Cost: constant.
    pub fn next_to_send(&mut self) -> Option<Turn> {
        unimplemented!()
    }

    /// Returns how many bytes one DATA frame of a stream may have now: the least of the stream's window, the
    /// connection's window and the frame size. 0 if the stream is closed.
    pub fn sendable(&self, stream: StreamId) -> usize {
        unimplemented!("{stream:?}")
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
        unimplemented!("{stream:?} {length} {end:?} {out:?}")
    }

    /// Reports that the driver has consumed content of a stream, which reopens the windows. WINDOW_UPDATE is written
    /// when half of a window is consumed.
    ///
    /// Every byte of every [`Event::Data`] must be reported once, also if it is discarded, and also if the stream is
    /// closed: the connection's window depends on it.
    pub fn consumed(&mut self, stream: StreamId, bytes: usize, out: &mut Vec<u8>) {
        unimplemented!("{stream:?} {bytes} {out:?}")
    }

    /// Resets a stream. Nothing happens if it is closed. No [`Event::Reset`] follows.
    ///
    /// Codes that blame the peer cost its budget: `PROTOCOL_ERROR`, `FLOW_CONTROL_ERROR`, `STREAM_CLOSED`,
    /// `FRAME_SIZE_ERROR`, `REFUSED_STREAM`, `ENHANCE_YOUR_CALM`.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode, out: &mut Vec<u8>) {
        unimplemented!("{stream:?} {code:?} {out:?}")
    }

    /// Sends PING with this payload. Its acknowledgement is [`Event::PingAcknowledged`].
    pub fn ping(&mut self, payload: [u8; 8], out: &mut Vec<u8>) {
        unimplemented!("{payload:?} {out:?}")
    }

    /// Begins a graceful shutdown (RFC 9113 §6.8): sends GOAWAY that refuses nothing yet, and PING. After the
    /// acknowledgement or [`Http2Limits::shutdown_notice_ms`], GOAWAY with the last stream follows, and later
    /// streams are ignored. The driver closes the connection when [`Connection::is_finished`].
    pub fn begin_shutdown(&mut self, now: Millis, out: &mut Vec<u8>) {
        unimplemented!("{now:?} {out:?}")
    }

    /// Whether no stream is open and none will be: after a shutdown, or after GOAWAY from the peer.
    pub fn is_finished(&self) -> bool {
        unimplemented!()
    }

    /// Returns when [`Connection::expired`] is to be called, if anything is awaited.
    pub fn deadline(&self) -> Option<Millis> {
        unimplemented!()
    }

    /// Acts on a deadline that has passed: the peer did not acknowledge SETTINGS, or did not notice the shutdown.
    ///
    /// # Errors
    /// [`ConnectionError::SettingsTimeout`]. `out` then ends with GOAWAY.
    pub fn expired(&mut self, now: Millis, out: &mut Vec<u8>) -> Result<(), ConnectionError> {
        unimplemented!("{now:?} {out:?}")
    }

    /// Releases the memory that an idle connection does not need. The dynamic tables are kept.
    pub fn compact(&mut self) {
        unimplemented!()
    }

    /// Returns the number of open streams.
    pub fn open_streams(&self) -> usize {
        unimplemented!()
    }

    /// Changes the priority of a stream, for example by the field Priority of a request or of a response (RFC 9218
    /// §4 and §8). PRIORITY_UPDATE frames of the peer are applied by the core.
    pub fn set_priority(&mut self, stream: StreamId, priority: Priority) {
        unimplemented!("{stream:?} {priority:?}")
    }

    /// Returns the settings of the peer, with defaults until they arrive.
    pub fn peer_settings(&self) -> &PeerSettings {
        unimplemented!()
    }
}
