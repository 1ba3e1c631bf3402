//! Chunked content never panics, and decodes to the same whole and in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::http1::chunked::{Decoder, Step};
use selvedge_proto::{Limits, Reject};

fn decode(bytes: &[u8], step: usize) -> Result<Option<Vec<u8>>, Reject> {
    let (limits, mut decoder, mut content) = (Limits::default(), Decoder::new(), Vec::new());
    let (mut at, mut have) = (0, step.min(bytes.len()));
    loop {
        match decoder.step(&bytes[at..have], &limits)? {
            Step::Data { start, end } => {
                content.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            Step::Done { .. } => return Ok(Some(content)),
            Step::NeedMore { consumed } if have < bytes.len() => {
                at += consumed;
                have = (have + step).min(bytes.len());
            }
            Step::NeedMore { .. } => return Ok(None),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(bytes, bytes.len().max(1));
    assert_eq!(whole, decode(bytes, 1));
    assert_eq!(whole, decode(bytes, 3));
});
