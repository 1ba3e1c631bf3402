//! Searches for a byte, eight bytes at a time, in an ordinary register (SWAR: SIMD within a
//! register).
//!
//! Each predicate returns a word in which the high bit of each matching byte is set. Bytes above
//! the first match may be false matches, so only the first match is used.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes that equal `byte`.
#[inline]
pub(crate) const fn equal_to(word: u64, byte: u8) -> u64 {
    below(word ^ (ONES * byte as u64), 1)
}

/// Marks the bytes below `limit`, which is at most 128.
#[inline]
pub(crate) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & HIGH_BITS
}

/// Marks the bytes of 128 or more.
#[inline]
pub(crate) const fn non_ascii(word: u64) -> u64 {
    word & HIGH_BITS
}

/// Returns the first position at or after `start` whose byte matches, or the length.
#[inline]
pub(crate) fn find(bytes: &[u8], start: usize, matches: impl Fn(u64) -> u64) -> usize {
    let mut pos = start;
    while let Some(eight) = bytes.get(pos..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = matches(u64::from_le_bytes(*eight));
        if found != 0 {
            return pos + (found.trailing_zeros() / 8) as usize;
        }
        pos += 8;
    }
    while pos < bytes.len() && matches(u64::from(bytes[pos])) & 0x80 == 0 {
        pos += 1;
    }
    pos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_a_search_byte_by_byte() {
        for len in 0..40 {
            for index in 0..=len {
                for byte in 0..=255u8 {
                    let mut bytes = vec![b'm'; len];
                    if index < len {
                        bytes[index] = byte;
                    }
                    let expected = |wanted: &dyn Fn(u8) -> bool| bytes.iter().position(|&b| wanted(b)).unwrap_or(len);
                    assert_eq!(find(&bytes, 0, |w| equal_to(w, b'?')), expected(&|b| b == b'?'));
                    assert_eq!(find(&bytes, 0, |w| below(w, 0x21)), expected(&|b| b < 0x21));
                    assert_eq!(find(&bytes, 0, non_ascii), expected(&|b| b >= 0x80));
                }
            }
        }
    }
}
