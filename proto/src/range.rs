//! Selects the parts of a representation that a Range field requests (RFC 9110 §14).
//!
//! Invariant: the selected ranges are within the representation and do not overlap. Their total is
//! therefore at most the length of the representation, so a request cannot multiply the work of the
//! server (RFC 9110 §17.15).

use crate::field::trim;
use crate::limits::RANGES_MAX;

/// A range of bytes, including both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte; at least `first`.
    pub last: u64,
}

impl ByteRange {
    /// Returns the number of bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u64 {
        self.last - self.first + 1
    }
}

/// The parts of a representation to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeSelection {
    /// The whole representation: the field is invalid, has another unit, or requests too much.
    Whole,
    /// One part: 206 with Content-Range.
    Single(ByteRange),
    /// At least two parts, in the order of the request: 206 with multipart/byteranges.
    Multiple(Vec<ByteRange>),
    /// No requested part exists: 416.
    Unsatisfiable,
}

enum RangeSpec {
    Satisfiable(ByteRange),
    /// A suffix of an empty representation, for which no Content-Range exists.
    EmptySuffix,
    Unsatisfiable,
}

/// Selects the parts of a representation of `length` bytes for a Range value.
///
/// Ignores an invalid value (RFC 9110 §14.2), a value with more than [`RANGES_MAX`] ranges, and a
/// value with overlapping ranges.
pub fn select(value: &[u8], length: u64) -> RangeSelection {
    let Some(set) = strip_bytes_unit(value) else { return RangeSelection::Whole };
    let mut satisfiable = Vec::new();
    let mut count = 0;
    // A suffix with a length is satisfiable, and that of an empty representation is the whole one (RFC 9110 §14.1.2).
    let mut has_suffix_of_nothing = false;
    for spec in set.split(|&b| b == b',').map(trim).filter(|spec| !spec.is_empty()) {
        count += 1;
        match parse_spec(spec, length) {
            _ if count > RANGES_MAX => return RangeSelection::Whole,
            None => return RangeSelection::Whole,
            Some(RangeSpec::Satisfiable(range)) => satisfiable.push(range),
            Some(RangeSpec::EmptySuffix) => has_suffix_of_nothing = true,
            Some(RangeSpec::Unsatisfiable) => {}
        }
    }
    match satisfiable.as_slice() {
        [] if count == 0 || has_suffix_of_nothing => RangeSelection::Whole,
        [] => RangeSelection::Unsatisfiable,
        [one] => RangeSelection::Single(*one),
        many if overlaps(many) => RangeSelection::Whole,
        _ => RangeSelection::Multiple(satisfiable),
    }
}

/// Returns the value after `bytes=`. The unit is compared without case (RFC 9110 §14.1).
fn strip_bytes_unit(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(set)
}

/// Parses `first-last`, `first-` or `-suffix`; `None` if the syntax is invalid.
fn parse_spec(spec: &[u8], length: u64) -> Option<RangeSpec> {
    let dash = spec.iter().position(|&b| b == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(match parse_number(last)? {
            0 => RangeSpec::Unsatisfiable,
            _ if length == 0 => RangeSpec::EmptySuffix,
            suffix => RangeSpec::Satisfiable(ByteRange { first: length.saturating_sub(suffix), last: length - 1 }),
        });
    }
    let first = parse_number(first)?;
    let last = if last.is_empty() { u64::MAX } else { parse_number(last)? };
    if last < first {
        return None;
    }
    if first >= length {
        return Some(RangeSpec::Unsatisfiable);
    }
    Some(RangeSpec::Satisfiable(ByteRange { first, last: last.min(length - 1) }))
}

/// Parses `1*DIGIT`. A number that is too large becomes `u64::MAX`, which is beyond every end.
fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits
        .iter()
        .try_fold(0u64, |n, b| b.is_ascii_digit().then(|| n.saturating_mul(10).saturating_add(u64::from(b - b'0'))))
}

/// Whether two of the ranges share a byte. The work is bounded by [`RANGES_MAX`].
fn overlaps(ranges: &[ByteRange]) -> bool {
    ranges.iter().enumerate().any(|(index, a)| ranges[..index].iter().any(|b| a.first <= b.last && b.first <= a.last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(value: &str, length: u64, expected: RangeSelection) {
        assert_eq!(select(value.as_bytes(), length), expected, "{value} of {length}");
    }

    fn one(first: u64, last: u64) -> RangeSelection {
        RangeSelection::Single(ByteRange { first, last })
    }

    #[test]
    fn selected_and_ignored_ranges() {
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
            RangeSelection::Multiple(vec![ByteRange { first: 0, last: 4 }, ByteRange { first: 10, last: 14 }]),
        );
        check(
            "bytes=500-509,0-9",
            1000,
            RangeSelection::Multiple(vec![ByteRange { first: 500, last: 509 }, ByteRange { first: 0, last: 9 }]),
        );
        for unsatisfiable in ["bytes=1000-1005", "bytes=-0", "bytes=18446744073709551616-", "bytes=1000-,2000-"] {
            check(unsatisfiable, 1000, RangeSelection::Unsatisfiable);
        }
        check("bytes=-5", 0, RangeSelection::Whole);
        check("bytes=7-,-5", 0, RangeSelection::Whole);
        check("bytes=-0", 0, RangeSelection::Unsatisfiable);
        check("bytes=0-", 0, RangeSelection::Unsatisfiable);
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
            check(whole, 1000, RangeSelection::Whole);
        }
        check(&format!("bytes={}", "0-0,".repeat(1300)), 1000, RangeSelection::Whole);
    }

    proptest! {
        #[test]
        fn selection_is_within_the_representation_and_at_most_its_length(value in "bytes=[0-9,\\- ]{0,40}", length in 0u64..200) {
            let parts = match select(value.as_bytes(), length) {
                RangeSelection::Single(range) => vec![range],
                RangeSelection::Multiple(ranges) => ranges,
                RangeSelection::Whole | RangeSelection::Unsatisfiable => vec![],
            };
            prop_assert!(parts.iter().all(|r| r.first <= r.last && r.last < length));
            prop_assert!(parts.iter().map(|r| r.len()).sum::<u64>() <= length);
        }
    }
}
