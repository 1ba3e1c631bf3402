//! Looking for an octet eight at a time, in an ordinary register.
//!
//! Each test gives a word with the top bit of an octet set where the octet fits. Above the
//! first octet that fits there may be false ones, so only the first counts.

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Octets that equal `octet`.
#[inline]
pub(crate) const fn equal(word: u64, octet: u8) -> u64 {
    below(word ^ (ONES * octet as u64), 1)
}

/// Octets below `limit`, which is at most 128.
#[inline]
pub(crate) const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(ONES * limit as u64) & !word & TOPS
}

/// Octets from 128 on.
#[inline]
pub(crate) const fn high(word: u64) -> u64 {
    word & TOPS
}

/// The first position from `at` on whose octet fits the test, or the length.
#[inline]
pub(crate) fn find(bytes: &[u8], at: usize, fits: impl Fn(u64) -> u64) -> usize {
    let mut pos = at;
    while let Some(eight) = bytes.get(pos..).and_then(|rest| rest.first_chunk::<8>()) {
        let found = fits(u64::from_le_bytes(*eight));
        if found != 0 {
            return pos + (found.trailing_zeros() / 8) as usize;
        }
        pos += 8;
    }
    while pos < bytes.len() && fits(u64::from(bytes[pos])) & 0x80 == 0 {
        pos += 1;
    }
    pos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_one_octet_at_a_time() {
        for len in 0..40 {
            for place in 0..=len {
                for octet in 0..=255u8 {
                    let mut bytes = vec![b'm'; len];
                    if place < len {
                        bytes[place] = octet;
                    }
                    let plain = |wanted: &dyn Fn(u8) -> bool| bytes.iter().position(|&b| wanted(b)).unwrap_or(len);
                    assert_eq!(find(&bytes, 0, |w| equal(w, b'?')), plain(&|b| b == b'?'));
                    assert_eq!(find(&bytes, 0, |w| below(w, 0x21)), plain(&|b| b < 0x21));
                    assert_eq!(find(&bytes, 0, high), plain(&|b| b >= 0x80));
                }
            }
        }
    }
}
