//! A head never panics, and gets the same verdict whole and in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::{Limits, Reject, head::RequestHead, http1::parse_request};

fn read(bytes: &[u8], step: usize) -> Result<Option<usize>, Reject> {
    let (limits, mut head, mut have) = (Limits::default(), RequestHead::default(), 0);
    loop {
        have = (have + step).min(bytes.len());
        if parse_request(&bytes[..have], &limits, &mut head)? {
            assert!(head.len <= have);
            assert!(head.fields(bytes).all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
            return Ok(Some(head.len));
        }
        if have == bytes.len() {
            return Ok(None);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, 1));
    assert_eq!(whole, read(bytes, 7));
});
