//! Tests of the codec: the examples of RFC 7541, invalid blocks, and generated blocks against another codec.

mod examples;
mod generated;
mod invalid;

use super::{DecodeOutcome, Decoder, HpackError};
use crate::field_section::SectionLimits;

/// Limits that no test exceeds by chance.
const WIDE: SectionLimits = SectionLimits { fields_max: 10_000, section_bytes_max: 1 << 24 };

/// Converts hexadecimal digits to bytes. Ignores white space.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// Decodes a block. Returns its fields, each as `name: value`.
fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<String>, HpackError> {
    let outcome = decoder.decode_block(block, &WIDE)?;
    assert!(!matches!(outcome, DecodeOutcome::LimitExceeded(_)));
    Ok(decoder.fields().iter().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect())
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|&b| char::from(b)).collect()
}
