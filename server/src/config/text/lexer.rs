//! Skips what separates nodes and entries: space, comments, strings.

use super::character::{is_disallowed, is_newline, is_space};
use crate::config::position::Span;
use crate::config::problem::Problem;

/// Most disallowed characters that are reported for one text.
const DISALLOWED_MAX: usize = 8;

/// A text with the current position.
pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    file: u32,
    pub(super) at: usize,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl<'a> Lexer<'a> {
    /// Starts a text, after its byte order mark.
    pub(super) fn new(text: &'a str, file: u32, problems: &'a mut Vec<Problem>) -> Self {
        let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
        Self { text, file, at, problems }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    pub(super) fn problem(&mut self, start: usize, end: usize, what: &str, instead: &str) {
        let at = self.span(start, end);
        self.problems.push(Problem::new(at, what).suggest(instead));
    }

    /// Reports characters that may not be in a text. Returns whether it has one.
    pub(super) fn report_disallowed(&mut self) -> bool {
        let disallowed = self.rest().char_indices().filter(|&(_, c)| is_disallowed(c)).take(DISALLOWED_MAX);
        let found: Vec<_> = disallowed.map(|(offset, c)| (self.at + offset, c)).collect();
        for &(at, c) in &found {
            let code = u32::from(c);
            let what = format!("the character U+{code:04X} is not allowed in KDL");
            let instead = format!("remove it, or write \\u{{{code:x}}} in \"quotes\"");
            self.problem(at, at + c.len_utf8(), &what, &instead);
        }
        !found.is_empty()
    }

    /// Skips white space and comments within a line.
    pub(super) fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            match rest.chars().next() {
                Some(c) if is_space(c) => self.at += c.len_utf8(),
                Some('/') if rest.starts_with("/*") => self.skip_block_comment(),
                _ => return,
            }
        }
    }

    /// Skips white space, comments and line continuations within a head.
    pub(super) fn skip_node_space(&mut self) -> Skipped {
        loop {
            self.skip_space();
            if !self.rest().starts_with('\\') {
                return Skipped::Valid;
            }
            if self.skip_line_continuation() == Skipped::Invalid {
                return Skipped::Invalid;
            }
        }
    }

    /// Skips everything between two nodes.
    pub(super) fn skip_between(&mut self) {
        loop {
            self.skip_space();
            let rest = self.rest();
            match rest.chars().next() {
                Some(c) if is_newline(c) || c == ';' => self.at += c.len_utf8(),
                Some('/') if rest.starts_with("//") => self.skip_line(),
                _ => return,
            }
        }
    }

    /// Skips to the end of the line.
    pub(super) fn skip_line(&mut self) {
        self.at += self.rest().find(is_newline).unwrap_or(self.rest().len());
    }

    /// Skips a comment `/* */`, which may nest.
    pub(super) fn skip_block_comment(&mut self) {
        let start = self.at;
        let mut open = 0_usize;
        while self.at < self.text.len() {
            let rest = self.rest();
            if rest.starts_with("/*") {
                open += 1;
                self.at += 2;
            } else if rest.starts_with("*/") {
                open -= 1;
                self.at += 2;
            } else {
                self.at += rest.chars().next().map_or(0, char::len_utf8);
            }
            if open == 0 {
                return;
            }
        }
        self.problem(start, start + 2, "this comment does not end", "add */ where it ends");
    }

    /// Skips a backslash that continues the head on the next line.
    fn skip_line_continuation(&mut self) -> Skipped {
        let start = self.at;
        self.at += 1;
        self.skip_space();
        if self.rest().starts_with("//") {
            self.skip_line();
        }
        let rest = self.rest();
        match rest.chars().next() {
            None => Skipped::Valid,
            Some('\r') if rest.starts_with("\r\n") => {
                self.at += 2;
                Skipped::Valid
            }
            Some(c) if is_newline(c) => {
                self.at += c.len_utf8();
                Skipped::Valid
            }
            Some(_) => {
                self.problem(start, start + 1, "a backslash outside of quotes", "put the value in \"quotes\"");
                self.skip_line();
                Skipped::Invalid
            }
        }
    }

    /// Skips an unquoted word. A character that is invalid in words is a problem.
    pub(super) fn skip_word(&mut self) -> Skipped {
        let start = self.at;
        let rest = self.rest();
        let ends = |c: char| {
            is_space(c)
                || is_newline(c)
                || matches!(c, '{' | '}' | ';' | '"' | '#' | '=' | '/' | '\\' | '(' | ')' | '[' | ']')
        };
        let length = rest.find(ends).unwrap_or(rest.len());
        self.at += length;
        match self.rest().chars().next() {
            Some(c @ ('/' | '(' | ')' | '[' | ']' | '\\')) if !self.starts_comment() => {
                // Characters without a space between them belong to one mistake.
                let mistake_length =
                    self.rest().find(|c| is_space(c) || is_newline(c) || matches!(c, '{' | '}' | ';' | '"'));
                self.at += mistake_length.unwrap_or(self.rest().len());
                self.problem(start, self.at, &format!("a `{c}` outside of quotes"), "put the value in \"quotes\"");
                Skipped::Invalid
            }
            Some(c) if length == 0 => {
                self.at += c.len_utf8();
                self.problem(
                    start,
                    self.at,
                    &format!("a `{c}` where a value is expected"),
                    "put the value in \"quotes\"",
                );
                Skipped::Invalid
            }
            _ => Skipped::Valid,
        }
    }

    /// Skips a comment that begins with `#`, as in other formats, and reports it.
    pub(super) fn skip_foreign_comment(&mut self) -> Skipped {
        let after = self.rest().strip_prefix('#').map(|rest| rest.chars().next());
        let is_comment = match after {
            Some(Some(c)) => is_space(c) || is_newline(c) || matches!(c, '!' | '-' | '=' | '*'),
            Some(None) => true,
            None => false,
        };
        // `#-inf` is a keyword.
        if !is_comment || self.rest().starts_with("#-inf") {
            return Skipped::Valid;
        }
        let start = self.at;
        self.skip_line();
        self.problem(start, start + 1, "a comment does not begin with `#`", "write `//` for a comment");
        Skipped::Invalid
    }

    /// Skips a text in quotes that are none in KDL, and reports it.
    pub(super) fn skip_foreign_quotes(&mut self) -> Skipped {
        let rest = self.rest();
        let Some((first, closing)) = rest.chars().next().and_then(|c| Some((c, closing_quote(c)?))) else {
            return Skipped::Valid;
        };
        let start = self.at;
        let line = &rest[first.len_utf8()..rest.find(is_newline).unwrap_or(rest.len())];
        let (text, len) = match line.find(closing) {
            Some(end) => {
                let quote = line[end..].chars().next().map_or(0, char::len_utf8);
                (&line[..end], end + quote)
            }
            None => (line.split([' ', ';', '}']).next().unwrap_or_default(), 0),
        };
        let len = if len == 0 { text.len() } else { len };
        self.at += first.len_utf8() + len;
        let instead = format!("write \"{}\"", text.replace('"', "\\\""));
        let what = match first {
            '`' => "a backtick is not a quotation mark of KDL".to_owned(),
            _ => format!("`{first}` is not a quotation mark of KDL"),
        };
        self.problem(start, self.at, &what, &instead);
        Skipped::Invalid
    }

    /// Whether a comment, a `/-` or a line continuation starts here.
    fn starts_comment(&self) -> bool {
        ["//", "/*", "/-"].iter().any(|comment| self.rest().starts_with(comment))
    }

    /// Skips a string, or a keyword such as `#true`, that starts here.
    pub(super) fn skip_string_or_keyword(&mut self) -> Skipped {
        let start = self.at;
        let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
        let quotes = &self.rest()[hashes..];
        let closing = if is_multi_line(quotes) { "\"\"\"" } else { "\"" };
        if !quotes.starts_with('"') {
            self.at += hashes;
            return if self.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '-') {
                self.skip_word()
            } else {
                Skipped::Valid
            };
        }
        self.at += hashes + closing.len();
        let end = if hashes > 0 {
            self.rest().find(&format!("{closing}{}", "#".repeat(hashes)))
        } else {
            find_unescaped(self.rest(), closing)
        };
        let one_line = closing.len() == 1;
        match end {
            Some(length) if !(one_line && has_bare_newline(&self.rest()[..length])) => {
                self.at += length + closing.len() + hashes;
                Skipped::Valid
            }
            _ => {
                let what = if one_line { "this string does not end on its line" } else { "this string does not end" };
                self.problem(start, start + 1, what, "add the closing quotes");
                if one_line {
                    self.skip_line()
                } else {
                    self.at = self.text.len()
                }
                Skipped::Invalid
            }
        }
    }
}

/// Returns the quotation marks that can close a text which begins with this character, if it is one of other formats.
fn closing_quote(first: char) -> Option<&'static [char]> {
    match first {
        '\'' => Some(&['\'']),
        '`' => Some(&['`']),
        '\u{2018}' | '\u{2019}' | '\u{201a}' => Some(&['\u{2018}', '\u{2019}', '\'']),
        '\u{201c}' | '\u{201d}' | '\u{201e}' => Some(&['\u{201c}', '\u{201d}', '"']),
        '\u{ab}' | '\u{bb}' => Some(&['\u{ab}', '\u{bb}']),
        _ => None,
    }
}

/// Whether three quotes start a multi-line string, and not an empty string before another.
fn is_multi_line(quotes: &str) -> bool {
    quotes.starts_with("\"\"\"")
}

/// The result of skipping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skipped {
    Valid,
    /// The problem has been reported.
    Invalid,
}

/// Finds the quotes that end a string with escapes.
fn find_unescaped(text: &str, closing: &str) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with(closing) {
            return Some(at);
        }
        let mut characters = text[at..].chars();
        let first = characters.next()?;
        at += first.len_utf8();
        if first == '\\' {
            at += characters.next().map_or(0, char::len_utf8);
        }
    }
    None
}

/// Whether a line of a string ends without a backslash.
fn has_bare_newline(text: &str) -> bool {
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        if c == '\\' {
            if characters.next().is_some_and(char::is_whitespace) {
                while characters.next_if(|c| c.is_whitespace()).is_some() {}
            }
        } else if is_newline(c) {
            return true;
        }
    }
    false
}
