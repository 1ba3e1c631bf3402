//! What stands between nodes and what a head may not be cut in: space, comments, strings.

use super::scan::Scan;

/// The line ends of KDL.
pub(super) fn is_newline(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

/// The other white space of KDL.
fn is_space(c: char) -> bool {
    !is_newline(c) && (c.is_whitespace() || c == '\u{feff}')
}

impl Scan<'_> {
    /// White space and comments within a line.
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

    /// Everything that may stand between two nodes.
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

    /// To the end of the line.
    pub(super) fn skip_line(&mut self) {
        self.at += self.rest().find(is_newline).unwrap_or(self.rest().len());
    }

    /// A comment `/* */`, in which others may stand.
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
        self.problem(start, start + 2, "this comment does not end", "add a */ where it is to end");
    }

    /// A backslash that goes on with the head on the next line.
    pub(super) fn skip_line_continuation(&mut self) -> Skipped {
        let start = self.at;
        self.at += 1;
        self.skip_space();
        if self.rest().starts_with("//") {
            self.skip_line();
        }
        let rest = self.rest();
        match rest.chars().next() {
            None => Skipped::Whole,
            Some('\r') if rest.starts_with("\r\n") => {
                self.at += 2;
                Skipped::Whole
            }
            Some(c) if is_newline(c) => {
                self.at += c.len_utf8();
                Skipped::Whole
            }
            Some(_) => {
                self.problem(start, start + 1, "a backslash outside of quotes", "put the value in \"quotes\"");
                self.skip_line();
                Skipped::Broken
            }
        }
    }

    /// A word without quotes; something stands here. A character that no word has is a problem.
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
            Some(c @ ('/' | '(' | ')' | '[' | ']' | '\\')) if !self.begins_comment() => {
                // All that is written without a space belongs to the same slip.
                let slip = self.rest().find(|c| is_space(c) || is_newline(c) || matches!(c, '{' | '}' | ';' | '"'));
                self.at += slip.unwrap_or(self.rest().len());
                self.problem(start, self.at, &format!("a `{c}` outside of quotes"), "put the value in \"quotes\"");
                Skipped::Broken
            }
            Some(c) if length == 0 => {
                self.at += c.len_utf8();
                self.problem(
                    start,
                    self.at,
                    &format!("a `{c}` where a value is expected"),
                    "put the value in \"quotes\"",
                );
                Skipped::Broken
            }
            _ => Skipped::Whole,
        }
    }

    /// Whether a comment, or a `/-`, begins here, or a line goes on.
    fn begins_comment(&self) -> bool {
        ["//", "/*", "/-"].iter().any(|comment| self.rest().starts_with(comment))
    }

    /// A string, or a keyword such as `#true`; a quote or a `#` stands here.
    pub(super) fn skip_string_or_keyword(&mut self) -> Skipped {
        let start = self.at;
        let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
        let quotes = &self.rest()[hashes..];
        let closing = if is_of_many_lines(quotes) { "\"\"\"" } else { "\"" };
        if !quotes.starts_with('"') {
            self.at += hashes;
            return if self.rest().starts_with(|c: char| c.is_ascii_alphabetic() || c == '-') {
                self.skip_word()
            } else {
                Skipped::Whole
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
                Skipped::Whole
            }
            _ => {
                let what = if one_line { "this string does not end on its line" } else { "this string does not end" };
                self.problem(start, start + 1, what, "add the closing quotes");
                if one_line {
                    self.skip_line()
                } else {
                    self.at = self.text.len()
                }
                Skipped::Broken
            }
        }
    }
}

/// Whether three quotes begin a string of many lines, and not an empty one before another.
fn is_of_many_lines(quotes: &str) -> bool {
    quotes.starts_with("\"\"\"")
}

/// How skipping went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skipped {
    Whole,
    /// The problem has been noted.
    Broken,
}

/// Where quotes end a string in which a backslash takes the next character along.
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

/// Whether a line ends in a string without a backslash before it and the space around it.
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
