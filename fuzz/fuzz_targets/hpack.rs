//! Fuzzes the decoder of field blocks: it never panics, obeys the limits, and keeps its table in step beyond a
//! limit. What it decodes is encoded and decoded to equal fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::field_section::{FIELD_OVERHEAD_BYTES, SectionLimits};
use selvedge_proto::http2::hpack::{DecodeOutcome, Decoder, Encoder, HpackError};

/// Limits that are exceeded by some blocks and not by others.
const NARROW: SectionLimits = SectionLimits { fields_max: 5, section_bytes_max: 300 };

/// The size that the decoder permits for its table, in bytes.
const TABLE_BYTES: usize = 200;

/// Owned fields of a section.
type Section = Vec<(Vec<u8>, Vec<u8>)>;

fn section_of(decoder: &Decoder) -> Section {
    decoder.fields().iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8], limits: &SectionLimits) -> Result<DecodeOutcome, HpackError> {
    let outcome = decoder.decode_block(block, limits)?;
    let fields = decoder.fields();
    let size: usize = fields.iter().map(|field| field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES).sum();
    assert_eq!(size, fields.section_bytes());
    assert!(size <= limits.section_bytes_max && fields.len() <= limits.fields_max);
    Ok(outcome)
}

fuzz_target!(|bytes: &[u8]| {
    let wide = SectionLimits { fields_max: usize::MAX, section_bytes_max: 1 << 30 };
    let (mut reference, mut limited) = (Decoder::new(TABLE_BYTES), Decoder::new(TABLE_BYTES));
    let (mut encoder, mut decoder) = (Encoder::with_table_bytes_max(TABLE_BYTES), Decoder::new(4_096));
    // The length of each block precedes it.
    let mut rest = bytes;
    while let Some((&len, after)) = rest.split_first() {
        let (block, after) = after.split_at(after.len().min(usize::from(len)));
        rest = after;
        let result = decode(&mut reference, block, &wide);
        match (result, decode(&mut limited, block, &NARROW)) {
            (Err(error), other) => return assert_eq!(other, Err(error)),
            (Ok(DecodeOutcome::LimitExceeded(limit)), _) => panic!("{limit} in wide limits"),
            (Ok(_), Ok(DecodeOutcome::LimitExceeded(_))) => {
                assert!(section_of(&reference).starts_with(&section_of(&limited)));
            }
            (Ok(outcome), Ok(other)) => {
                assert!(outcome == other || outcome == DecodeOutcome::Repeated || other == DecodeOutcome::Repeated);
                assert_eq!(section_of(&reference), section_of(&limited));
            }
            (Ok(_), Err(error)) => panic!("{error} within limits"),
        }
        let mut encoded = Vec::new();
        let mut writer = encoder.begin_block(&mut encoded);
        for field in reference.fields().iter() {
            writer.field(field.name, field.value);
        }
        decode(&mut decoder, &encoded, &wide).expect("an encoded block is valid");
        assert_eq!(section_of(&reference), section_of(&decoder));
    }
});
