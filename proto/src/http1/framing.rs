//! Decides how the content of a request ends (RFC 9112 §6).
//!
//! Invariant: a head that names two framings, or one in a doubtful way, never gets a
//! [`Framing`]. Never reads the content; see [`super::chunked`] for that.

use crate::field::{Known, is_token, trim};
use crate::head::{Framing, RequestHead, Version};
use crate::reject::Reject;

pub(crate) fn decide(bytes: &[u8], head: &RequestHead) -> Result<Framing, Reject> {
    let length = head.value(bytes, Known::ContentLength);
    let coding = head.value(bytes, Known::TransferEncoding);
    match (length, coding) {
        (None, None) => Ok(Framing::None),
        //= RFC 9112 §6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
        (_, Some(_)) if head.version == Version::Http10 => Err(Reject::TransferEncodingInHttp10),
        //= RFC 9112 §6.3 ¶3: both are how smuggling works; "ought to be handled as an error"
        (Some(_), Some(_)) => Err(Reject::TwoFramings),
        //= RFC 9112 §6.3 ¶5: differing lengths MUST be refused; equal ones are refused too, since
        //= a sender that repeats the field is broken or hostile
        (Some(_), None) if head.is_repeated(Known::ContentLength) => Err(Reject::ContentLengthRepeated),
        (Some(value), None) => match parse_length(value).ok_or(Reject::ContentLengthInvalid)? {
            0 => Ok(Framing::None),
            length => Ok(Framing::Length(length)),
        },
        (None, Some(_)) if head.is_repeated(Known::TransferEncoding) => Err(Reject::TransferEncodingInvalid),
        (None, Some(value)) => decide_coding(value),
    }
}

/// `1*DIGIT`, without a leading zero, within 63 bits.
pub(crate) fn parse_length(value: &[u8]) -> Option<u64> {
    let plain = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    if !plain || value.len() > 18 || (value.len() > 1 && value[0] == b'0') {
        return None;
    }
    Some(value.iter().fold(0, |n, d| n * 10 + u64::from(d - b'0')))
}

//= RFC 9112 §6.3 ¶4: chunked must be the final coding, else 400, be the other one known or not
//= RFC 9112 §6.1: a coding before it that is not understood gets 501, chunked twice 400
fn decide_coding(value: &[u8]) -> Result<Framing, Reject> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Ok(Framing::Chunked);
    }
    let mut codings = value.rsplit(|&b| b == b',').map(trim);
    let ends_well = codings.next().is_some_and(is_chunked);
    if ends_well && codings.all(|coding| is_token(coding) && !is_chunked(coding)) {
        Err(Reject::TransferEncodingUnknown)
    } else {
        Err(Reject::TransferEncodingInvalid)
    }
}
