//! Decides how the content of a request ends (RFC 9112 §6).
//!
//! Invariant: a head with two framings or an ambiguous one never gets a [`RequestFraming`].
//! Never reads the content; see [`super::chunked`] for that.

use crate::field::{KnownField, is_token, trim};
use crate::head::{RequestFraming, RequestHead, Version};
use crate::reject::Reject;

/// Decides the framing from Content-Length and Transfer-Encoding. It is `unframed` if both are absent.
pub(crate) fn request_framing(
    bytes: &[u8],
    head: &RequestHead,
    unframed: RequestFraming,
) -> Result<RequestFraming, Reject> {
    let length = head.value(bytes, KnownField::ContentLength);
    let coding = head.value(bytes, KnownField::TransferEncoding);
    match (length, coding) {
        (None, None) => Ok(unframed),
        //= RFC 9112 §6.1: Transfer-Encoding in HTTP/1.0 is faulty framing
        (_, Some(_)) if head.version == Version::Http10 => Err(Reject::TransferEncodingInHttp10),
        //= RFC 9112 §6.3 ¶3: both allow request smuggling; "ought to be handled as an error"
        (Some(_), Some(_)) => Err(Reject::ContentLengthWithTransferEncoding),
        //= RFC 9112 §6.3 ¶5: differing lengths MUST be refused; equal lengths are refused too, since
        //= a sender that repeats the field is broken or hostile
        (Some(_), None) if head.is_repeated(KnownField::ContentLength) => Err(Reject::ContentLengthRepeated),
        (Some(value), None) => match parse_length(value).ok_or(Reject::ContentLengthInvalid)? {
            0 => Ok(RequestFraming::None),
            length => Ok(RequestFraming::Length(length)),
        },
        (None, Some(_)) if head.is_repeated(KnownField::TransferEncoding) => Err(Reject::TransferEncodingInvalid),
        (None, Some(value)) => parse_transfer_encoding(value),
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
fn parse_transfer_encoding(value: &[u8]) -> Result<RequestFraming, Reject> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Ok(RequestFraming::Chunked);
    }
    let mut codings = value.rsplit(|&b| b == b',').map(trim);
    let ends_in_chunked = codings.next().is_some_and(is_chunked);
    if ends_in_chunked && codings.all(|coding| is_token(coding) && !is_chunked(coding)) {
        Err(Reject::TransferEncodingNotSupported)
    } else {
        Err(Reject::TransferEncodingInvalid)
    }
}
