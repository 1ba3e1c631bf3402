//! The reasons why a received response is malformed. A gateway closes the connection and responds with 502.

use crate::reject::Reject;
use core::fmt;

macro_rules! malformed_responses {
    (
        own { $($(#[$own_doc:meta])* $own:ident => $own_message:literal;)+ }
        shared { $($(#[$doc:meta])* $name:ident => $message:literal;)+ }
    ) => {
        /// The reason why a received response is malformed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum MalformedResponse { $($(#[$own_doc])* $own,)+ $($(#[$doc])* $name,)+ }

        impl MalformedResponse {
            /// All reasons, for tables and counters.
            pub const ALL: &'static [Self] = &[$(Self::$own,)+ $(Self::$name,)+];

            /// Returns one sentence that states the reason, for the log. It never contains bytes of the peer.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$own => $own_message,)+ $(Self::$name => $message,)+ }
            }

            /// Returns the variant's name, which the error log and the case files use.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$own => stringify!($own),)+ $(Self::$name => stringify!($name),)+ }
            }
        }

        impl From<Reject> for MalformedResponse {
            /// Converts the reason of a parser that requests and responses share.
            fn from(reject: Reject) -> Self {
                match reject {
                    $(Reject::$name => Self::$name,)+
                    // The remaining reasons are about request lines and the fields of requests.
                    _ => Self::StatusLineInvalid,
                }
            }
        }
    };
}

malformed_responses! {
    own {
        /// The response does not begin with `HTTP/` digit `.` digit and a space. RFC 9112 §4
        StatusLineInvalid => "the status line is invalid";
        /// The status code is not three digits from 100 to 599. RFC 9110 §15
        StatusInvalid => "the status code is invalid";
        /// The reason phrase has a control character. RFC 9112 §4
        ReasonPhraseInvalid => "the reason phrase has a character that is not allowed";
        /// The status code is 1xx or 204, but the head announces content. RFC 9112 §6.1, RFC 9110 §8.6
        ContentNotPermitted => "the status code forbids content, but the head announces it";
        /// The response is 101, but the request did not offer an upgrade. RFC 9110 §7.8
        UpgradeNotOffered => "the response switches protocols, but the request offers no upgrade";
        /// The response is 101, and Upgrade is missing, empty or repeated. RFC 9110 §15.2.2
        UpgradeInvalid => "the response switches protocols without naming one";
        /// The response to CONNECT is 2xx. A gateway sends no CONNECT. RFC 9110 §9.3.6
        TunnelNotSupported => "the response opens a tunnel";
    }
    shared {
        /// The major version is not 1. RFC 9110 §2.5
        VersionNotSupported => "the HTTP version of the response is not supported";
        /// A line ends in LF alone. RFC 9112 §2.2
        BareLineFeed => "a line ends without a carriage return";
        /// A CR is not followed by LF. RFC 9112 §2.2
        BareCarriageReturn => "a carriage return is not followed by a line feed";
        /// A field line begins with white space. RFC 9112 §5.2
        FieldLineFolded => "a field line begins with white space";
        /// White space precedes the colon. RFC 9112 §5.1
        WhitespaceBeforeColon => "white space precedes the colon of a field line";
        /// A field line has no colon. RFC 9112 §5
        ColonMissing => "a field line has no colon";
        /// A field name is empty or not a token. RFC 9110 §5.1
        FieldNameInvalid => "a field name has a character that is not allowed";
        /// A field value has a control character. RFC 9110 §5.5
        FieldValueInvalid => "a field value has a character that is not allowed";
        /// The head is longer than its limit. RFC 9110 §5.4
        HeadTooLarge => "the response head is too large";
        /// The head has more field lines than allowed. RFC 9110 §5.4
        TooManyFields => "the response has too many fields";
        /// Content-Length and Transfer-Encoding are both present. RFC 9112 §6.3
        ContentLengthWithTransferEncoding => "both Content-Length and Transfer-Encoding are present";
        /// Content-Length is not `1*DIGIT`, or the number is too large. RFC 9110 §8.6
        ContentLengthInvalid => "Content-Length is invalid";
        /// The head has more than one Content-Length, equal or not. RFC 9112 §6.3
        ContentLengthRepeated => "Content-Length is repeated";
        /// The response is HTTP/1.0 and has Transfer-Encoding. RFC 9112 §6.1
        TransferEncodingInHttp10 => "Transfer-Encoding is not part of HTTP/1.0";
        /// Transfer-Encoding is invalid, repeated, or does not end in chunked. RFC 9112 §6.1, §6.3
        TransferEncodingInvalid => "Transfer-Encoding is invalid";
        /// The transfer coding is not implemented. RFC 9112 §6.1
        TransferEncodingNotSupported => "this transfer coding is not supported";
        /// A chunk size is not `1*HEXDIG`, or the number is too large. RFC 9112 §7.1
        ChunkSizeInvalid => "a chunk size is invalid";
        /// A chunk extension has a byte that is not allowed. RFC 9112 §7.1.1
        ChunkExtensionInvalid => "a chunk extension is invalid";
        /// A chunk extension is longer than its limit. RFC 9112 §7.1.1
        ChunkExtensionTooLong => "a chunk extension is too long";
        /// Chunk data is not followed by CRLF. RFC 9112 §7.1
        ChunkDataNotTerminated => "chunk data is not followed by CRLF";
        /// The chunks have more framing bytes than the content permits. RFC 9112 §7.1
        ChunkOverheadTooLarge => "the chunks are too small";
        /// A line of the trailer section is not a field line. RFC 9112 §7.1.2
        TrailerInvalid => "a trailer field is invalid";
        /// A trailer field is for framing, routing or authorization. RFC 9110 §6.5.1
        TrailerForbidden => "a field is not allowed in the trailer section";
        /// The trailer section is longer than its limit. RFC 9112 §7.1.2
        TrailersTooLarge => "the trailer section is too large";
    }
}

impl fmt::Display for MalformedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for MalformedResponse {}
