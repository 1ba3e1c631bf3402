//! Generated sections: encoded and decoded, and both against another codec.

use super::super::{Decoder, Encoder};
use super::{decode, text};
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
            prop_assert_eq!(lines(&oracle.decode(&block).unwrap()), fields);
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
    assert_eq!(begin(&[4_096, 65_536]), [], "the encoder keeps 4,096 bytes");
    assert_eq!(begin(&[0, 100, 4_096]), super::hex("20 3f e1 1f"));
    assert_eq!(begin(&[100]), super::hex("3f 45"));
    assert_eq!(begin(&[0]), super::hex("20"));
    assert_eq!(begin(&[30, 10]), super::hex("2a"));
}
