//! Reads the head of a node: its name, its arguments, its properties.

use super::scan::{Counts, Scan};
use super::skip::{Skipped, is_newline};
use super::{Entry, Node, Scalar, part};
use crate::config::place::Span;
use crate::config::problem::Problem;

/// Most mistakes of one head that are noted.
const MISTAKES_MAX: usize = 8;

/// What comes next in a head.
enum Next {
    /// Nothing: a line end, a semicolon, a comment, a brace or the end of the text.
    End,
    Entry,
}

impl Scan<'_> {
    /// Reads a head up to what ends it. `None` when not even its name can be read.
    pub(super) fn head(&mut self) -> Option<Node> {
        let start = self.at;
        let mistakes_before = self.problems.len();
        let name = self.part();
        let name_at = self.span(start, self.at);
        let mut end = self.at;
        let mut entries = Vec::new();
        let mut is_whole = true;
        while let Some(counts) = self.next_entry(&mut is_whole) {
            let entry = self.entry();
            end = self.at;
            is_whole &= entry.is_some();
            if counts == Counts::Yes {
                entries.extend(entry);
            }
            if self.problems.len() > mistakes_before + MISTAKES_MAX {
                self.skip_head();
                break;
            }
        }
        let Some(Scalar::Text(name)) = name else {
            if name.is_some() {
                self.problems.push(
                    Problem::new(name_at, "a value where a name is expected").instead("a setting begins with its name"),
                );
            }
            return None;
        };
        let at = self.span(start, end);
        Some(Node { name, name_at, entries: is_whole.then_some(entries), children: None, at })
    }

    /// Goes to the next entry of a head, or says that there is none.
    fn next_entry(&mut self, is_whole: &mut bool) -> Option<Counts> {
        let before = self.at;
        loop {
            self.skip_space();
            if !self.rest().starts_with('\\') {
                break;
            }
            if self.skip_line_continuation() == Skipped::Broken {
                *is_whole = false;
                return None;
            }
        }
        let spaced = self.at > before;
        let dash = self.at;
        let counts = self.take_slashdash();
        match self.next() {
            Next::End => {
                // A `/-` before braces is theirs.
                self.at = dash;
                return None;
            }
            Next::Entry if !spaced && counts == Counts::Yes => {
                self.problem(
                    self.at,
                    self.at + 1,
                    "two values without a space between",
                    "put a space between, or both into \"quotes\"",
                );
                *is_whole = false;
            }
            Next::Entry => {}
        }
        Some(counts)
    }

    fn next(&self) -> Next {
        let rest = self.rest();
        let ends = rest.is_empty()
            || rest.starts_with("//")
            || rest.starts_with(|c| matches!(c, '{' | '}' | ';') || is_newline(c));
        if ends { Next::End } else { Next::Entry }
    }

    /// Reads an argument or a property.
    fn entry(&mut self) -> Option<Entry> {
        let start = self.at;
        let first = self.part();
        let end = self.at;
        self.skip_space();
        if !self.rest().starts_with('=') {
            self.at = end;
            let at = self.span(start, end);
            return first.map(|scalar| Entry { name: None, scalar, at, value_at: at });
        }
        self.at += 1;
        self.skip_space();
        let value_start = self.at;
        if matches!(self.next(), Next::End) {
            self.problem(start, value_start, "a property without a value", "write name=value");
            return None;
        }
        let scalar = self.part();
        let (at, value_at) = (self.span(start, self.at), self.span(value_start, self.at));
        match (first?, scalar?) {
            (Scalar::Text(name), scalar) => Some(Entry { name: Some(name), scalar, at, value_at }),
            _ => {
                self.problem(start, end, "a value where the name of a property is expected", "write name=value");
                None
            }
        }
    }

    /// Reads one value; something stands here. What cannot be read is a problem, and is gone past.
    fn part(&mut self) -> Option<Scalar> {
        let start = self.at;
        let skipped =
            if self.rest().starts_with(['"', '#']) { self.skip_string_or_keyword() } else { self.skip_word() };
        if skipped == Skipped::Broken {
            return None;
        }
        let at: Span = self.span(start, self.at);
        match part::read(&self.text[start..self.at], at) {
            Ok(scalar) => Some(scalar),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }

    /// Goes to the end of a head that has too many mistakes.
    fn skip_head(&mut self) {
        let rest = self.rest();
        self.at += rest.find(|c| matches!(c, '{' | '}' | ';') || is_newline(c)).unwrap_or(rest.len());
    }
}
