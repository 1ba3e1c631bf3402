//! Generated sections: encoded and decoded, and both against another codec.

use super::super::{Decoder, Encoder};
use super::{decode, text};
use crate::field::Fields;
use crate::status::StatusCode;
use proptest::prelude::*;

/// A field of a generated section.
type Field = (Vec<u8>, Vec<u8>);

/// Names and values that repeat often, and arbitrary ones.
fn field() -> impl Strategy<Value = Field> {
    let names = [
        ":path",
        ":authority",
        "server",
        "content-type",
        "date",
        "vary",
        "cookie",
        "set-cookie",
        "authorization",
        "x-a",
        "x-long-name",
    ];
    let name = prop_oneof![
        4 => prop::sample::select(names.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
        1 => prop::collection::vec(prop::sample::select(b"abz-09_".to_vec()), 1..20),
    ];
    let value = prop_oneof![
        4 => prop::sample::select(vec!["", "/", "text/html; charset=utf-8", "Mon, 21 Oct 2013 20:13:21 GMT", "a"])
            .prop_map(|value| value.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
        1 => Just(vec![b'x'; 3_000]),
    ];
    (name, value)
}

/// Sections, each after up to three changes of the table size.
fn sections() -> impl Strategy<Value = Vec<(Vec<u32>, Vec<Field>)>> {
    let size = prop::sample::select(vec![0u32, 33, 60, 200, 1_000, 4_096, 10_000]);
    prop::collection::vec((prop::collection::vec(size, 0..3), prop::collection::vec(field(), 0..12)), 1..12)
}

fn lines(fields: &[Field]) -> Vec<String> {
    fields.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect()
}

proptest! {
    #[test]
    fn sections_are_decoded_as_encoded_with_any_table_sizes(sections in sections()) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4_096));
        for (sizes, fields) in &sections {
            for &size in sizes {
                encoder.set_peer_table_bytes(size);
                decoder.set_table_bytes_max(size as usize);
            }
            let mut block = Vec::new();
            let mut writer = encoder.begin_block(&mut block);
            for (name, value) in fields {
                writer.field(name, value);
            }
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), lines(fields));
        }
    }

    #[test]
    fn the_decoder_reads_what_another_encoder_writes(sections in sections()) {
        let (mut oracle, mut decoder) = (loona_hpack::Encoder::new(), Decoder::new(4_096));
        for (_, fields) in &sections {
            let pairs = fields.iter().map(|(name, value)| (&name[..], &value[..]));
            let block = oracle.encode(pairs);
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), lines(fields));
        }
    }

    /// Both codecs decode the bytes to equal fields, or ours has a reason to refuse them.
    #[test]
    fn arbitrary_bytes_are_decoded_as_by_another_decoder(
        block in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(vec![0x82, 0x41, 0x01, 0xbe, 0x81])], 0..40)
    ) {
        let (mut oracle, mut decoder) = (loona_hpack::Decoder::new(), Decoder::new(4_096));
        if let Ok(fields) = decode(&mut decoder, &block) {
            match oracle.decode(&block) {
                Ok(expected) => prop_assert_eq!(lines(&expected), fields),
                // The other decoder refuses a block that has only size updates.
                Err(_) => prop_assert!(fields.is_empty()),
            }
        }
    }
}

proptest! {
    // The other decoder needs 50 ms for each case.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn another_decoder_reads_what_the_encoder_writes(sections in sections()) {
        let (mut encoder, mut oracle) = (Encoder::new(), loona_hpack::Decoder::new());
        for (_, fields) in &sections {
            let mut block = Vec::new();
            let mut writer = encoder.begin_block(&mut block);
            for (name, value) in fields {
                writer.field(name, value);
            }
            prop_assert_eq!(oracle.decode(&block).unwrap(), fields.clone());
        }
    }
}

#[test]
fn fields_that_repeat_have_one_byte_and_credentials_are_never_indexed() {
    let mut encoder = Encoder::new();
    let mut encode = |name: &str, value: &str| {
        let mut block = Vec::new();
        encoder.begin_block(&mut block).field(name.as_bytes(), value.as_bytes());
        block
    };
    for (name, value) in
        [("server", "Selvedge"), ("date", "Mon, 21 Oct 2013 20:13:21 GMT"), ("x-frame-options", "DENY")]
    {
        assert!(encode(name, value).len() > 1);
        assert_eq!(encode(name, value), [0xbe], "{name} is inserted at once");
    }
    for (name, value) in [("etag", "\"1a2b\""), ("x-site", "a")] {
        assert!(encode(name, value)[0] & 0xc0 == 0);
        assert!(encode(name, value)[0] & 0xc0 == 0x40, "{name} is inserted at its second occurrence");
        assert_eq!(encode(name, value), [0xbe]);
    }
    for (name, value) in [("authorization", "Basic YTpi"), ("set-cookie", "a=b"), ("cookie", "id=1234")] {
        for _ in 0..3 {
            assert_eq!(encode(name, value)[0] & 0xf0, 0x10, "{name}");
        }
    }
    encode("cookie", "id=1234567890123456789");
    assert_eq!(encode("cookie", "id=1234567890123456789"), [0xbe]);
}

#[test]
fn every_status_is_decoded_as_encoded() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4_096));
    for code in 100..=599 {
        let mut block = Vec::new();
        encoder.begin_block(&mut block).status(StatusCode::new(code).unwrap());
        assert_eq!(block.len() == 1, matches!(code, 200 | 204 | 206 | 304 | 400 | 404 | 500), "{code}");
        assert_eq!(decode(&mut decoder, &block).unwrap(), [format!(":status: {code}")]);
    }
}

#[test]
fn size_changes_are_signaled_with_their_minimum() {
    let mut encoder = Encoder::new();
    let mut begin = |sizes: &[u32]| {
        let mut block = Vec::new();
        sizes.iter().for_each(|&size| encoder.set_peer_table_bytes(size));
        encoder.begin_block(&mut block);
        block
    };
    assert_eq!(begin(&[]), []);
    assert_eq!(begin(&[4_096, 65_536]), [], "the limit of the encoder is 4,096 bytes");
    assert_eq!(begin(&[0, 100, 4_096]), super::hex("20 3f e1 1f"));
    assert_eq!(begin(&[100]), super::hex("3f 45"));
    assert_eq!(begin(&[0]), super::hex("20"));
    assert_eq!(begin(&[30, 10]), super::hex("2a"));
    // A limit below the initial size of the peer's table is signaled at once.
    let (mut encoder, mut block) = (Encoder::with_table_bytes_max(100), Vec::new());
    encoder.begin_block(&mut block);
    encoder.set_peer_table_bytes(65_536);
    encoder.begin_block(&mut block);
    assert_eq!(block, super::hex("3f 45"));
    let (mut encoder, mut block) = (Encoder::with_table_bytes_max(8_192), Vec::new());
    encoder.begin_block(&mut block);
    encoder.set_peer_table_bytes(65_536);
    encoder.begin_block(&mut block);
    assert_eq!(block, super::hex("3f e1 3f"));
}

#[test]
fn repeated_response_is_encoded_from_its_copy_until_the_table_changes() {
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4_096));
    let mut fields = Fields::new();
    for (name, value) in [("content-type", "text/html"), ("etag", "\"1a2b\""), ("x-site", "a"), ("set-cookie", "b=c")] {
        fields.append(name, value).unwrap();
    }
    let expected: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
    let mut lens = Vec::new();
    for number in 0..200 {
        let mut block = Vec::new();
        let mut writer = encoder.begin_block(&mut block);
        writer.fields(&fields);
        // A new date changes the table, and at last evicts all other fields.
        if number % 3 == 0 {
            writer.field(b"date", format!("{number:029}").as_bytes());
        }
        let decoded = decode(&mut decoder, &block).unwrap();
        assert_eq!(decoded[..4], expected);
        lens.push(block.len());
    }
    assert_eq!(lens[4], lens[5], "all fields but the cookie are in the table");
    assert!(lens[5] < 10);
}

proptest! {
    #[test]
    fn repeated_responses_are_decoded_as_encoded(
        responses in prop::collection::vec(prop::collection::vec(0usize..4, 0..4), 1..30),
        sizes in prop::collection::vec(prop::sample::select(vec![0u32, 60, 4_096]), 30),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4_096));
        let lines = [("etag", "1"), ("etag", "2"), ("server", "a"), ("vary", "accept-encoding")];
        for (response, size) in responses.iter().zip(sizes) {
            let (mut fields, mut block) = (Fields::new(), Vec::new());
            for &line in response {
                let _ = fields.append(lines[line].0, lines[line].1);
            }
            encoder.set_peer_table_bytes(size);
            encoder.begin_block(&mut block).fields(&fields);
            let expected: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {}", text(value))).collect();
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), expected);
        }
    }
}
