//! What a connection reports, and the values that its driver passes.

use crate::field_section::{SectionLimit, StreamEnd};
use crate::http2::error::{ErrorCode, StreamError};
use core::fmt;
use core::ops::Range;

/// A moment, in milliseconds since a moment that the driver chooses. It never decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// The side of a connection that this endpoint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It receives requests.
    Server,
    /// It sends requests.
    Client,
}

/// The identifier of a stream (RFC 9113 §5.1.1): 1 to 2^31-1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u32);

impl StreamId {
    /// Returns the stream of a number, unless it is 0 or above 2^31-1.
    pub const fn new(number: u32) -> Option<Self> {
        if number == 0 || number > i32::MAX as u32 { None } else { Some(Self(number)) }
    }

    /// Returns the identifier as a number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Whether a frame ends its side of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// More frames follow.
    More,
    /// It is the last frame of the stream in this direction: END_STREAM.
    Last,
}

impl From<End> for StreamEnd {
    fn from(end: End) -> Self {
        match end {
            End::More => Self::Open,
            End::Last => Self::Ended,
        }
    }
}

/// A field section to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// An interim response (status 1xx). Only servers send it, before the head.
    Interim,
    /// The head of a response.
    Head(End),
    /// Trailers, which end the stream.
    Trailers,
}

/// Whether the driver has content of a stream to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Content or the end of the stream can be sent.
    Ready,
    /// Nothing can be sent until the application delivers more.
    Waiting,
}

/// What [`super::Connection::fields`] has after [`Event::Headers`] or [`Event::Trailers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSection {
    /// A new section.
    New,
    /// The section equals the one of the previous event of this kind, and no other event with fields was between
    /// them. A head that was built from it can be used again; if none could be built, the section is to be read again.
    Repeated,
    /// The section exceeds a limit; the fields before it are there. A server responds with status 431.
    TooLarge(SectionLimit),
}

/// The result of processing input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the input that were consumed.
    pub consumed: usize,
    /// What happened. `None`: all input is consumed.
    pub event: Option<Event>,
}

/// What a peer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A head arrived: of a request, of a response, or of an interim response. Its fields are in
    /// [`super::Connection::fields`] until the next call of [`super::Connection::receive`].
    ///
    /// The driver applies the message rules, and resets the stream with `PROTOCOL_ERROR` if they are violated.
    Headers {
        /// The stream; new, if this endpoint is a server.
        stream: StreamId,
        /// Whether content or trailers follow.
        end: End,
        /// What the fields are.
        section: FieldSection,
    },
    /// Content arrived. Each byte must be reported to [`super::Connection::consumed`].
    Data {
        /// The stream.
        stream: StreamId,
        /// Where the content is in the input of this call. Empty if only the end of the stream arrived.
        content: Range<usize>,
        /// Whether more follows.
        end: End,
    },
    /// Trailers arrived, which end the stream. Their fields are in [`super::Connection::fields`].
    Trailers {
        /// The stream.
        stream: StreamId,
        /// What the fields are.
        section: FieldSection,
    },
    /// A stream is closed before both sides have ended it. A server may receive it for a stream that was refused
    /// and had no [`Event::Headers`]; a client with `NO_ERROR` after a complete response, if the server needs no more
    /// content (RFC 9113 §8.1).
    Reset {
        /// The stream.
        stream: StreamId,
        /// The error code.
        code: ErrorCode,
        /// Which side reset it, and why.
        cause: ResetCause,
    },
    /// A window has opened, so [`super::Connection::next_to_send`] may return a stream again.
    Writable,
    /// The peer ends the connection: it processes no stream above `last_stream`.
    GoAway {
        /// The last stream that the peer may have processed; 0 for none.
        last_stream: u32,
        /// The error code.
        code: ErrorCode,
    },
    /// The peer acknowledged [`super::Connection::ping`].
    PingAcknowledged {
        /// The payload of that PING.
        payload: [u8; 8],
    },
}

/// Which side reset a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetCause {
    /// The peer.
    Peer,
    /// This endpoint, as the peer violated a rule.
    Violation(StreamError),
    /// The peer's GOAWAY excludes the stream: it was not processed, and the request can be repeated (client).
    NotProcessed,
}

/// Which flow-control window is meant (RFC 9113 §5.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOf {
    /// That of one stream.
    Stream,
    /// That of the connection, which all streams share.
    Connection,
}

/// The stream that sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The stream.
    pub stream: StreamId,
    /// Most bytes of its next DATA frame, at least 1.
    pub bytes_max: usize,
}
