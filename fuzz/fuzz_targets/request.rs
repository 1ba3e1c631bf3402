//! Fuzzes the parser of request heads: it never panics, and its result depends neither on how the
//! bytes are split nor on the previous request of a reused head.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::{MessageLimits, Reject, head::RequestHead, http1::parse_request};

/// Parses the bytes in pieces of `piece_bytes` into a new head.
fn parse(bytes: &[u8], piece_bytes: usize) -> Result<Option<usize>, Reject> {
    parse_into(&mut RequestHead::default(), bytes, piece_bytes)
}

/// Parses the bytes in pieces of `piece_bytes`. Returns the length of the head, or `None` if it is not complete.
fn parse_into(head: &mut RequestHead, bytes: &[u8], piece_bytes: usize) -> Result<Option<usize>, Reject> {
    let (limits, mut received) = (MessageLimits::default(), 0);
    loop {
        received = (received + piece_bytes).min(bytes.len());
        if parse_request(&bytes[..received], &limits, head)? {
            assert!(head.len <= received);
            assert!(head.fields(bytes).all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
            return Ok(Some(head.len));
        }
        if received == bytes.len() {
            return Ok(None);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes, bytes.len().max(1));
    assert_eq!(whole, parse(bytes, 1));
    assert_eq!(whole, parse(bytes, 7));
    let mut reused = RequestHead::default();
    for piece_bytes in [bytes.len().max(1), 7, bytes.len().max(1)] {
        reused.clear();
        assert_eq!(whole, parse_into(&mut reused, bytes, piece_bytes));
    }
});
