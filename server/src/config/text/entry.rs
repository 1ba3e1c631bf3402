//! Parses one value: a word, string, number or keyword.
//!
//! Invariant: what is parsed here without the `kdl` crate has an equal meaning there.

use super::{Scalar, kdl};
use crate::config::position::Span;
use crate::config::problem::Problem;

/// Longest unquoted word.
const WORD_BYTES_MAX: usize = 256;
/// Longest string that is not plain.
const STRING_BYTES_MAX: usize = 64 << 10;

/// Parses a value whose end is known.
pub(super) fn read(part: &str, at: Span) -> Result<Scalar, Problem> {
    if let Some(scalar) = read_plain(part) {
        return Ok(scalar);
    }
    let is_string = part.trim_start_matches('#').starts_with('"');
    if part.len() > if is_string { STRING_BYTES_MAX } else { WORD_BYTES_MAX } {
        let what = if is_string {
            "a string with escapes that is longer than 64 KiB"
        } else {
            "a word that is longer than 256 bytes"
        };
        return Err(Problem::new(at, what));
    }
    if is_string {
        check_string(part, at)?;
    }
    kdl::read(part, at)
}

/// Parses a plain value, which nearly all are.
fn read_plain(part: &str) -> Option<Scalar> {
    match part.as_bytes().first()? {
        b'"' => {
            let inner = part.strip_prefix('"')?.strip_suffix('"')?;
            let is_plain = inner.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\');
            is_plain.then(|| Scalar::Text(inner.to_owned()))
        }
        b'0'..=b'9' if part.bytes().all(|b| b.is_ascii_digit()) => part.parse().ok().map(Scalar::Integer),
        b'#' => match part {
            "#true" => Some(Scalar::Flag(true)),
            "#false" => Some(Scalar::Flag(false)),
            _ => None,
        },
        b'a'..=b'z' | b'A'..=b'Z' => {
            let is_plain = part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            // KDL 2 reserves these five words, so the crate reports the mistake.
            let is_keyword = matches!(part, "true" | "false" | "null" | "inf" | "nan");
            (is_plain && !is_keyword).then(|| Scalar::Text(part.to_owned()))
        }
        _ => None,
    }
}

/// Refuses strings in which the `kdl` crate would recurse at a mistake, because the text after it may be long.
fn check_string(part: &str, at: Span) -> Result<(), Problem> {
    let place = |offset: usize, length: usize| Span {
        start: at.start + offset as u32,
        end: at.start + (offset + length) as u32,
        ..at
    };
    let is_raw = part.starts_with('#');
    let mut characters = part.char_indices();
    while let Some((offset, c)) = characters.next() {
        if is_disallowed(c) {
            let what = format!("the character U+{:04X} is not allowed in KDL", u32::from(c));
            return Err(
                Problem::new(place(offset, c.len_utf8()), what).suggest(format!("write \\u{{{:x}}}", u32::from(c)))
            );
        }
        if c != '\\' || is_raw {
            continue;
        }
        let behind = &part[offset + 1..];
        let is_known = match characters.next().map(|(_, c)| c) {
            Some('n' | 'r' | 't' | '\\' | '"' | 'b' | 'f' | 's') => true,
            Some('u') => is_unicode_escape(&behind[1..]),
            Some(c) => c.is_whitespace(),
            None => false,
        };
        if !is_known {
            let problem = Problem::new(place(offset, 2.min(part.len() - offset)), "this escape is not known in KDL");
            return Err(
                problem.suggest("write \\\\ for a backslash; escapes are \\n \\r \\t \\\\ \\\" \\b \\f \\s \\u{...}")
            );
        }
    }
    check_lines(part, at)
}

/// Whether a hexadecimal character in braces starts here.
fn is_unicode_escape(behind: &str) -> bool {
    let digits = behind.strip_prefix('{').and_then(|behind| behind.split_once('}')).map(|(digits, _)| digits);
    digits.is_some_and(|digits| {
        (1..=6).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_hexdigit())
            && u32::from_str_radix(digits, 16).is_ok_and(|number| char::from_u32(number).is_some())
    })
}

/// Checks that each line of a multi-line string starts with the indentation of its closing quotes.
fn check_lines(part: &str, at: Span) -> Result<(), Problem> {
    let hashes = part.len() - part.trim_start_matches('#').len();
    let Some(inner) = part[hashes..part.len() - hashes].strip_prefix("\"\"\"") else { return Ok(()) };
    let inner = inner.strip_suffix("\"\"\"").unwrap_or(inner);
    let lines: Vec<&str> = inner.split(super::newline::is_newline).collect();
    let [first, middle @ .., last] = lines.as_slice() else { return Ok(()) };
    if lines.len() < 2 || !first.is_empty() {
        let problem = Problem::new(at, "a multi-line string starts on the line of its quotes");
        return Err(
            problem.suggest("put the opening \"\"\" at the end of a line, and the closing \"\"\" on its own line")
        );
    }
    let is_indented = last.chars().all(char::is_whitespace)
        && middle.iter().all(|line| line.starts_with(last) || line.chars().all(char::is_whitespace));
    if is_indented {
        return Ok(());
    }
    let problem = Problem::new(at, "a multi-line string is indented less than its closing quotes");
    Err(problem.suggest("indent each line at least as far as the closing \"\"\", which are on their own line"))
}

/// Whether a code point is invalid in KDL.
fn is_disallowed(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}' | '\u{feff}')
}
