//! The rules of responses (RFC 9113 §8.3.2) and of trailers (§8.1).

use super::check_value;
use super::class::FieldClass;
use super::decoded::{DecodedFields, SectionField};
use super::error::{MalformedMessage, SectionError};
use super::request::StreamEnd;
use crate::field::Fields;
use crate::http1::parse_length;
use crate::limits::{HEAD_BYTES_CEILING, MessageLimits};
use crate::message::is_forbidden_in_trailers;
use crate::reject::Reject;
use crate::status::StatusCode;

/// What a client needs to know of the head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseSection {
    /// The status code. Another head follows if it is interim.
    pub status: StatusCode,
    /// Content-Length, if present. Content of another length is malformed, unless the request was HEAD or the status
    /// is 304 (RFC 9113 §8.1.1).
    pub content_length: Option<u64>,
}

/// Checks the head of a response.
///
/// # Errors
/// The first violated rule. An exceeded limit is [`SectionError::Rejected`]: a gateway responds with 502.
pub fn check_response(fields: &DecodedFields, end: StreamEnd) -> Result<ResponseSection, SectionError> {
    if let Some(limit) = fields.exceeded() {
        return Err(limit.into());
    }
    let (mut status, mut content_length) = (None, None);
    let mut has_regular = false;
    for field in fields.iter() {
        check_value(&field)?;
        if field.class.is_pseudo() {
            let code = match field.class {
                _ if has_regular => return Err(MalformedMessage::PseudoFieldMisplaced.into()),
                FieldClass::Status => parse_status(field.value).ok_or(MalformedMessage::StatusInvalid)?,
                _ => return Err(MalformedMessage::PseudoFieldNotPermitted.into()),
            };
            if status.replace(code).is_some() {
                return Err(MalformedMessage::PseudoFieldRepeated.into());
            }
            continue;
        }
        has_regular = true;
        check_regular_field(&field)?;
        if field.class == FieldClass::ContentLength {
            let length = parse_length(field.value).ok_or(Reject::ContentLengthInvalid)?;
            if content_length.replace(length).is_some() {
                return Err(Reject::ContentLengthRepeated.into());
            }
        }
    }
    let status = status.ok_or(MalformedMessage::PseudoFieldMissing)?;
    if status.is_interim() && end == StreamEnd::Ended {
        return Err(MalformedMessage::InterimEndsStream.into());
    }
    //= RFC 9110 §8.6: no Content-Length in 1xx and 204; a length of 0 is tolerated, since many servers send it
    if status.forbids_content_length() && content_length.is_some_and(|length| length > 0) {
        return Err(MalformedMessage::ContentNotPermitted.into());
    }
    Ok(ResponseSection { status, content_length })
}

/// Parses three digits of a valid status code.
//= RFC 9113 §8.6: HTTP/2 does not support 101
fn parse_status(value: &[u8]) -> Option<StatusCode> {
    if value.len() != 3 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let code = value.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    StatusCode::new(code).filter(|&status| status != StatusCode::SWITCHING_PROTOCOLS)
}

/// Checks the name of a field of a response or of trailers.
fn check_regular_field(field: &SectionField<'_>) -> Result<(), MalformedMessage> {
    match field.class {
        FieldClass::Invalid => Err(MalformedMessage::FieldNameInvalid),
        //= RFC 9113 §8.2.2: the exception for te is about requests
        FieldClass::ConnectionSpecific | FieldClass::Te => Err(MalformedMessage::ConnectionSpecificField),
        _ => Ok(()),
    }
}

/// Reads the trailers of a request or response.
///
/// # Errors
/// A pseudo-field, an invalid or connection-specific field, a field that is forbidden in trailers (RFC 9110 §6.5.1),
/// or more than [`MessageLimits::trailer_bytes_max`], counted as the lines of HTTP/1.1.
pub fn read_trailers(fields: &DecodedFields, limits: &MessageLimits) -> Result<Fields, SectionError> {
    if fields.exceeded().is_some() {
        return Err(Reject::TrailersTooLarge.into());
    }
    let bytes_max = limits.trailer_bytes_max.min(HEAD_BYTES_CEILING);
    let mut trailers = Fields::new();
    for field in fields.iter() {
        //= RFC 9113 §8.1: trailers MUST NOT include pseudo-fields
        if field.class.is_pseudo() {
            return Err(MalformedMessage::PseudoFieldNotPermitted.into());
        }
        check_regular_field(&field)?;
        check_value(&field)?;
        if is_forbidden_in_trailers(field.name) {
            return Err(Reject::TrailerForbidden.into());
        }
        // The colon, a space and CRLF.
        if trailers.lines().len() + field.name.len() + field.value.len() + 4 > bytes_max {
            return Err(Reject::TrailersTooLarge.into());
        }
        let name = core::str::from_utf8(field.name).map_err(|_| MalformedMessage::FieldNameInvalid)?;
        trailers.append(name, field.value).map_err(|_| Reject::TrailerForbidden)?;
    }
    Ok(trailers)
}

/// Whether a field of an application's response is sent over HTTP/2 and HTTP/3. The name is in lower case.
///
/// A connection-specific field is not (RFC 9113 §8.2.2): a recipient would reset the stream.
pub fn is_sent_in_streams(name: &[u8]) -> bool {
    !matches!(FieldClass::of_name(name), FieldClass::ConnectionSpecific | FieldClass::Te | FieldClass::Invalid)
        && name.first() != Some(&b':')
}
