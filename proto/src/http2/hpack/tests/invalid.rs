//! Invalid blocks, limits, size updates and repeated blocks.

use super::super::integer::encode_integer;
use super::super::{DecodeOutcome, Decoder, HpackError};
use super::{WIDE, decode, hex};
use crate::field_section::{SectionLimit, SectionLimits};

#[test]
fn invalid_blocks_are_refused() {
    for (block, error) in [
        ("80", HpackError::IndexZero),
        ("82 80", HpackError::IndexZero),
        ("be", HpackError::IndexOutOfRange),
        ("ff 00", HpackError::IndexOutOfRange),
        ("7e 01 61", HpackError::IndexOutOfRange),
        ("0f 40 01 61", HpackError::IndexOutOfRange),
        ("ff 80 ff ff ff 07", HpackError::IndexOutOfRange),
        ("ff 81 ff ff ff 07", HpackError::IntegerTooLarge),
        ("ff 80 80 80 80 80 00", HpackError::IntegerTooLarge),
        ("ff 80", HpackError::Truncated),
        ("40", HpackError::Truncated),
        ("40 02 61", HpackError::Truncated),
        ("40 01 61", HpackError::Truncated),
        ("40 01 61 05 61", HpackError::Truncated),
        ("41 7f 81 ff ff ff 07", HpackError::IntegerTooLarge),
        ("41 7f 80 ff ff ff 07", HpackError::Truncated),
        ("00", HpackError::Truncated),
        ("41 81 ff", HpackError::HuffmanPaddingInvalid),
        ("41 82 1f ff", HpackError::HuffmanPaddingInvalid),
        ("41 81 1e", HpackError::HuffmanPaddingInvalid),
        ("41 84 ff ff ff ff", HpackError::HuffmanEndOfString),
        ("40 84 ff ff ff fc 01 61", HpackError::HuffmanEndOfString),
        ("3f e2 1f", HpackError::SizeUpdateTooLarge),
        ("82 20", HpackError::SizeUpdateMisplaced),
        ("82 3f e1 1f", HpackError::SizeUpdateMisplaced),
        ("20 20 20", HpackError::SizeUpdateRepeated),
    ] {
        assert_eq!(decode(&mut Decoder::new(4_096), &hex(block)), Err(error), "{block}");
        assert!(!error.message().is_empty());
    }
}

#[test]
fn size_updates_change_the_table() {
    let mut decoder = Decoder::new(4_096);
    decode(&mut decoder, &hex("40 01 61 01 62")).unwrap();
    assert_eq!(decode(&mut decoder, &hex("be")).unwrap(), ["a: b"]);
    // To 0 and back to 4,096 empties the table.
    assert_eq!(decode(&mut decoder, &hex("20 3f e1 1f")).unwrap(), [""; 0]);
    assert_eq!(decode(&mut decoder, &hex("be")), Err(HpackError::IndexOutOfRange));
    // In a table of 33 bytes, one field fits that has one byte.
    let mut decoder = Decoder::new(33);
    decode(&mut decoder, &hex("40 01 61 00 40 01 62 00")).unwrap();
    assert_eq!(decode(&mut decoder, &hex("be")).unwrap(), ["b: "]);
    decode(&mut decoder, &hex("40 01 62 01 62")).unwrap();
    assert_eq!(decode(&mut decoder, &hex("be")), Err(HpackError::IndexOutOfRange));
}

#[test]
fn reduction_that_the_peer_acknowledged_needs_a_size_update() {
    let mut decoder = Decoder::new(4_096);
    decoder.set_table_bytes_max(100);
    assert_eq!(decode(&mut decoder, &[0x82]), Err(HpackError::SizeUpdateMissing));
    let mut decoder = Decoder::new(4_096);
    assert!(decode(&mut decoder, &[0x82]).is_ok());
    decoder.set_table_bytes_max(100);
    assert_eq!(decode(&mut decoder, &[0x82]), Err(HpackError::SizeUpdateMissing), "a repeated block is no exception");
    decoder.set_table_bytes_max(8_192);
    assert!(decode(&mut decoder, &[0x82]).is_ok());
    assert_eq!(decode(&mut decoder, &hex("3f e1 3f 82")).unwrap(), [":method: GET"]);
}

#[test]
fn entry_whose_name_is_evicted_by_its_own_insertion_is_stored() {
    let mut decoder = Decoder::new(40);
    decode(&mut decoder, &hex("40 01 61 01 62")).unwrap();
    // The name of index 62, a new value: both do not fit together.
    assert_eq!(decode(&mut decoder, &hex("7e 02 63 64")).unwrap(), ["a: cd"]);
    assert_eq!(decode(&mut decoder, &hex("be")).unwrap(), ["a: cd"]);
}

#[test]
fn exceeded_limit_stores_nothing_more_and_keeps_the_table_in_step() {
    let limits = SectionLimits { fields_max: 3, section_bytes_max: 1_000 };
    let mut decoder = Decoder::new(4_096);
    // `a` with 900 bytes, then the field again and again by one byte each.
    let mut block = hex("82 40 01 61 7f 85 06");
    block.extend_from_slice(&[b'v'; 900]);
    let insertion = block.clone();
    block.extend_from_slice(&[0xbe; 16_000]);
    assert_eq!(
        decoder.decode_block(&block, &limits),
        Ok(DecodeOutcome::LimitExceeded(SectionLimit::Bytes)),
        "fields of one byte each do not store 14 MB"
    );
    assert_eq!(decoder.fields().len(), 2);
    assert_eq!(decode(&mut decoder, &[0xbe]).unwrap()[0].len(), 903);
    // The insertion stands beyond the limit and takes place.
    let mut block = vec![0x82; 4];
    block.extend_from_slice(&insertion);
    block.extend_from_slice(&hex("40 01 63 01 64"));
    assert_eq!(decoder.decode_block(&block, &limits), Ok(DecodeOutcome::LimitExceeded(SectionLimit::Fields)));
    assert_eq!(decoder.fields().len(), 3);
    assert_eq!(decode(&mut decoder, &[0xbe]).unwrap(), ["c: d"]);
    // An error beyond the limit is still an error.
    assert_eq!(decoder.decode_block(&hex("82 82 82 82 80"), &limits), Err(HpackError::IndexZero));
}

#[test]
fn memory_is_bounded_by_the_limits_whatever_a_block_needs() {
    let limits = SectionLimits { section_bytes_max: 20_000, ..WIDE };
    // A value of 60,000 bytes: `0` has a code of five bits, and the byte 2 the code 0xfffffe2 of 28 bits.
    for (pattern, count, outcome) in [
        (hex("00 00 00 00 00"), 12_000, DecodeOutcome::LimitExceeded(SectionLimit::Bytes)),
        (hex("ff ff fe 2f ff ff e2"), 8_571, DecodeOutcome::Fields),
    ] {
        let encoded = pattern.repeat(count);
        let mut block = hex("00 01 61");
        encode_integer(encoded.len(), 7, 0x80, &mut block);
        block.extend_from_slice(&encoded);
        let mut decoder = Decoder::new(4_096);
        assert_eq!(decoder.decode_block(&block, &limits), Ok(outcome));
        assert!(decoder.fields().capacity() <= 2 * limits.section_bytes_max);
    }
}

#[test]
fn repeated_block_is_recognized_only_if_nothing_changed() {
    let mut decoder = Decoder::new(4_096);
    let outcome = |decoder: &mut Decoder, block: &str| decoder.decode_block(&hex(block), &WIDE).unwrap();
    let insertion = "82 41 01 61";
    assert_eq!(outcome(&mut decoder, insertion), DecodeOutcome::Fields);
    assert_eq!(outcome(&mut decoder, insertion), DecodeOutcome::Fields, "it inserts again");
    assert_eq!(outcome(&mut decoder, "82 be"), DecodeOutcome::Fields);
    assert_eq!(outcome(&mut decoder, "82 be"), DecodeOutcome::Repeated);
    assert_eq!(outcome(&mut decoder, "82 be"), DecodeOutcome::Repeated);
    assert_eq!(decode(&mut decoder, &hex("82 be")).unwrap(), [":method: GET", ":authority: a"]);
    assert_eq!(outcome(&mut decoder, "41 01 62"), DecodeOutcome::Fields);
    assert_eq!(outcome(&mut decoder, "82 be"), DecodeOutcome::Fields, "index 62 is another field now");
    assert_eq!(decode(&mut decoder, &hex("82 be")).unwrap(), [":method: GET", ":authority: b"]);
    let limits = SectionLimits { fields_max: 1, ..WIDE };
    let exceeded = Ok(DecodeOutcome::LimitExceeded(SectionLimit::Fields));
    assert_eq!(decoder.decode_block(&hex("82 be"), &limits), exceeded);
    assert_eq!(decoder.decode_block(&hex("82 be"), &limits), exceeded);
    assert_eq!(outcome(&mut decoder, "82 be"), DecodeOutcome::Fields);
    decoder.release_buffers();
    assert_eq!(outcome(&mut decoder, "82 be"), DecodeOutcome::Fields, "the buffers were released");
    assert_eq!(outcome(&mut decoder, ""), DecodeOutcome::Fields);
    assert_eq!(outcome(&mut decoder, "20"), DecodeOutcome::Fields);
    assert_eq!(outcome(&mut decoder, "20"), DecodeOutcome::Fields, "a size update changes the table");
}
