//! Field sections of HTTP/2 and HTTP/3: decoded fields and the rules of messages (RFC 9113 §8, RFC 9114 §4).
//!
//! A codec (HPACK, QPACK) stores the fields of one section in [`DecodedFields`]. Each name is classified once,
//! when it is decoded, so that no rule compares names again. Each value is checked once, too: a field of a dynamic
//! table may occur in many sections.
//!
//! ```text
//! codec ─► DecodedFields ─┬─► build_request ─► RequestHead       (server)
//!                         ├─► check_response ─► status, length   (client)
//!                         └─► read_trailers ─► Fields            (both)
//! ```
//!
//! Invariant: a section that violates a rule never becomes a head.

mod class;
mod decoded;
mod error;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub(crate) use class::FieldFacts;
pub use class::{FieldClass, ValueGrammar};
pub(crate) use decoded::StaticField;
pub use decoded::{DecodedFields, FIELD_OVERHEAD_BYTES, SectionField, SectionLimit, SectionLimits};
pub use error::{MalformedMessage, SectionError};
pub use request::{Protocols, RequestRules, StreamEnd, build_request, copy_request, repeat_request};
pub use response::{ResponseSection, check_response, is_sent_in_streams, read_trailers};

/// Refuses an invalid value.
fn check_value(field: &SectionField<'_>) -> Result<(), MalformedMessage> {
    match field.grammar {
        ValueGrammar::Valid => Ok(()),
        ValueGrammar::Invalid => Err(MalformedMessage::FieldValueInvalid),
    }
}
