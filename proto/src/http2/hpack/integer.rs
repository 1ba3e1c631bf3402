//! Integers with a prefix (RFC 7541 §5.1). QPACK has them too (RFC 9204 §4.1.1).

use super::error::HpackError;

/// Largest integer that is decoded. Nothing in HTTP/2 needs a larger one.
const INTEGER_MAX: u64 = (1 << 31) - 1;

/// Most bytes after the prefix: 35 bits, of which a valid integer uses 31.
const CONTINUATION_BYTES_MAX: u32 = 5;

/// Decodes the integer that begins in the low `prefix_bits` bits of `first` and continues in `rest`. Returns it and
/// the bytes after it.
#[inline]
pub(crate) fn decode_integer(first: u8, prefix_bits: u32, rest: &[u8]) -> Result<(usize, &[u8]), HpackError> {
    let prefix_max = u8::MAX >> (8 - prefix_bits);
    let prefix = first & prefix_max;
    if prefix < prefix_max { Ok((usize::from(prefix), rest)) } else { decode_continuation(u64::from(prefix), rest) }
}

/// Decodes the bytes after a prefix. Not inlined, as nearly all integers consist of their prefix.
#[inline(never)]
fn decode_continuation(prefix: u64, mut rest: &[u8]) -> Result<(usize, &[u8]), HpackError> {
    let mut value = prefix;
    for index in 0..CONTINUATION_BYTES_MAX {
        let (&byte, after) = rest.split_first().ok_or(HpackError::Truncated)?;
        rest = after;
        value += u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return if value > INTEGER_MAX { Err(HpackError::IntegerTooLarge) } else { Ok((value as usize, rest)) };
        }
    }
    Err(HpackError::IntegerTooLarge)
}

/// Appends an integer with a prefix of `prefix_bits` bits. `flags` has the bits above the prefix.
#[inline]
pub(crate) fn encode_integer(value: usize, prefix_bits: u32, flags: u8, out: &mut Vec<u8>) {
    let prefix_max = usize::from(u8::MAX >> (8 - prefix_bits));
    if value < prefix_max {
        out.push(flags | value as u8);
        return;
    }
    out.push(flags | prefix_max as u8);
    encode_continuation(value - prefix_max, out);
}

fn encode_continuation(mut rest: usize, out: &mut Vec<u8>) {
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], prefix_bits: u32) -> Result<(usize, usize), HpackError> {
        decode_integer(bytes[0], prefix_bits, &bytes[1..]).map(|(value, rest)| (value, rest.len()))
    }

    #[test]
    fn examples_of_rfc_7541_c_1() {
        for (value, prefix_bits, bytes) in
            [(10, 5, &[0b01010][..]), (1337, 5, &[0b11111, 0b1001_1010, 0b1010]), (42, 8, &[0b10_1010])]
        {
            let mut out = Vec::new();
            encode_integer(value, prefix_bits, 0, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(decode(bytes, prefix_bits), Ok((value, 0)));
        }
    }

    #[test]
    fn integers_are_decoded_as_encoded_up_to_the_maximum() {
        let max = INTEGER_MAX as usize;
        for value in (0..70_000).chain([max - 1, max]) {
            for prefix_bits in 4..=8 {
                let mut out = Vec::new();
                encode_integer(value, prefix_bits, 0, &mut out);
                out.push(0xaa);
                assert_eq!(decode(&out, prefix_bits), Ok((value, 1)));
            }
        }
    }

    #[test]
    fn large_and_truncated_integers_are_refused() {
        let mut out = Vec::new();
        encode_integer(INTEGER_MAX as usize + 1, 7, 0, &mut out);
        for (bytes, error) in [
            (&out[..], HpackError::IntegerTooLarge),
            (&[0x7f, 0xff, 0xff, 0xff, 0xff, 0x7f], HpackError::IntegerTooLarge),
            (&[0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], HpackError::IntegerTooLarge),
            (&[0x7f], HpackError::Truncated),
            (&[0x7f, 0x80], HpackError::Truncated),
        ] {
            assert_eq!(decode(bytes, 7), Err(error), "{bytes:x?}");
        }
    }
}
