//! Field sections of HTTP/2 and HTTP/3 (RFC 9113 §8, RFC 9114 §4): decoded fields and the rules of messages.
//!
//! A codec (HPACK, QPACK) stores the fields of one section in [`DecodedFields`]. Each name is classified once,
//! when it is decoded, so that no rule compares names again.

mod decoded;

pub(crate) use decoded::StaticField;
pub use decoded::{DecodedFields, FIELD_OVERHEAD_BYTES, FieldClass, SectionField, SectionLimit, SectionLimits};
