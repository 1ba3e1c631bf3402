//! Finds the nodes of a text: where each head begins and ends, and what its braces hold.

use super::skip::{Skipped, is_newline};
use super::{Node, kdl, plain};
use crate::config::place::Span;
use crate::config::problem::Problem;

/// How deep braces may nest. The deepest setting is four deep.
const DEPTH_MAX: usize = 16;
/// Longest head that is not plain.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Reads a text. What cannot be read is a problem and is left out.
pub(in crate::config) fn read(text: &str, file: u32, problems: &mut Vec<Problem>) -> Vec<Node> {
    let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut scan = Scan { text, file, at, problems };
    let mut nodes = Vec::new();
    loop {
        scan.nodes(0, &mut nodes);
        if scan.at >= text.len() {
            return nodes;
        }
        debug_assert!(scan.rest().starts_with('}'), "nothing else ends a list of nodes");
        scan.problem(
            scan.at,
            scan.at + 1,
            "this } closes nothing",
            "take it out, or look for a { that is missing above",
        );
        scan.at += 1;
    }
}

/// What stands where a head is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeadEnd {
    /// A line end, a semicolon, a comment, a closing brace or the end of the text.
    Terminator,
    /// Braces, or a `/-` before braces.
    Braces,
    /// It cannot be read; the problem has been noted.
    Broken,
}

/// How a node or a block counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    Yes,
    /// It stands behind a `/-`.
    CommentedOut,
}

/// A text and how far it has been read.
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    file: u32,
    pub(super) at: usize,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Scan<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: start as u32, end: end as u32 }
    }

    pub(super) fn problem(&mut self, start: usize, end: usize, what: &str, instead: &str) {
        let at = self.span(start, end);
        self.problems.push(Problem::new(at, what).instead(instead));
    }

    /// Reads nodes up to a closing brace, which stays, or the end of the text.
    fn nodes(&mut self, depth: usize, into: &mut Vec<Node>) {
        loop {
            self.skip_between();
            let mut counts = Counts::Yes;
            while self.rest().starts_with("/-") {
                self.at += 2;
                self.skip_between();
                counts = Counts::CommentedOut;
            }
            if self.rest().is_empty() || self.rest().starts_with('}') {
                return;
            }
            match self.node(depth) {
                Some(node) if counts == Counts::Yes => into.push(node),
                _ => {}
            }
        }
    }

    /// Reads one node; what stands here is neither white space nor a closing brace.
    fn node(&mut self, depth: usize) -> Option<Node> {
        let start = self.at;
        let (end, kind) = self.head();
        let end = start + self.text[start..end].trim_end().len();
        let children = match kind {
            HeadEnd::Terminator => None,
            HeadEnd::Braces => self.braces(depth),
            HeadEnd::Broken => return plain::name_only(&self.text[start..end], self.span(start, end)),
        };
        if start == end {
            self.problem(start, start + 1, "braces without a name before them", "");
            return None;
        }
        let span = self.span(start, end);
        let head = &self.text[start..end];
        let read = match plain::read(head, span) {
            Some(node) => Ok(node),
            None if head.len() > HEAD_BYTES_MAX => {
                Err(Problem::new(self.span(start, start + 1), "this is longer than 64 KiB"))
            }
            None => kdl::read(head, span),
        };
        match read {
            Ok(node) => Some(Node { children, ..node }),
            Err(problem) => {
                self.problems.push(problem);
                plain::name_only(head, span).map(|node| Node { children, ..node })
            }
        }
    }

    /// Goes to the end of a head and says where that is and what stands there.
    fn head(&mut self) -> (usize, HeadEnd) {
        loop {
            let rest = self.rest();
            let Some(first) = rest.chars().next() else { return (self.at, HeadEnd::Terminator) };
            match first {
                '{' => return (self.at, HeadEnd::Braces),
                '}' | ';' => return (self.at, HeadEnd::Terminator),
                '"' | '#' => {
                    if self.skip_string_or_keyword() == Skipped::Broken {
                        return (self.at, HeadEnd::Broken);
                    }
                }
                '/' if rest.starts_with("//") => return (self.at, HeadEnd::Terminator),
                '/' if rest.starts_with("/*") => self.skip_block_comment(),
                '/' if rest.starts_with("/-") => {
                    let end = self.at;
                    self.at += 2;
                    self.skip_between();
                    if self.rest().starts_with('{') {
                        self.at = end;
                        return (end, HeadEnd::Braces);
                    }
                }
                '\\' => {
                    if self.skip_line_continuation() == Skipped::Broken {
                        return (self.at, HeadEnd::Broken);
                    }
                }
                '/' | '(' | ')' | '[' | ']' => {
                    self.problem(
                        self.at,
                        self.at + 1,
                        &format!("a `{first}` outside of quotes"),
                        "put the value in \"quotes\"",
                    );
                    self.skip_line();
                    return (self.at, HeadEnd::Broken);
                }
                c if is_newline(c) => return (self.at, HeadEnd::Terminator),
                c => self.at += c.len_utf8(),
            }
        }
    }

    /// Reads the braces of a node, of which one pair counts, up to what ends the node.
    fn braces(&mut self, depth: usize) -> Option<Vec<Node>> {
        let mut children = None;
        loop {
            self.skip_space();
            let mut counts = Counts::Yes;
            if self.rest().starts_with("/-") {
                self.at += 2;
                self.skip_between();
                counts = Counts::CommentedOut;
            }
            if !self.rest().starts_with('{') {
                break;
            }
            let open = self.at;
            let block = self.block(depth);
            match (counts, &children) {
                (Counts::CommentedOut, _) => {}
                (Counts::Yes, None) => children = Some(block),
                (Counts::Yes, Some(_)) => {
                    self.problem(open, open + 1, "a second pair of braces", "put all of it into the first");
                }
            }
        }
        let ends = match self.rest().chars().next() {
            None => true,
            Some(c) => c == '}' || c == ';' || is_newline(c) || self.rest().starts_with("//"),
        };
        if !ends {
            self.problem(self.at, self.at + 1, "a setting right behind a closing brace", "put it on a line of its own");
        }
        children
    }

    /// Reads a block; an opening brace stands here.
    fn block(&mut self, depth: usize) -> Vec<Node> {
        let open = self.at;
        self.at += 1;
        let mut nodes = Vec::new();
        if depth + 1 < DEPTH_MAX {
            self.nodes(depth + 1, &mut nodes);
        } else {
            self.problem(open, open + 1, "braces nest deeper than 16", "no setting stands that deep");
            self.skip_block();
        }
        if self.rest().starts_with('}') {
            self.at += 1;
        } else {
            self.problem(open, open + 1, "this { is not closed", "add a } where it is to end");
        }
        nodes
    }

    /// Goes to the closing brace of a block without reading it, however deep it is.
    fn skip_block(&mut self) {
        let mut open = 1_usize;
        while let Some(first) = self.rest().chars().next() {
            match first {
                '}' if open == 1 => return,
                '}' => open -= 1,
                '{' => open += 1,
                _ => {}
            }
            self.at += first.len_utf8();
        }
    }
}
