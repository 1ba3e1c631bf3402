//! The reasons why a field section is not a message that the server processes.

use super::decoded::SectionLimit;
use crate::reject::Reject;
use core::fmt;

macro_rules! malformed_messages {
    ($($(#[$doc:meta])* $name:ident => $message:literal;)+) => {
        /// The reason why a message is malformed. The stream is reset with PROTOCOL_ERROR in HTTP/2 (RFC 9113 §8.1.1)
        /// and H3_MESSAGE_ERROR in HTTP/3 (RFC 9114 §4.1.2).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum MalformedMessage { $($(#[$doc])* $name,)+ }

        impl MalformedMessage {
            /// All reasons, for tables and counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns one sentence that states the reason, for the log. It never contains bytes of the peer.
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)+ }
            }

            /// Returns the variant's name, which the error log uses.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }
        }
    };
}

malformed_messages! {
    /// `:method`, `:scheme`, `:path` or `:status` is absent, or `:authority` of CONNECT. RFC 9113 §8.3, §8.5
    PseudoFieldMissing => "a required pseudo-field is missing";
    /// A pseudo-field is repeated. RFC 9113 §8.3
    PseudoFieldRepeated => "a pseudo-field is repeated";
    /// A pseudo-field is unknown or not defined for this section. RFC 9113 §8.3
    PseudoFieldNotPermitted => "a pseudo-field is not permitted here";
    /// A pseudo-field follows another field. RFC 9113 §8.3
    PseudoFieldMisplaced => "a pseudo-field follows another field";
    /// CONNECT has `:scheme` or `:path`, but no `:protocol`. RFC 9113 §8.5
    ConnectHasPath => "a CONNECT request has a scheme or a path";
    /// `:protocol` is not a token, or the method is not CONNECT. RFC 8441 §4
    ProtocolInvalid => "the :protocol pseudo-field is invalid";
    /// `:method` is not a token. RFC 9113 §8.3.1
    MethodInvalid => "the method is invalid";
    /// `:path` is empty, does not begin with a slash, or is `*` without OPTIONS. RFC 9113 §8.3.1
    PathInvalid => "the path is empty or does not begin with a slash";
    /// `:status` is not three digits of a valid status code, or 101. RFC 9113 §8.3.2, §8.6
    StatusInvalid => "the status code is invalid";
    /// A name is empty, not a token, or has an upper-case letter. RFC 9113 §8.2.1
    FieldNameInvalid => "a field name is not a token in lower case";
    /// A value has a control character, or white space at an end. RFC 9113 §8.2.1
    FieldValueInvalid => "a field value has a character that is not allowed";
    /// A field is for a connection of HTTP/1.1, or `te` is not `trailers`. RFC 9113 §8.2.2
    ConnectionSpecificField => "a field is specific to connections of HTTP/1.1";
    /// Host and `:authority` differ. RFC 9113 §8.3.1
    HostDiffers => "the Host field differs from the authority";
    /// The stream ends without the content that Content-Length announces. RFC 9113 §8.1.1
    ContentMissing => "the stream ends without the announced content";
    /// An interim response ends the stream. RFC 9113 §8.1
    InterimEndsStream => "an interim response ends the stream";
    /// A 204 or an interim response announces content. RFC 9110 §8.6
    ContentNotPermitted => "a response without content announces a length";
}

impl fmt::Display for MalformedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for MalformedMessage {}

/// The reason why a field section is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SectionError {
    /// The message is malformed: the stream is reset.
    Malformed(MalformedMessage),
    /// The request gets the response of the status code. The connection persists, whatever
    /// [`Reject::persistence`] is for HTTP/1.1.
    Rejected(Reject),
}

impl From<MalformedMessage> for SectionError {
    fn from(malformed: MalformedMessage) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<Reject> for SectionError {
    fn from(reject: Reject) -> Self {
        match reject {
            // A builder refuses no other part of a request line with this reason.
            Reject::RequestLineInvalid => Self::Malformed(MalformedMessage::MethodInvalid),
            reject => Self::Rejected(reject),
        }
    }
}

impl From<SectionLimit> for SectionError {
    fn from(limit: SectionLimit) -> Self {
        Self::Rejected(match limit {
            SectionLimit::Fields => Reject::TooManyFields,
            SectionLimit::Bytes => Reject::HeadTooLarge,
            SectionLimit::Path => Reject::RequestLineTooLong,
        })
    }
}

impl fmt::Display for SectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Rejected(reject) => reject.fmt(f),
        }
    }
}

impl core::error::Error for SectionError {}
