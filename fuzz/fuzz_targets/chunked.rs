//! Fuzzes the decoder of chunked content: it never panics, and its result does not depend on how the
//! bytes are split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::{MessageLimits, Reject};

/// Decodes the bytes in pieces of `piece_bytes`.
fn decode(bytes: &[u8], piece_bytes: usize) -> Result<Option<Vec<u8>>, Reject> {
    let (limits, mut decoder, mut content) = (MessageLimits::default(), ChunkedDecoder::new(), Vec::new());
    let (mut at, mut received) = (0, piece_bytes.min(bytes.len()));
    loop {
        match decoder.decode_next(&bytes[at..received], &limits)? {
            ChunkEvent::Data { start, end } => {
                content.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            ChunkEvent::Done { .. } => return Ok(Some(content)),
            ChunkEvent::NeedMore { consumed } if received < bytes.len() => {
                at += consumed;
                received = (received + piece_bytes).min(bytes.len());
            }
            ChunkEvent::NeedMore { .. } => return Ok(None),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(bytes, bytes.len().max(1));
    assert_eq!(whole, decode(bytes, 1));
    assert_eq!(whole, decode(bytes, 3));
});
