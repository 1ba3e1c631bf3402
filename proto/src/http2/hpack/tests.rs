//! Tests of the codec: the examples of RFC 7541, invalid blocks, and generated blocks against another codec.

mod examples;
mod generated;
mod invalid;

use super::{DecodeOutcome, Decoder, Encoder, HpackError, INITIAL_TABLE_BYTES};
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

#[test]
fn released_buffers_keep_the_tables_of_both_sides_equal() {
    const EMPTY_TABLE: &[u8] = &[0x20, 0x3f, 0xe1, 0x1f];
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(INITIAL_TABLE_BYTES));
    let fields = [(&b"server"[..], &b"test"[..]), (b"x-own", b"value"), (b"x-other", b"value")];
    for round in 0..9 {
        let mut block = Vec::new();
        let mut writer = encoder.begin_block(&mut block);
        fields.iter().for_each(|(name, value)| writer.field(name, value));
        // Every third block follows a release of the encoder.
        assert_eq!(block.starts_with(EMPTY_TABLE), round > 0 && round % 3 == 0, "{round}: {block:x?}");
        if round > 1 && round % 3 != 0 {
            assert_eq!(block.len(), fields.len(), "all fields are indexed in round {round}: {block:x?}");
        }
        decoder.decode_block(&block, &SectionLimits::default()).unwrap();
        let decoded: Vec<_> = decoder.fields().iter().map(|field| (field.name, field.value)).collect();
        assert_eq!(decoded, fields);
        if round % 3 == 2 {
            encoder.release_buffers();
        }
        decoder.release_buffers();
    }
    let mut block = Vec::new();
    let mut unused = Encoder::new();
    unused.release_buffers();
    unused.begin_block(&mut block);
    assert_eq!(block, [], "an empty table needs no update");
}
