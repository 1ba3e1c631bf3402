//! A head never panics, and gets the same verdict whole and in pieces, and in use again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::{Limits, Reject, head::RequestHead, http1::parse_request};

fn read(bytes: &[u8], step: usize) -> Result<Option<usize>, Reject> {
    read_with(&mut RequestHead::default(), bytes, step)
}

fn read_with(head: &mut RequestHead, bytes: &[u8], step: usize) -> Result<Option<usize>, Reject> {
    let (limits, mut have) = (Limits::default(), 0);
    loop {
        have = (have + step).min(bytes.len());
        if parse_request(&bytes[..have], &limits, head)? {
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
    let mut used = RequestHead::default();
    for step in [bytes.len().max(1), 7, bytes.len().max(1)] {
        used.clear();
        assert_eq!(whole, read_with(&mut used, bytes, step));
    }
});
