//! Globs: texts with wildcards.
//!
//! A glob matches from the left: each wildcard but the last takes as little as possible. Then no wildcard has to be
//! tried twice, so the time is linear in the text.

use super::ValueError;
use std::ops::Range;

/// The maximum number of wildcards of a pattern.
pub(crate) const WILDCARDS_MAX: usize = 8;

/// The ranges of a text that the wildcards of a pattern matched.
pub(super) type Ranges = Vec<Range<usize>>;

/// A glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Glob {
    parts: Box<[GlobPart]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum GlobPart {
    Literal(Box<str>),
    /// `*`: any text, or none.
    Any,
    /// `{name}`: at least one character.
    Some,
}

/// Whether `{name}` is a wildcard or stands for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Braces {
    Wildcard,
    Literal,
}

impl Glob {
    /// Parses a glob. Adds the name of each wildcard to `names`: empty for a star.
    pub(super) fn parse(text: &str, braces: Braces, names: &mut Vec<Box<str>>) -> Result<Self, ValueError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let opens = |c: char| c == '*' || (c == '{' && braces == Braces::Wildcard);
            let literal = rest.find(opens).unwrap_or(rest.len());
            if literal > 0 {
                parts.push(GlobPart::Literal(rest[..literal].into()));
                rest = &rest[literal..];
                continue;
            }
            if !matches!(parts.last(), None | Some(GlobPart::Literal(_))) {
                return Err(ValueError::new(
                    "two adjacent wildcards",
                    "put text between them; one `*` matches any text of a segment",
                ));
            }
            if names.len() == WILDCARDS_MAX {
                return Err(ValueError::new("too many wildcards", format!("a pattern has at most {WILDCARDS_MAX}")));
            }
            match rest.strip_prefix('*') {
                Some(behind) => {
                    parts.push(GlobPart::Any);
                    names.push("".into());
                    rest = behind;
                }
                None => {
                    let (name, behind) = read_name(rest)?;
                    add_name(name, names)?;
                    parts.push(GlobPart::Some);
                    rest = behind;
                }
            }
        }
        Ok(Self { parts: parts.into() })
    }

    /// Changes the ASCII letters to lower case.
    pub(super) fn make_lowercase(&mut self) {
        for part in &mut self.parts {
            if let GlobPart::Literal(text) = part {
                text.make_ascii_lowercase();
            }
        }
    }

    /// Matches `text[range]`, and adds the ranges of the wildcards.
    pub(super) fn matches(&self, text: &str, range: Range<usize>, ranges: &mut Ranges) -> bool {
        let mut at = range.start;
        let mut parts = self.parts.iter().peekable();
        if let Some(GlobPart::Literal(first)) = parts.peek() {
            if !text[range.clone()].starts_with(&**first) {
                return false;
            }
            at += first.len();
            parts.next();
        }
        while let Some(wildcard) = parts.next() {
            let min = match (wildcard, text[at..range.end].chars().next()) {
                (GlobPart::Some, Some(character)) => character.len_utf8(),
                (GlobPart::Some, None) => return false,
                _ => 0,
            };
            let end = match parts.next() {
                None => range.end,
                Some(GlobPart::Literal(last)) if parts.peek().is_none() => {
                    match text[at + min..range.end].strip_suffix(&**last) {
                        Some(taken) => {
                            ranges.push(at..at + min + taken.len());
                            return true;
                        }
                        None => return false,
                    }
                }
                Some(GlobPart::Literal(literal)) => match text[at + min..range.end].find(&**literal) {
                    Some(found) => {
                        ranges.push(at..at + min + found);
                        at += min + found + literal.len();
                        continue;
                    }
                    None => return false,
                },
                Some(GlobPart::Any | GlobPart::Some) => unreachable!("wildcards are not adjacent"),
            };
            ranges.push(at..end);
            return true;
        }
        at == range.end
    }
}

/// Reads `{name}` at the start of a text. Returns the name and the rest.
pub(super) fn read_name(text: &str) -> Result<(&str, &str), ValueError> {
    let inner = text.strip_prefix('{').and_then(|text| text.split_once('}'));
    match inner {
        Some((name, behind)) if is_name(name) => Ok((name, behind)),
        Some((list, _)) if list.contains(',') => Err(ValueError::new(
            format!("`{{{list}}}` is not an alternative here"),
            "write several patterns, each in its own \"quotes\"",
        )),
        Some((name, _)) => Err(ValueError::new(
            format!("`{{{}}}` is not a named wildcard", name.escape_debug()),
            "a name has letters, digits and `_`, and starts with a letter, as in {name}",
        )),
        None => Err(ValueError::new("a `{` without a `}`", "write {name} for a named wildcard")),
    }
}

/// Adds the name of a wildcard, which is used once and is not a name of the request.
pub(super) fn add_name(name: &str, names: &mut Vec<Box<str>>) -> Result<(), ValueError> {
    if names.iter().any(|known| **known == *name) {
        return Err(ValueError::new(format!("`{{{name}}}` is repeated"), "each wildcard has its own name"));
    }
    if super::variable::Variable::named(name).is_some() {
        let what = format!("`{{{name}}}` is a value of the request");
        return Err(ValueError::new(what, format!("choose another name, such as {{the_{name}}}")));
    }
    names.push(name.into());
    Ok(())
}

/// Whether a text can be the name of a wildcard.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_take_what_is_between_the_literals() {
        for (glob, text, expected) in [
            ("", "", Some(&[][..])),
            ("", "a", None),
            ("abc", "abc", Some(&[])),
            ("abc", "abcd", None),
            ("*", "", Some(&[""])),
            ("{a}", "", None),
            ("{a}", "é", Some(&["é"])),
            ("{a}-{b}", "-", None),
            ("{a}-{b}", "--x", Some(&["-", "x"])),
            ("{a}-{b}", "x-", None),
            ("*-*", "-", Some(&["", ""])),
            ("*-*x*", "a-b-xcx", Some(&["a", "b-", "cx"])),
            ("a*a", "a", None),
            ("*.css", "a.css.css", Some(&["a.css"])),
        ] {
            let mut names = Vec::new();
            let parsed = Glob::parse(glob, Braces::Wildcard, &mut names).unwrap();
            let mut ranges = Ranges::new();
            let found = parsed.matches(text, 0..text.len(), &mut ranges);
            let found = found.then(|| ranges.into_iter().map(|range| &text[range]).collect::<Vec<_>>());
            assert_eq!(found, expected.map(<[_]>::to_vec), "{glob} {text}");
        }
    }
}
