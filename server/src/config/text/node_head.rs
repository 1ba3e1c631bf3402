//! Parses the head of a node: name, arguments, properties.

use super::character::is_newline;
use super::lexer::Skipped;
use super::parser::{NodeState, Parser};
use super::{Entry, Node, Scalar, scalar};
use crate::config::position::Span;
use crate::config::problem::Problem;

/// Most mistakes that are reported for one head.
const MISTAKES_MAX: usize = 8;

/// The next part of a head.
enum HeadPart {
    /// The end: a line end, semicolon, comment, brace, or the end of the text.
    End,
    Entry,
}

impl Parser<'_> {
    /// Parses a head. `None` if its name is invalid.
    pub(super) fn parse_head(&mut self) -> Option<Node> {
        let start = self.lexer.at;
        let mistakes_before = self.lexer.problems.len();
        // A name with a problem has no further ones.
        let name = self.parse_value().filter(|_| self.lexer.problems.len() == mistakes_before);
        let name_at = self.lexer.span(start, self.lexer.at);
        let mut end = self.lexer.at;
        let mut entries = Vec::new();
        let mut is_whole = true;
        while let Some(state) = self.next_entry(&mut is_whole) {
            let entry = self.parse_entry();
            end = self.lexer.at;
            is_whole &= entry.is_some();
            if state == NodeState::Active {
                entries.extend(entry);
            }
            if self.lexer.problems.len() > mistakes_before + MISTAKES_MAX {
                self.skip_head();
                break;
            }
        }
        let Some(Scalar::Text(name)) = name else {
            if name.is_some() {
                self.lexer.problems.push(
                    Problem::new(name_at, "a value where a name is expected").suggest("a setting starts with its name"),
                );
            }
            return None;
        };
        let at = self.lexer.span(start, end);
        Some(Node { name, name_at, entries: is_whole.then_some(entries), children: None, has_problem: false, at })
    }

    /// Moves to the next entry, or returns that the head has ended.
    fn next_entry(&mut self, is_whole: &mut bool) -> Option<NodeState> {
        let before = self.lexer.at;
        if self.lexer.skip_node_space() == Skipped::Invalid {
            *is_whole = false;
            return None;
        }
        let has_space = self.lexer.at > before;
        let slashdash_at = self.lexer.at;
        let state = self.skip_slashdash();
        match self.next_part() {
            HeadPart::End => {
                // A `/-` before a block belongs to the block.
                self.lexer.at = slashdash_at;
                return None;
            }
            HeadPart::Entry if !has_space && state == NodeState::Active => {
                self.lexer.problem(
                    self.lexer.at,
                    self.lexer.at + 1,
                    "two values without a space between them",
                    "put a space between them, or quote them as one value",
                );
                *is_whole = false;
            }
            HeadPart::Entry => {}
        }
        Some(state)
    }

    fn next_part(&self) -> HeadPart {
        let rest = self.lexer.rest();
        let ends = rest.is_empty()
            || rest.starts_with("//")
            || rest.starts_with(|c| matches!(c, '{' | '}' | ';') || is_newline(c));
        if ends { HeadPart::End } else { HeadPart::Entry }
    }

    /// Parses an argument or property.
    fn parse_entry(&mut self) -> Option<Entry> {
        let start = self.lexer.at;
        let first = self.parse_value();
        let end = self.lexer.at;
        if self.lexer.skip_node_space() == Skipped::Invalid {
            return None;
        }
        if !self.lexer.rest().starts_with('=') {
            self.lexer.at = end;
            let at = self.lexer.span(start, end);
            return first.map(|scalar| Entry { name: None, scalar, at, value_at: at });
        }
        self.lexer.at += 1;
        if self.lexer.skip_node_space() == Skipped::Invalid {
            return None;
        }
        let value_start = self.lexer.at;
        if matches!(self.next_part(), HeadPart::End) {
            self.lexer.problem(start, value_start, "a property without a value", "write name=value");
            return None;
        }
        let scalar = self.parse_value();
        let (at, value_at) = (self.lexer.span(start, self.lexer.at), self.lexer.span(value_start, self.lexer.at));
        match (first?, scalar?) {
            (Scalar::Text(name), scalar) => Some(Entry { name: Some(name), scalar, at, value_at }),
            _ => {
                self.lexer.problem(start, end, "a value where a property name is expected", "write name=value");
                None
            }
        }
    }

    /// Parses one value that starts here. An invalid one is reported, and skipped if its meaning is unknown.
    fn parse_value(&mut self) -> Option<Scalar> {
        let start = self.lexer.at;
        if self.lexer.skip_foreign_comment() == Skipped::Invalid || self.lexer.skip_foreign_quotes() == Skipped::Invalid
        {
            return None;
        }
        let skipped = if self.lexer.rest().starts_with(['"', '#']) {
            self.lexer.skip_string_or_keyword()
        } else {
            self.lexer.skip_word()
        };
        if skipped == Skipped::Invalid {
            return None;
        }
        let at: Span = self.lexer.span(start, self.lexer.at);
        scalar::read(&self.lexer.text[start..self.lexer.at], at, self.lexer.problems)
    }

    /// Skips the rest of a head with too many mistakes.
    fn skip_head(&mut self) {
        let rest = self.lexer.rest();
        self.lexer.at += rest.find(|c| matches!(c, '{' | '}' | ';') || is_newline(c)).unwrap_or(rest.len());
    }
}
