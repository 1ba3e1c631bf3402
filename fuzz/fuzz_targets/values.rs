//! Fuzzes the parsers of paths, dates, ranges and codings: their invariants hold for any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::date::HttpDate;
use selvedge_proto::encoding::AcceptedCodings;
use selvedge_proto::path::SafePath;
use selvedge_proto::range::{RangeSelection, select};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(path) = SafePath::decode(bytes) {
        assert!(path.segments().all(|s| s != "." && s != ".." && !s.contains(['\0', '\\'])));
        assert_eq!(SafePath::decode(path.encode().as_bytes()).as_ref(), Ok(&path));
    }
    if let Some(date) = HttpDate::parse(bytes, HttpDate::from_unix(1_790_000_000)) {
        let _ = date.format();
    }
    for length in [0, 1, 1000, u64::MAX] {
        if let RangeSelection::Multiple(ranges) = select(bytes, length) {
            assert!(ranges.iter().all(|r| r.first <= r.last && r.last < length));
        }
    }
    let _ = AcceptedCodings::parse(std::iter::once(bytes)).choose(|_| true);
});
