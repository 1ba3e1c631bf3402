//! Fuzzes the header of the PROXY protocol: the parser never panics, decides no earlier than it must, and parses what it
//! writes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::proxy_protocol::{HEADER_BYTES_MAX, ProxyVersion, parse, write};

fuzz_target!(|bytes: &[u8]| {
    let whole = parse(bytes);
    let Ok(Some(header)) = whole else {
        assert!(whole.is_err() || bytes.len() < HEADER_BYTES_MAX, "more bytes are awaited without end");
        return;
    };
    assert!(header.len <= bytes.len().min(HEADER_BYTES_MAX));
    assert_eq!(parse(&bytes[..header.len]), whole);
    assert!((0..header.len).all(|end| parse(&bytes[..end]) == Ok(None)));
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let mut out = Vec::new();
        write(version, header.peer, &mut out);
        assert_eq!(parse(&out).map(|parsed| parsed.map(|parsed| parsed.len)), Ok(Some(out.len())));
    }
});
