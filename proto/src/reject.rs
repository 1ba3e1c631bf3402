//! The reasons to refuse a request. Each has one status code, one persistence and one message.

use crate::status::StatusCode;
use core::fmt;

/// Whether a connection persists after a response (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The connection accepts another request.
    KeepAlive,
    /// The connection is closed after this response.
    Close,
}

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident => $status:ident, $persistence:ident, $message:literal;)+) => {
        /// The reason why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reject { $($(#[$doc])* $name,)+ }

        impl Reject {
            /// All reasons, for tables and counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the status code of the response.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            /// Returns whether the connection persists after the response.
            pub const fn persistence(self) -> Persistence {
                match self { $(Self::$name => Persistence::$persistence,)+ }
            }

            /// Returns one sentence that states the reason, for the client and the log. It never
            /// contains bytes of the peer.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)+ }
            }

            /// Returns the variant's name, which the error log and the case files use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

rejects! {
    /// The request line is longer than its limit. RFC 9112 §3
    RequestLineTooLong => URI_TOO_LONG, Close, "the request line is too long";
    /// The method token is longer than any method that is implemented. RFC 9112 §3
    MethodTooLong => NOT_IMPLEMENTED, Close, "the method is too long";
    /// The request line is not `method SP target SP version`. RFC 9112 §3
    RequestLineInvalid => BAD_REQUEST, Close, "the request line is invalid";
    /// The request line has no version, as in HTTP/0.9. RFC 9112 §3
    VersionMissing => BAD_REQUEST, Close, "the request line has no HTTP version";
    /// The version is not `HTTP/DIGIT.DIGIT`. RFC 9112 §2.3
    VersionInvalid => BAD_REQUEST, Close, "the HTTP version is invalid";
    /// The major version is not 1. RFC 9110 §15.6.6
    VersionNotSupported => HTTP_VERSION_NOT_SUPPORTED, Close, "this HTTP version is not supported";
    /// The target has a byte that is not allowed in a URI. RFC 9112 §3.2
    TargetInvalid => BAD_REQUEST, Close, "the request target is invalid";
    /// The target's form does not fit the method. RFC 9112 §3.2
    TargetFormInvalid => BAD_REQUEST, Close, "the form of the request target does not fit the method";
    /// A line ends in LF alone. RFC 9112 §2.2
    BareLineFeed => BAD_REQUEST, Close, "a line ends without a carriage return";
    /// A CR is not followed by LF. RFC 9112 §2.2
    BareCarriageReturn => BAD_REQUEST, Close, "a carriage return is not followed by a line feed";
    /// A field line begins with white space. RFC 9112 §2.2, §5.2
    FieldLineFolded => BAD_REQUEST, Close, "a field line begins with white space";
    /// White space precedes the colon. RFC 9112 §5.1
    WhitespaceBeforeColon => BAD_REQUEST, Close, "white space precedes the colon of a field line";
    /// A field line has no colon. RFC 9112 §5
    ColonMissing => BAD_REQUEST, Close, "a field line has no colon";
    /// A field name is empty or not a token. RFC 9110 §5.1
    FieldNameInvalid => BAD_REQUEST, Close, "a field name has a character that is not allowed";
    /// A field value has a control character. RFC 9110 §5.5
    FieldValueInvalid => BAD_REQUEST, Close, "a field value has a character that is not allowed";
    /// The head is longer than its limit. RFC 6585 §5
    HeadTooLarge => REQUEST_HEADER_FIELDS_TOO_LARGE, Close, "the request head is too large";
    /// The head has more field lines than allowed. RFC 6585 §5
    TooManyFields => REQUEST_HEADER_FIELDS_TOO_LARGE, Close, "the request has too many fields";
    /// The request is HTTP/1.1 and has no Host. RFC 9112 §3.2
    HostMissing => BAD_REQUEST, Close, "the Host field is missing";
    /// The head has more than one Host line. RFC 9112 §3.2
    HostRepeated => BAD_REQUEST, Close, "the Host field is repeated";
    /// Host or the target's authority is not `uri-host [":" port]`. RFC 9112 §3.2
    HostInvalid => BAD_REQUEST, Close, "the host is invalid";
    /// Content-Length and Transfer-Encoding are both present. RFC 9112 §6.3
    ContentLengthWithTransferEncoding => BAD_REQUEST, Close, "both Content-Length and Transfer-Encoding are present";
    /// Content-Length is not `1*DIGIT`, or the number is too large. RFC 9110 §8.6
    ContentLengthInvalid => BAD_REQUEST, Close, "Content-Length is invalid";
    /// The head has more than one Content-Length, equal or not. RFC 9112 §6.3
    ContentLengthRepeated => BAD_REQUEST, Close, "Content-Length is repeated";
    /// The request is HTTP/1.0 and has Transfer-Encoding. RFC 9112 §6.1
    TransferEncodingInHttp10 => BAD_REQUEST, Close, "Transfer-Encoding is not part of HTTP/1.0";
    /// Transfer-Encoding is invalid, repeated, or does not end in chunked. RFC 9112 §6.1, §6.3
    TransferEncodingInvalid => BAD_REQUEST, Close, "Transfer-Encoding is invalid";
    /// The transfer coding is not implemented. RFC 9112 §6.1
    TransferEncodingNotSupported => NOT_IMPLEMENTED, Close, "this transfer coding is not supported";
    /// The expectation is not 100-continue. RFC 9110 §10.1.1
    ExpectationNotSupported => EXPECTATION_FAILED, Close, "this expectation is not supported";
    /// A chunk size is not `1*HEXDIG`, or the number is too large. RFC 9112 §7.1
    ChunkSizeInvalid => BAD_REQUEST, Close, "a chunk size is invalid";
    /// A chunk extension has a byte that is not allowed. RFC 9112 §7.1.1
    ChunkExtensionInvalid => BAD_REQUEST, Close, "a chunk extension is invalid";
    /// A chunk extension is longer than its limit. RFC 9112 §7.1.1
    ChunkExtensionTooLong => BAD_REQUEST, Close, "a chunk extension is too long";
    /// Chunk data is not followed by CRLF. RFC 9112 §7.1
    ChunkDataNotTerminated => BAD_REQUEST, Close, "chunk data is not followed by CRLF";
    /// The chunks have more framing bytes than the content permits. RFC 9112 §7.1
    ChunkOverheadTooLarge => BAD_REQUEST, Close, "the chunks are too small";
    /// A line of the trailer section is not a field line. RFC 9112 §7.1.2
    TrailerInvalid => BAD_REQUEST, Close, "a trailer field is invalid";
    /// A trailer field is for framing, routing or authorization. RFC 9110 §6.5.1
    TrailerForbidden => BAD_REQUEST, Close, "a field is not allowed in the trailer section";
    /// The trailer section is longer than its limit. RFC 6585 §5
    TrailersTooLarge => REQUEST_HEADER_FIELDS_TOO_LARGE, Close, "the trailer section is too large";
    /// The content is larger than the application accepts. RFC 9110 §15.5.14
    ContentTooLarge => CONTENT_TOO_LARGE, Close, "the request content is too large";
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for Reject {}
