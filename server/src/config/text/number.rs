//! Parses numbers: decimal, hexadecimal, octal and binary integers, and decimal fractions (KDL 2.0).

use super::Scalar;

/// Parses a number. `None` for another text, and for an integer of more than 127 bits.
pub(super) fn read(part: &str) -> Option<Scalar> {
    let (sign, unsigned) = match part.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", part.strip_prefix('+').unwrap_or(part)),
    };
    for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = unsigned.strip_prefix(prefix) {
            return integer(sign, digits, radix);
        }
    }
    if let Some(integer) = integer(sign, unsigned, 10) {
        return Some(integer);
    }
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.strip_prefix(['-', '+']).unwrap_or(exponent)),
        None => (unsigned, "0"),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let is_float =
        unsigned.contains(['.', 'e', 'E']) && [whole, fraction, exponent].iter().all(|part| is_digits(part, 10));
    if is_float { format!("{sign}{unsigned}").replace('_', "").parse().ok().map(Scalar::Float) } else { None }
}

fn integer(sign: &str, digits: &str, radix: u32) -> Option<Scalar> {
    if !is_digits(digits, radix) {
        return None;
    }
    i128::from_str_radix(&format!("{sign}{digits}").replace('_', ""), radix).ok().map(Scalar::Integer)
}

/// Whether a text is a digit, and then digits and underscores.
fn is_digits(text: &str, radix: u32) -> bool {
    text.starts_with(|c: char| c.is_digit(radix)) && text.chars().all(|c| c.is_digit(radix) || c == '_')
}
