//! The Huffman code for strings (RFC 7541 §5.2, Appendix B). QPACK has it too (RFC 9204 §4.1.2).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and longer codes
//! follow shorter ones. So the lengths define all codes, and the tables are made from them by the compiler.

use super::error::HpackError;

/// Number of symbols: 256 bytes and EOS.
const SYMBOLS: usize = 257;

/// Longest code, in bits.
const CODE_BITS_MAX: usize = 30;

/// Shortest code, in bits.
const CODE_BITS_MIN: usize = 5;

/// Bits by which the fast table is indexed. 74 symbols, among them all letters and digits, have shorter codes.
const FAST_BITS: usize = 8;

/// Length of the code of each symbol, in bits. The last one is EOS.
#[rustfmt::skip]
const CODE_BITS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
     6, 10, 10, 12, 13,  6,  8, 11, 10, 10,  8, 11,  8,  6,  6,  6,
     5,  5,  5,  6,  6,  6,  6,  6,  6,  6,  7,  8, 15,  6, 12, 10,
    13,  6,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,  7,
     7,  7,  7,  7,  7,  7,  7,  7,  8,  7,  8, 13, 19, 13, 14,  6,
    15,  5,  6,  5,  6,  5,  6,  6,  6,  5,  7,  7,  6,  6,  6,  5,
     6,  7,  6,  5,  5,  6,  7,  7,  7,  7,  7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The codes of all symbols and the tables to decode them.
struct Tables {
    /// The code of each symbol, in the low bits.
    codes: [u32; SYMBOLS],
    /// All symbols, in the order of their codes.
    sorted: [u16; SYMBOLS],
    /// For each length: the first code, aligned to the left of 32 bits.
    first_code: [u32; CODE_BITS_MAX + 2],
    /// For each length: the index of its first symbol in `sorted`.
    first_index: [u16; CODE_BITS_MAX + 2],
    /// For the next eight bits: `symbol << 8 | length`; 0 if the code is longer.
    fast: [u16; 1 << FAST_BITS],
}

static TABLES: Tables = make_tables();

const fn make_tables() -> Tables {
    let mut tables = Tables {
        codes: [0; SYMBOLS],
        sorted: [0; SYMBOLS],
        first_code: [0; CODE_BITS_MAX + 2],
        first_index: [0; CODE_BITS_MAX + 2],
        fast: [0; 1 << FAST_BITS],
    };
    let (mut next, mut index, mut bits) = (0u64, 0, CODE_BITS_MIN);
    while bits <= CODE_BITS_MAX {
        tables.first_code[bits] = (next << (32 - bits)) as u32;
        tables.first_index[bits] = index as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if CODE_BITS[symbol] as usize == bits {
                tables.codes[symbol] = next as u32;
                tables.sorted[index] = symbol as u16;
                if bits <= FAST_BITS {
                    fill_fast(&mut tables.fast, (next as usize) << (FAST_BITS - bits), symbol, bits);
                }
                index += 1;
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        bits += 1;
    }
    // Every sequence of 30 bits begins with a code.
    assert!(next >> 1 == 1 << CODE_BITS_MAX && index == SYMBOLS, "the code is complete");
    tables.first_code[CODE_BITS_MAX + 1] = u32::MAX;
    tables
}

const fn fill_fast(fast: &mut [u16; 1 << FAST_BITS], start: usize, symbol: usize, bits: usize) {
    let mut index = start;
    while index < start + (1 << (FAST_BITS - bits)) {
        fast[index] = (symbol << 8 | bits) as u16;
        index += 1;
    }
}

/// Appends the decoded string to `out`.
///
/// # Errors
/// [`HpackError::HuffmanEndOfString`] or [`HpackError::HuffmanPaddingInvalid`]. Bytes may have been appended.
pub(crate) fn decode_huffman(encoded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let start = out.len();
    out.resize(start + encoded.len() * 8 / CODE_BITS_MIN, 0);
    let len = decode_into(encoded, &mut out[start..])?;
    out.truncate(start + len);
    Ok(())
}

/// Decodes into `out`, which has a byte for each five bits. Returns the length of the string.
fn decode_into(encoded: &[u8], out: &mut [u8]) -> Result<usize, HpackError> {
    // `window` has `available` bits of the input, aligned to the left. The bits after them are 0.
    let (mut window, mut available, mut rest, mut len) = (0u64, 0, encoded, 0);
    loop {
        refill(&mut window, &mut available, &mut rest);
        while available >= FAST_BITS {
            let entry = TABLES.fast[(window >> (64 - FAST_BITS)) as usize];
            if entry == 0 {
                break;
            }
            let bits = usize::from(entry as u8);
            out[len] = (entry >> 8) as u8;
            len += 1;
            window <<= bits;
            available -= bits;
        }
        if available < CODE_BITS_MAX && !rest.is_empty() {
            continue;
        }
        let Some((symbol, bits)) = decode_one(window, available) else {
            return check_padding(window, available).map(|()| len);
        };
        out[len] = symbol?;
        len += 1;
        window <<= bits;
        available -= bits;
    }
}

/// Moves bytes from `rest` to the window, until it has at least 32 bits or `rest` is empty.
#[inline]
fn refill(window: &mut u64, available: &mut usize, rest: &mut &[u8]) {
    if *available >= 32 {
        return;
    }
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        *window |= u64::from(u32::from_be_bytes(*four)) << (32 - *available);
        *available += 32;
        *rest = after;
        return;
    }
    while let Some((&byte, after)) = rest.split_first() {
        *window |= u64::from(byte) << (56 - *available);
        *available += 8;
        *rest = after;
    }
}

/// Returns the byte at the start of the window and the length of its code, or `None` if the bits are fewer than a
/// code.
fn decode_one(window: u64, available: usize) -> Option<(Result<u8, HpackError>, usize)> {
    let entry = TABLES.fast[(window >> (64 - FAST_BITS)) as usize];
    let (symbol, bits) =
        if entry != 0 { (entry >> 8, usize::from(entry as u8)) } else { decode_long((window >> 32) as u32) };
    let symbol = u8::try_from(symbol).map_err(|_| HpackError::HuffmanEndOfString);
    (bits <= available).then_some((symbol, bits))
}

/// Returns the symbol at the start of `window` and the length of its code, which has more than eight bits.
fn decode_long(window: u32) -> (u16, usize) {
    let mut bits = FAST_BITS + 1;
    while bits < CODE_BITS_MAX && window >= TABLES.first_code[bits + 1] {
        bits += 1;
    }
    let index = usize::from(TABLES.first_index[bits]) + ((window - TABLES.first_code[bits]) >> (32 - bits)) as usize;
    (TABLES.sorted[index], bits)
}

/// Checks the bits after the last code.
//= RFC 7541 §5.2: padding is the most significant bits of EOS, which are 1, and shorter than 8 bits
fn check_padding(window: u64, available: usize) -> Result<(), HpackError> {
    let ones = !(u64::MAX >> available);
    if available < 8 && window == ones { Ok(()) } else { Err(HpackError::HuffmanPaddingInvalid) }
}

/// Returns the length of the encoded string in bytes.
pub(crate) fn huffman_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&b| usize::from(CODE_BITS[usize::from(b)])).sum();
    bits.div_ceil(8)
}

/// Appends the encoded string to `out`.
pub(crate) fn encode_huffman(text: &[u8], out: &mut Vec<u8>) {
    // At most 31 bits wait, and a code has at most 30.
    let (mut pending, mut pending_bits) = (0u64, 0);
    for &byte in text {
        let bits = u32::from(CODE_BITS[usize::from(byte)]);
        pending = pending << bits | u64::from(TABLES.codes[usize::from(byte)]);
        pending_bits += bits;
        if pending_bits >= 32 {
            pending_bits -= 32;
            out.extend_from_slice(&((pending >> pending_bits) as u32).to_be_bytes());
        }
    }
    while pending_bits >= 8 {
        pending_bits -= 8;
        out.push((pending >> pending_bits) as u8);
    }
    if pending_bits > 0 {
        out.push((pending << (8 - pending_bits)) as u8 | 0xff >> pending_bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(encoded: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = b"before".to_vec();
        decode_huffman(encoded, &mut out).map(|()| out.split_off(6))
    }

    #[test]
    fn every_pair_of_bytes_is_decoded_as_encoded() {
        for first in 0..=255 {
            for second in 0..=255 {
                for text in [&[first, second][..], &[second; 9], &[first, first, second, first, b'a']] {
                    let mut encoded = Vec::new();
                    encode_huffman(text, &mut encoded);
                    assert_eq!(encoded.len(), huffman_len(text));
                    assert_eq!(decode(&encoded).as_deref(), Ok(text));
                }
            }
        }
    }

    #[test]
    fn invalid_padding_and_end_of_string_are_refused() {
        assert_eq!(decode(&[]), Ok(Vec::new()));
        // `a` is 00011, `o` is 00111.
        assert_eq!(decode(&[0b0001_1111]), Ok(b"a".to_vec()));
        for (bytes, error) in [
            (&[0b0001_1110][..], HpackError::HuffmanPaddingInvalid),
            (&[0b0001_1000], HpackError::HuffmanPaddingInvalid),
            (&[0b0001_1111, 0xff], HpackError::HuffmanPaddingInvalid),
            (&[0xff], HpackError::HuffmanPaddingInvalid),
            (&[0xff, 0xff, 0xff], HpackError::HuffmanPaddingInvalid),
            (&[0xff, 0xff, 0xff, 0xff], HpackError::HuffmanEndOfString),
            (&[0b0001_1111, 0xff, 0xff, 0xff, 0xff], HpackError::HuffmanEndOfString),
        ] {
            assert_eq!(decode(bytes), Err(error), "{bytes:x?}");
        }
    }
}
