//! Parses strings: quoted, raw, and over several lines (KDL 2.0).

use super::character::is_newline;
use crate::config::position::Span;
use crate::config::problem::Problem;

/// The first character or escape of a text.
enum Piece {
    Character(char),
    /// A backslash and the white space and line ends after it, which stand for nothing.
    WhitespaceEscape,
    /// An unknown escape, which is reported and stands for itself.
    Invalid,
}

/// Parses a string whose end is known. An unknown escape is reported and stands for itself.
pub(super) fn read(part: &str, at: Span, problems: &mut Vec<Problem>) -> Option<String> {
    let hashes = part.len() - part.trim_start_matches('#').len();
    let quoted = &part[hashes..part.len() - hashes];
    let is_raw = hashes > 0;
    if !is_raw {
        problems.extend(check_escapes(quoted, at).err());
    }
    let Some(inner) = quoted.strip_prefix("\"\"\"") else {
        let inner = &quoted[1..quoted.len() - 1];
        return Some(if is_raw { inner.to_owned() } else { resolve_escapes(inner) });
    };
    // The indentation is found before other escapes are resolved, so `\n` starts no line.
    let lines = if is_raw { lines_of(inner) } else { lines_of(&remove_whitespace_escapes(inner)) };
    match lines {
        Ok(text) => Some(if is_raw { text } else { resolve_escapes(&text) }),
        Err((what, instead)) => {
            problems.push(Problem::new(at, what).suggest(instead));
            None
        }
    }
}

/// Returns the text of a string over several lines, or what is wrong and what to write instead.
fn lines_of(inner: &str) -> Result<String, (&'static str, &'static str)> {
    let inner = inner.strip_suffix("\"\"\"").unwrap_or(inner);
    if !inner.starts_with(is_newline) {
        return Err((
            "a multi-line string starts on the line of its quotes",
            "put the opening \"\"\" at the end of a line, and the closing \"\"\" on its own line",
        ));
    }
    unindent(inner).ok_or((
        "a multi-line string is indented less than its closing quotes",
        "indent each line at least as far as the closing \"\"\", which are on their own line",
    ))
}

/// Removes the first and the last line, and the indentation of the last line from the others. `None` if a line that is
/// not blank has another indentation.
fn unindent(text: &str) -> Option<String> {
    let text = text.replace("\r\n", "\n");
    let mut lines: Vec<&str> = text.split(is_newline).skip(1).collect();
    let is_blank = |line: &str| line.chars().all(char::is_whitespace);
    let indentation = lines.pop().filter(|last| is_blank(last))?;
    for line in &mut lines {
        *line = if is_blank(line) { "" } else { line.strip_prefix(indentation)? };
    }
    Some(lines.join("\n"))
}

fn remove_whitespace_escapes(text: &str) -> String {
    let pieces = pieces(text).filter(|(_, _, piece)| !matches!(piece, Piece::WhitespaceEscape));
    pieces.map(|(at, length, _)| &text[at..at + length]).collect()
}

fn resolve_escapes(text: &str) -> String {
    let mut resolved = String::with_capacity(text.len());
    for (at, length, piece) in pieces(text) {
        match piece {
            Piece::Character(c) => resolved.push(c),
            Piece::WhitespaceEscape => {}
            Piece::Invalid => resolved.push_str(&text[at..at + length]),
        }
    }
    resolved
}

/// Refuses the first unknown escape.
fn check_escapes(text: &str, at: Span) -> Result<(), Problem> {
    let Some((offset, length, _)) = pieces(text).find(|(_, _, piece)| matches!(piece, Piece::Invalid)) else {
        return Ok(());
    };
    let start = at.start + offset as u32;
    let problem = Problem::new(Span { start, end: start + length as u32, ..at }, "this escape is not known in KDL");
    Err(problem.suggest("write \\\\ for a backslash, or #\"...\"# for a text without escapes; escapes are \\n \\r \\t \\\\ \\\" \\b \\f \\s \\u{...}"))
}

/// Returns the characters and escapes of a text with their positions and lengths.
fn pieces(text: &str) -> impl Iterator<Item = (usize, usize, Piece)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let (length, piece) = first_piece(&text[start..])?;
        at += length;
        Some((start, length, piece))
    })
}

/// Returns the first character or escape of a text, and its length.
fn first_piece(text: &str) -> Option<(usize, Piece)> {
    let mut characters = text.chars();
    let first = characters.next()?;
    if first != '\\' {
        return Some((first.len_utf8(), Piece::Character(first)));
    }
    let behind = characters.as_str();
    let space = behind.len() - behind.trim_start().len();
    let character = match characters.next() {
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('s') => ' ',
        Some(c @ ('\\' | '"')) => c,
        Some('u') => {
            let escape = unicode_escape(characters.as_str());
            return Some(escape.map_or((2, Piece::Invalid), |(length, c)| (2 + length, Piece::Character(c))));
        }
        _ if space > 0 => return Some((1 + space, Piece::WhitespaceEscape)),
        other => return Some((1 + other.map_or(0, char::len_utf8), Piece::Invalid)),
    };
    Some((2, Piece::Character(character)))
}

/// Returns the character that a hexadecimal number in braces stands for, and the length of the number with its braces.
fn unicode_escape(text: &str) -> Option<(usize, char)> {
    let (digits, _) = text.strip_prefix('{')?.split_once('}')?;
    let is_number = (1..=6).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?;
    Some((digits.len() + 2, char::from_u32(number)?))
}
