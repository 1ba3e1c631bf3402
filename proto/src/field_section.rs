//! Field sections of HTTP/2 and HTTP/3: decoded fields and the rules of messages (RFC 9113 §8, RFC 9114 §4).
//!
//! A codec (HPACK, QPACK) stores the fields of one section in [`DecodedFields`]. Each name is classified once,
//! when it is decoded, so that no rule compares names again.
//!
//! ```text
//! codec ─► DecodedFields ─┬─► build_request ─► RequestHead       (server)
//!                         ├─► check_response ─► status, length   (client)
//!                         └─► read_trailers ─► Fields            (both)
//! ```
//!
//! Invariant: a section that violates a rule never becomes a head.

mod decoded;
mod error;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub(crate) use decoded::StaticField;
pub use decoded::{DecodedFields, FIELD_OVERHEAD_BYTES, FieldClass, SectionField, SectionLimit, SectionLimits};
pub use error::{MalformedMessage, SectionError};
pub use request::{Protocols, RequestRules, StreamEnd, build_request, repeat_request};
pub use response::{ResponseSection, check_response, is_sent_in_streams, read_trailers};

use crate::field::is_field_value;

/// Checks a value: no control character but a tab, and no white space at its ends.
//= RFC 9113 §8.2.1: a value with NUL, LF or CR, or that starts or ends with SP or HTAB, is malformed
fn check_value(value: &[u8]) -> Result<(), MalformedMessage> {
    let is_trimmed = !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t']);
    if is_trimmed && is_field_value(value) { Ok(()) } else { Err(MalformedMessage::FieldValueInvalid) }
}
