//! Decides how the content of a message ends (RFC 9112 §6).
//!
//! Invariant: a head with two framings or an ambiguous one never gets a framing.
//! Never reads the content; see [`super::chunked`] for that.

use crate::field::{KnownField, is_token, trim};
use crate::head::{RequestFraming, RequestHead, Version};
use crate::reject::Reject;

/// The lines of one field of a head, as far as the framing depends on them.
#[derive(Clone, Copy, Debug)]
pub(super) enum FramingField<'a> {
    Absent,
    One(&'a [u8]),
    Repeated,
}

impl<'a> FramingField<'a> {
    /// Adds a line.
    pub(super) fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Absent => Self::One(value),
            Self::One(_) | Self::Repeated => Self::Repeated,
        };
    }
}

/// The framing that the fields of a head announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnouncedFraming {
    None,
    Length(u64),
    Chunked,
}

/// Decides the framing from Content-Length and Transfer-Encoding. It is `unframed` if both are absent.
pub(crate) fn request_framing(
    bytes: &[u8],
    head: &RequestHead,
    unframed: RequestFraming,
) -> Result<RequestFraming, Reject> {
    let field = |field| match head.value(bytes, field) {
        None => FramingField::Absent,
        Some(_) if head.is_repeated(field) => FramingField::Repeated,
        Some(value) => FramingField::One(value),
    };
    match announced_framing(head.version, field(KnownField::ContentLength), field(KnownField::TransferEncoding))? {
        AnnouncedFraming::None => Ok(unframed),
        AnnouncedFraming::Length(0) => Ok(RequestFraming::None),
        AnnouncedFraming::Length(length) => Ok(RequestFraming::Length(length)),
        AnnouncedFraming::Chunked => Ok(RequestFraming::Chunked),
    }
}

/// Judges Content-Length and Transfer-Encoding of a request or response.
pub(super) fn announced_framing(
    version: Version,
    length: FramingField<'_>,
    coding: FramingField<'_>,
) -> Result<AnnouncedFraming, Reject> {
    match (length, coding) {
        (FramingField::Absent, FramingField::Absent) => Ok(AnnouncedFraming::None),
        //= RFC 9112 §6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
        (_, FramingField::One(_) | FramingField::Repeated) if version == Version::Http10 => {
            Err(Reject::TransferEncodingInHttp10)
        }
        //= RFC 9112 §6.3 ¶5: differing lengths MUST be refused; equal lengths are refused too, since
        //= a sender that repeats the field is broken or hostile
        (FramingField::Repeated, FramingField::Absent) => Err(Reject::ContentLengthRepeated),
        (FramingField::One(value), FramingField::Absent) => {
            parse_length(value).map(AnnouncedFraming::Length).ok_or(Reject::ContentLengthInvalid)
        }
        (FramingField::Absent, FramingField::Repeated) => Err(Reject::TransferEncodingInvalid),
        (FramingField::Absent, FramingField::One(value)) => parse_transfer_encoding(value),
        //= RFC 9112 §6.3 ¶3: both allow request smuggling; "ought to be handled as an error"
        (FramingField::One(_) | FramingField::Repeated, _) => Err(Reject::ContentLengthWithTransferEncoding),
    }
}

/// Parses `1*DIGIT` of at most 18 digits, which fits into 63 bits. Refuses a leading zero.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if !is_number || value.len() > 18 || (value.len() > 1 && value[0] == b'0') {
        return None;
    }
    Some(value.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
}

/// Accepts `chunked` alone. No other transfer coding is implemented.
//= RFC 9112 §6.3 ¶4: chunked must be the final coding, else 400, whether the coding is known or not
//= RFC 9112 §6.1: an unknown coding before chunked gets 501, a repeated chunked gets 400
fn parse_transfer_encoding(value: &[u8]) -> Result<AnnouncedFraming, Reject> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Ok(AnnouncedFraming::Chunked);
    }
    let mut codings = value.rsplit(|&b| b == b',').map(trim);
    let ends_in_chunked = codings.next().is_some_and(is_chunked);
    if ends_in_chunked && codings.all(|coding| is_token(coding) && !is_chunked(coding)) {
        Err(Reject::TransferEncodingNotSupported)
    } else {
        Err(Reject::TransferEncodingInvalid)
    }
}
