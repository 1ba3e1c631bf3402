//! Which part of a representation a Range asks for (RFC 9110 §14).
//!
//! Invariant: what is chosen lies within the representation, and all parts together are
//! never more than the whole, so a request cannot multiply the work (RFC 9110 §17.15).

use crate::field::trim;
use crate::limits::RANGES_MAX;

/// Bytes from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte; not before the first.
    pub last: u64,
}

impl ByteRange {
    /// Number of bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All of it: the field is absent, malformed, in another unit, or asks for too much.
    Whole,
    /// One part: 206 with Content-Range.
    One(ByteRange),
    /// Several parts, at least two, in the order asked for: 206 with multipart/byteranges.
    Many(Vec<ByteRange>),
    /// No part of it exists: 416.
    Unsatisfiable,
}

enum Spec {
    Satisfiable(ByteRange),
    Unsatisfiable,
}

/// Selects the parts of a representation of `length` bytes that a Range value asks for.
///
/// A malformed value is ignored (RFC 9110 §14.2). So is one with more than
/// [`RANGES_MAX`] ranges, with ranges that overlap, or with parts that together are
/// larger than the whole.
pub fn select(value: &[u8], length: u64) -> Selection {
    let Some(set) = bytes_unit(value) else { return Selection::Whole };
    let mut satisfiable = Vec::new();
    let mut count = 0;
    for spec in set.split(|&b| b == b',').map(trim).filter(|spec| !spec.is_empty()) {
        count += 1;
        match parse_spec(spec, length) {
            _ if count > RANGES_MAX => return Selection::Whole,
            None => return Selection::Whole,
            Some(Spec::Satisfiable(range)) => satisfiable.push(range),
            Some(Spec::Unsatisfiable) => {}
        }
    }
    match satisfiable.as_slice() {
        [] if count == 0 => Selection::Whole,
        [] => Selection::Unsatisfiable,
        [one] => Selection::One(*one),
        many if overlaps(many) => Selection::Whole,
        _ => Selection::Many(satisfiable),
    }
}

/// What follows `bytes=`, with the unit in any case (RFC 9110 §14.1).
fn bytes_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// `first-last`, `first-` or `-suffix`; `None` when it is none of them.
fn parse_spec(spec: &[u8], length: u64) -> Option<Spec> {
    let dash = spec.iter().position(|&b| b == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(match number(last)?.min(length) {
            0 => Spec::Unsatisfiable,
            suffix => Spec::Satisfiable(ByteRange { first: length - suffix, last: length - 1 }),
        });
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    if first >= length {
        return Some(Spec::Unsatisfiable);
    }
    Some(Spec::Satisfiable(ByteRange { first, last: last.min(length - 1) }))
}

/// `1*DIGIT`; a number too large to keep is the largest one, which lies behind any end.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |n, b| b.is_ascii_digit().then(|| n.saturating_mul(10).saturating_add(u64::from(b - b'0'))))
}

/// Whether any two ranges share a byte. Ranges that do not cannot exceed the whole.
fn overlaps(ranges: &[ByteRange]) -> bool {
    ranges.iter().enumerate().any(|(place, a)| ranges[..place].iter().any(|b| a.first <= b.last && b.first <= a.last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: &str, length: u64, expected: Selection) {
        assert_eq!(select(value.as_bytes(), length), expected, "{value} of {length}");
    }

    fn one(first: u64, last: u64) -> Selection {
        Selection::One(ByteRange { first, last })
    }

    #[test]
    fn ranges() {
        check("bytes=0-0", 1000, one(0, 0));
        check("BYTES=990-", 1000, one(990, 999));
        check("bytes=-10", 1000, one(990, 999));
        check("bytes=-5000", 1000, one(0, 999));
        check("bytes=0005-0009", 1000, one(5, 9));
        check("bytes=990-5000", 1000, one(990, 999));
        check("bytes=0-18446744073709551616", 1000, one(0, 999));
        check("bytes=0-9,5000-6000", 1000, one(0, 9));
        check(
            "bytes=0-4 , 10-14",
            1000,
            Selection::Many(vec![ByteRange { first: 0, last: 4 }, ByteRange { first: 10, last: 14 }]),
        );
        check(
            "bytes=500-509,0-9",
            1000,
            Selection::Many(vec![ByteRange { first: 500, last: 509 }, ByteRange { first: 0, last: 9 }]),
        );
        for unsatisfiable in ["bytes=1000-1005", "bytes=-0", "bytes=18446744073709551616-", "bytes=1000-,2000-"] {
            check(unsatisfiable, 1000, Selection::Unsatisfiable);
        }
        check("bytes=-5", 0, Selection::Unsatisfiable);
        check("bytes=0-", 0, Selection::Unsatisfiable);
        for whole in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes 0-5",
            "bytes=abc",
            "bytes=5-2",
            "items=0-5",
            "bytes=0-5x",
            "bytes=--5",
            "bytes=0x0-0x5",
            "bytes=+0-5",
            "bytes=-5-10",
            "bytes=0..5",
            "bytes=0-9,x",
            "bytes=0-99,50-149",
            "bytes=0-,0-",
            "bytes=-9223372036854775608,-17208",
            "bytes= 0-5-",
        ] {
            check(whole, 1000, Selection::Whole);
        }
        check(&format!("bytes={}", "0-0,".repeat(1300)), 1000, Selection::Whole);
    }

    proptest! {
        #[test]
        fn never_outside_and_never_more_than_the_whole(value in "bytes=[0-9,\\- ]{0,40}", length in 0u64..200) {
            let parts = match select(value.as_bytes(), length) {
                Selection::One(range) => vec![range],
                Selection::Many(ranges) => ranges,
                Selection::Whole | Selection::Unsatisfiable => vec![],
            };
            prop_assert!(parts.iter().all(|r| r.first <= r.last && r.last < length));
            prop_assert!(parts.iter().map(|r| r.len()).sum::<u64>() <= length);
        }
    }
}
