//! Error codes (RFC 9113 §7), and the reasons to end a connection or a stream.

use super::budget::Waste;
use super::hpack::HpackError;
use core::fmt;

/// An error code of RST_STREAM and GOAWAY (RFC 9113 §7). Unknown codes are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

/// The codes of RFC 9113 §7 with their names.
const CODES: [(ErrorCode, &str); 14] = [
    (ErrorCode::NO_ERROR, "NO_ERROR"),
    (ErrorCode::PROTOCOL_ERROR, "PROTOCOL_ERROR"),
    (ErrorCode::INTERNAL_ERROR, "INTERNAL_ERROR"),
    (ErrorCode::FLOW_CONTROL_ERROR, "FLOW_CONTROL_ERROR"),
    (ErrorCode::SETTINGS_TIMEOUT, "SETTINGS_TIMEOUT"),
    (ErrorCode::STREAM_CLOSED, "STREAM_CLOSED"),
    (ErrorCode::FRAME_SIZE_ERROR, "FRAME_SIZE_ERROR"),
    (ErrorCode::REFUSED_STREAM, "REFUSED_STREAM"),
    (ErrorCode::CANCEL, "CANCEL"),
    (ErrorCode::COMPRESSION_ERROR, "COMPRESSION_ERROR"),
    (ErrorCode::CONNECT_ERROR, "CONNECT_ERROR"),
    (ErrorCode::ENHANCE_YOUR_CALM, "ENHANCE_YOUR_CALM"),
    (ErrorCode::INADEQUATE_SECURITY, "INADEQUATE_SECURITY"),
    (ErrorCode::HTTP_1_1_REQUIRED, "HTTP_1_1_REQUIRED"),
];

impl ErrorCode {
    /// Not the result of an error.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error of the sender.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer violated flow control.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame arrived for a stream that is half-closed or closed.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame has an invalid size.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was not processed; the request can be repeated.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// The field compression state is lost.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection of a CONNECT request failed.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The transport is less secure than required.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// The request needs HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);

    /// Returns the name of RFC 9113 §7, or `None` for an unknown code.
    pub fn name(self) -> Option<&'static str> {
        CODES.iter().find(|(code, _)| *code == self).map(|&(_, name)| name)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error code {:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! reasons {
    (
        $(#[$doc:meta])*
        pub enum $enum:ident;
        with { $($data_pattern:pat => $data_code:ident, $data_message:expr, $data_name:literal;)* }
        { $($(#[$data_doc:meta])* $data_variant:ident($data_type:ty),)* }
        $($(#[$variant_doc:meta])* $name:ident => $code:ident, $message:literal;)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $enum { $($(#[$data_doc])* $data_variant($data_type),)* $($(#[$variant_doc])* $name,)+ }

        impl $enum {
            /// Returns the error code that the peer receives.
            #[allow(unused_variables, reason = "a pattern with data also serves the message")]
            pub const fn code(self) -> ErrorCode {
                match self { $($data_pattern => ErrorCode::$data_code,)* $(Self::$name => ErrorCode::$code,)+ }
            }

            /// Returns one clause that states the reason, for the log. It never contains bytes of the peer.
            pub const fn message(self) -> &'static str {
                match self { $($data_pattern => $data_message,)* $(Self::$name => $message,)+ }
            }

            /// Returns the variant's name, for the log.
            #[allow(unused_variables, reason = "a pattern with data also serves the message")]
            pub const fn name(self) -> &'static str {
                match self { $($data_pattern => $data_name,)* $(Self::$name => stringify!($name),)+ }
            }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.message())
            }
        }

        impl core::error::Error for $enum {}
    };
}

reasons! {
    /// Why a connection ends. The core has written GOAWAY with [`Self::code`]; the driver sends it and closes.
    pub enum ConnectionError;
    with {
        Self::BudgetExhausted(waste) => ENHANCE_YOUR_CALM, waste.message(), "BudgetExhausted";
        Self::CompressionInvalid(error) => COMPRESSION_ERROR, error.message(), "CompressionInvalid";
    }
    {
        /// The peer caused too much work that was thrown away. The last such work is named.
        BudgetExhausted(Waste),
        /// A field block cannot be decoded. RFC 9113 §4.3
        CompressionInvalid(HpackError),
    }
    /// The connection does not begin with the client preface. RFC 9113 §3.4
    PrefaceInvalid => PROTOCOL_ERROR, "the connection preface is invalid";
    /// The first frame is not SETTINGS. RFC 9113 §3.4
    SettingsMissing => PROTOCOL_ERROR, "the first frame is not SETTINGS";
    /// A frame is longer than the limit. RFC 9113 §4.2
    FrameTooLarge => FRAME_SIZE_ERROR, "a frame is too large";
    /// The length of a frame does not fit its type. RFC 9113 §6
    FrameLengthInvalid => FRAME_SIZE_ERROR, "the length of a frame is invalid";
    /// A frame of a stream has stream 0. RFC 9113 §6
    StreamIdMissing => PROTOCOL_ERROR, "a frame of a stream has stream identifier 0";
    /// A frame of the connection has a stream other than 0. RFC 9113 §6
    StreamIdUnexpected => PROTOCOL_ERROR, "a frame of the connection has a stream identifier";
    /// A stream that the peer opens has an identifier of the wrong parity or one that was skipped. RFC 9113 §5.1.1
    StreamIdInvalid => PROTOCOL_ERROR, "a new stream has an invalid identifier";
    /// A frame arrived for a stream that was never opened. RFC 9113 §5.1
    StreamIdle => PROTOCOL_ERROR, "a frame has an idle stream";
    /// A frame arrived for a closed stream. RFC 9113 §5.1
    StreamClosed => STREAM_CLOSED, "a frame has a closed stream";
    /// Padding is longer than the payload. RFC 9113 §6.1
    PaddingInvalid => PROTOCOL_ERROR, "the padding of a frame is too long";
    /// Another frame arrived within a field block. RFC 9113 §4.3
    ContinuationMissing => PROTOCOL_ERROR, "a field block is interrupted by another frame";
    /// CONTINUATION arrived outside of a field block. RFC 9113 §6.10
    ContinuationUnexpected => PROTOCOL_ERROR, "a CONTINUATION frame continues nothing";
    /// A field block has more CONTINUATION frames than the limit.
    ContinuationsTooMany => ENHANCE_YOUR_CALM, "a field block has too many CONTINUATION frames";
    /// A field block is longer than the limit.
    FieldBlockTooLong => ENHANCE_YOUR_CALM, "a field block is too long";
    /// PUSH_PROMISE from a client, or to a client that has disabled it. RFC 9113 §8.4
    PushUnexpected => PROTOCOL_ERROR, "a PUSH_PROMISE frame is not permitted";
    /// A setting has an invalid value. RFC 9113 §6.5.2
    SettingInvalid => PROTOCOL_ERROR, "a setting has an invalid value";
    /// `SETTINGS_INITIAL_WINDOW_SIZE` is above 2^31-1, or makes a window exceed it. RFC 9113 §6.5.2 and §6.9.2
    InitialWindowInvalid => FLOW_CONTROL_ERROR, "the initial window size is invalid";
    /// WINDOW_UPDATE of the connection by 0. RFC 9113 §6.9
    WindowIncrementZero => PROTOCOL_ERROR, "the connection's window is increased by 0";
    /// The connection's window exceeds 2^31-1. RFC 9113 §6.9.1
    WindowOverflow => FLOW_CONTROL_ERROR, "the connection's window is too large";
    /// The peer sent more content than the connection's window permits. RFC 9113 §6.9.1
    WindowExceeded => FLOW_CONTROL_ERROR, "the connection's window is exceeded";
    /// PRIORITY_UPDATE from a server, or for a stream that cannot have a priority. RFC 9218 §7.1
    PriorityUpdateInvalid => PROTOCOL_ERROR, "a PRIORITY_UPDATE frame is invalid";
    /// SETTINGS were not acknowledged in time. RFC 9113 §6.5.3
    SettingsTimeout => SETTINGS_TIMEOUT, "SETTINGS were not acknowledged in time";
}

reasons! {
    /// Why this endpoint reset a stream. The core has written RST_STREAM with [`Self::code`].
    pub enum StreamError;
    with {}
    {}
    /// The peer has as many open streams as the limit. RFC 9113 §5.1.2
    StreamsTooMany => REFUSED_STREAM, "too many streams are open";
    /// A frame arrived after END_STREAM. RFC 9113 §5.1
    HalfClosed => STREAM_CLOSED, "a frame follows the end of its stream";
    /// The peer sent more content than the stream's window permits. RFC 9113 §6.9.1
    StreamWindowExceeded => FLOW_CONTROL_ERROR, "the stream's window is exceeded";
    /// The stream's window exceeds 2^31-1. RFC 9113 §6.9.1
    StreamWindowOverflow => FLOW_CONTROL_ERROR, "the stream's window is too large";
    /// WINDOW_UPDATE of a stream by 0. RFC 9113 §6.9
    StreamWindowIncrementZero => PROTOCOL_ERROR, "the stream's window is increased by 0";
    /// A stream depends on itself. RFC 7540 §5.3.1
    SelfDependency => PROTOCOL_ERROR, "a stream depends on itself";
    /// A PRIORITY frame has another length than 5. RFC 9113 §6.3
    PriorityLengthInvalid => FRAME_SIZE_ERROR, "the length of a PRIORITY frame is invalid";
    /// A second field section does not end its stream. RFC 9113 §8.1
    TrailersWithoutEnd => PROTOCOL_ERROR, "trailers do not end their stream";
    /// DATA arrived before the head of a response. RFC 9113 §8.1
    ContentBeforeHead => PROTOCOL_ERROR, "content precedes the head";
    /// An interim response ends its stream. RFC 9113 §8.1
    InterimWithEnd => PROTOCOL_ERROR, "an interim response ends its stream";
    /// Content has another length than Content-Length, or a message that has none got content. RFC 9113 §8.1.1
    ContentLengthMismatch => PROTOCOL_ERROR, "the content has another length than the head permits";
}

/// Why something cannot be sent on a stream. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// The stream was reset or is complete.
    StreamClosed,
    /// The length exceeds [`super::Connection::sendable`].
    WindowExceeded,
    /// The field section is not permitted in the state of the stream, for example a head after a head.
    OutOfOrder,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamClosed => "the stream is closed",
            Self::WindowExceeded => "the window of the stream or of the connection is exceeded",
            Self::OutOfOrder => "the section is not permitted in the state of the stream",
        })
    }
}

impl core::error::Error for SendError {}

/// Why a client cannot open a stream now. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenError {
    /// The peer's limit of open streams is reached; a stream can be opened after another closes.
    StreamsTooMany,
    /// A GOAWAY was received or sent, or no stream identifier is left. A new connection is needed.
    ConnectionEnding,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamsTooMany => "the peer's limit of streams is reached",
            Self::ConnectionEnding => "the connection accepts no more streams",
        })
    }
}

impl core::error::Error for OpenError {}
