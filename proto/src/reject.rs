//! Why a request is refused. One variant, one reason, one status, one fate.

use crate::status::Status;
use core::fmt;

/// What happens to the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// The next request may follow on this connection.
    KeepOpen,
    /// The connection ends after this answer.
    Close,
}

macro_rules! rejects {
    ($($(#[$doc:meta])* $name:ident => $status:ident, $fate:ident, $text:literal;)+) => {
        /// Why a request is refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reject { $($(#[$doc])* $name,)+ }

        impl Reject {
            /// Every reason there is, for tables and counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The status of the answer.
            pub const fn status(self) -> Status {
                match self { $(Self::$name => Status::$status,)+ }
            }

            /// Whether the connection outlives the answer.
            pub const fn afterwards(self) -> Afterwards {
                match self { $(Self::$name => Afterwards::$fate,)+ }
            }

            /// One sentence that names the reason, for the client and the log. It never
            /// repeats what the peer sent.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The variant's name, as the log and the case files write it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

rejects! {
    /// The request line is longer than its limit. RFC 9112 §3
    RequestLineTooLong => URI_TOO_LONG, Close, "the request line is too long";
    /// The method token is longer than any that is implemented. RFC 9112 §3
    MethodTooLong => NOT_IMPLEMENTED, Close, "the method is too long";
    /// The request line is not `method SP target SP version`. RFC 9112 §3
    RequestLineMalformed => BAD_REQUEST, Close, "the request line is malformed";
    /// The request line has no version, as in HTTP/0.9. RFC 9112 §3
    VersionMissing => BAD_REQUEST, Close, "the request line names no HTTP version";
    /// The version is no `HTTP/DIGIT.DIGIT`. RFC 9112 §2.3
    VersionMalformed => BAD_REQUEST, Close, "the HTTP version is malformed";
    /// The major version is not 1. RFC 9110 §15.6.6
    VersionNotSupported => VERSION_NOT_SUPPORTED, Close, "this HTTP version is not supported here";
    /// The target has an octet that no URI has. RFC 9112 §3.2
    TargetMalformed => BAD_REQUEST, Close, "the request target is malformed";
    /// The target's form does not fit the method. RFC 9112 §3.2
    TargetFormWrong => BAD_REQUEST, Close, "the form of the request target does not fit the method";
    /// A line ends in LF alone. RFC 9112 §2.2
    BareLineFeed => BAD_REQUEST, Close, "a line ends without a carriage return";
    /// A CR is not followed by LF. RFC 9112 §2.2
    BareCarriageReturn => BAD_REQUEST, Close, "a carriage return stands alone";
    /// A field line begins with white space. RFC 9112 §2.2, §5.2
    FoldedLine => BAD_REQUEST, Close, "a field line begins with white space";
    /// White space stands before the colon. RFC 9112 §5.1
    SpaceBeforeColon => BAD_REQUEST, Close, "white space stands between a field name and its colon";
    /// A field line has no colon. RFC 9112 §5
    FieldWithoutColon => BAD_REQUEST, Close, "a field line has no colon";
    /// A field name is empty or no token. RFC 9110 §5.1
    FieldNameInvalid => BAD_REQUEST, Close, "a field name has an octet that is not allowed";
    /// A field value has a control octet. RFC 9110 §5.5
    FieldValueInvalid => BAD_REQUEST, Close, "a field value has an octet that is not allowed";
    /// The head is longer than its limit. RFC 6585 §5
    HeadTooLarge => FIELDS_TOO_LARGE, Close, "the request head is too large";
    /// The head has more field lines than allowed. RFC 6585 §5
    TooManyFields => FIELDS_TOO_LARGE, Close, "the request has too many fields";
    /// HTTP/1.1 without Host. RFC 9112 §3.2
    HostMissing => BAD_REQUEST, Close, "the Host field is missing";
    /// More than one Host line. RFC 9112 §3.2
    HostRepeated => BAD_REQUEST, Close, "there is more than one Host field";
    /// Host or the target's authority is no `uri-host [":" port]`. RFC 9112 §3.2
    HostInvalid => BAD_REQUEST, Close, "the host is invalid";
    /// Content-Length beside Transfer-Encoding. RFC 9112 §6.3
    TwoFramings => BAD_REQUEST, Close, "both Content-Length and Transfer-Encoding are present";
    /// Content-Length is no `1*DIGIT`, or is too large a number. RFC 9110 §8.6
    ContentLengthInvalid => BAD_REQUEST, Close, "Content-Length is invalid";
    /// More than one Content-Length, equal or not. RFC 9112 §6.3
    ContentLengthRepeated => BAD_REQUEST, Close, "there is more than one Content-Length";
    /// Transfer-Encoding in HTTP/1.0. RFC 9112 §6.1
    TransferEncodingInHttp10 => BAD_REQUEST, Close, "Transfer-Encoding is not part of HTTP/1.0";
    /// Transfer-Encoding is malformed, repeated, or does not end in chunked. RFC 9112 §6.1, §6.3
    TransferEncodingInvalid => BAD_REQUEST, Close, "Transfer-Encoding is invalid";
    /// A transfer coding that is not implemented. RFC 9112 §6.1
    TransferEncodingUnknown => NOT_IMPLEMENTED, Close, "this transfer coding is not implemented";
    /// An expectation other than 100-continue. RFC 9110 §10.1.1
    ExpectationUnknown => EXPECTATION_FAILED, Close, "this expectation cannot be met";
    /// A chunk size is no `1*HEXDIG`, or is too large a number. RFC 9112 §7.1
    ChunkSizeInvalid => BAD_REQUEST, Close, "a chunk size is invalid";
    /// A chunk extension has an octet that is not allowed. RFC 9112 §7.1.1
    ChunkExtensionInvalid => BAD_REQUEST, Close, "a chunk extension is invalid";
    /// A chunk extension is longer than its limit. RFC 9112 §7.1.1
    ChunkExtensionTooLong => BAD_REQUEST, Close, "a chunk extension is too long";
    /// Chunk data is not followed by CRLF. RFC 9112 §7.1
    ChunkDataUnterminated => BAD_REQUEST, Close, "chunk data does not end where its size says";
    /// The chunks cost more framing than they carry content. RFC 9112 §7.1
    ChunkOverhead => BAD_REQUEST, Close, "the chunks are too small for what they carry";
    /// A trailer line is no field line. RFC 9112 §7.1.2
    TrailerMalformed => BAD_REQUEST, Close, "a trailer field is malformed";
    /// A trailer names a field that frames, routes or authorizes. RFC 9110 §6.5.1
    TrailerForbidden => BAD_REQUEST, Close, "a trailer names a field that is not allowed there";
    /// The trailer section is longer than its limit. RFC 6585 §5
    TrailersTooLarge => FIELDS_TOO_LARGE, Close, "the trailer section is too large";
    /// The content is larger than the application takes. RFC 9110 §15.5.14
    ContentTooLarge => CONTENT_TOO_LARGE, Close, "the request content is too large";
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Reject {}
