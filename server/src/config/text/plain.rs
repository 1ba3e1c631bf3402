//! Reads the heads that nearly all nodes have: plain words, strings without escapes, whole
//! numbers, `#true` and `#false`. Whatever else stands in a head, the `kdl` crate reads it.
//!
//! Invariant: a head that is read here means the same to the `kdl` crate.

use super::{Entry, Node, Scalar};
use crate::config::place::Span;

/// Reads a head, or leaves it to the crate.
pub(super) fn read(head: &str, at: Span) -> Option<Node> {
    let mut rest = head;
    let name = take_word(&mut rest)?;
    let name_at = Span { end: at.start + name.len() as u32, ..at };
    let mut entries = Vec::new();
    loop {
        let trimmed = rest.trim_start_matches([' ', '\t']);
        if trimmed.is_empty() {
            return Some(Node { name: name.to_owned(), name_at, entries: Some(entries), children: None, at });
        }
        if trimmed.len() == rest.len() {
            return None;
        }
        let start = head.len() - trimmed.len();
        rest = trimmed;
        let (name, value_start, scalar) = take_entry(head, &mut rest)?;
        let place = |from: usize| Span {
            file: at.file,
            start: at.start + from as u32,
            end: at.start + (head.len() - rest.len()) as u32,
        };
        entries.push(Entry { name, scalar, at: place(start), value_at: place(value_start) });
    }
}

/// What can be said of a head that cannot be read: its name, if it has one.
pub(super) fn name_only(head: &str, at: Span) -> Option<Node> {
    let length =
        head.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))).unwrap_or(head.len());
    let name_at = Span { end: at.start + length as u32, ..at };
    (length > 0).then(|| Node { name: head[..length].to_owned(), name_at, entries: None, children: None, at })
}

/// An entry: the name of a property, where its value begins, and that value.
fn take_entry(head: &str, rest: &mut &str) -> Option<(Option<String>, usize, Scalar)> {
    let start = head.len() - rest.len();
    if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some((None, start, take_scalar(rest)?));
    }
    let word = take_word(rest)?;
    match rest.strip_prefix('=') {
        Some(value) => {
            *rest = value;
            let value_start = head.len() - value.len();
            Some((Some(word.to_owned()), value_start, take_scalar(rest)?))
        }
        None => Some((None, start, Scalar::Text(word.to_owned()))),
    }
}

fn take_scalar(rest: &mut &str) -> Option<Scalar> {
    match rest.as_bytes().first()? {
        b'"' => take_string(rest),
        b'0'..=b'9' => {
            let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let number = rest[..length].parse().ok()?;
            *rest = &rest[length..];
            ends_here(rest).then_some(Scalar::Integer(number))
        }
        b'#' => {
            let (flag, behind) = match rest.strip_prefix("#true") {
                Some(behind) => (true, behind),
                None => (false, rest.strip_prefix("#false")?),
            };
            *rest = behind;
            ends_here(rest).then_some(Scalar::Flag(flag))
        }
        b'a'..=b'z' | b'A'..=b'Z' => take_word(rest).map(|word| Scalar::Text(word.to_owned())),
        _ => None,
    }
}

/// A string of visible ASCII, without an escape, that does not begin with three quotes.
fn take_string(rest: &mut &str) -> Option<Scalar> {
    let inner = rest.strip_prefix('"')?;
    let length = inner.bytes().position(|b| !matches!(b, b' '..=b'~') || b == b'"' || b == b'\\')?;
    let behind = inner[length..].strip_prefix('"')?;
    *rest = behind;
    ends_here(behind).then(|| Scalar::Text(inner[..length].to_owned()))
}

/// A word that KDL takes for an identifier, up to white space, `=` or the end.
fn take_word<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let length = rest.bytes().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')));
    let (word, behind) = rest.split_at(length.unwrap_or(rest.len()));
    let is_plain = word.starts_with(|c: char| c.is_ascii_alphabetic());
    // These five are no words to KDL 2, so the crate says what is wrong with them.
    let is_keyword = matches!(word, "true" | "false" | "null" | "inf" | "nan");
    let ends = behind.is_empty() || behind.starts_with([' ', '\t', '=']);
    if !is_plain || is_keyword || !ends {
        return None;
    }
    *rest = behind;
    Some(word)
}

fn ends_here(behind: &str) -> bool {
    behind.is_empty() || behind.starts_with([' ', '\t'])
}
