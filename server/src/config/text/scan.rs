//! Finds the nodes of a text, and what their braces hold.

use super::Node;
use super::skip::is_newline;
use crate::config::place::Span;
use crate::config::problem::Problem;

/// How deep braces may nest. The deepest setting is four deep.
const DEPTH_MAX: usize = 16;

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

/// Whether what is read counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Yes,
    /// It stands behind a `/-`.
    CommentedOut,
}

/// A text and how far it has been read.
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    file: u32,
    pub(super) at: usize,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl<'a> Scan<'a> {
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub(super) fn span(&self, start: usize, end: usize) -> Span {
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
            let counts = self.take_slashdash();
            match self.rest().chars().next() {
                None | Some('}') => return,
                Some('{') => {
                    self.problem(self.at, self.at + 1, "braces without a name before them", "");
                    self.block(depth);
                }
                Some(_) => {
                    let node = self.node(depth);
                    if counts == Counts::Yes {
                        into.extend(node);
                    }
                }
            }
        }
    }

    /// Goes behind any `/-` and the space behind it.
    pub(super) fn take_slashdash(&mut self) -> Counts {
        let mut counts = Counts::Yes;
        while self.rest().starts_with("/-") {
            self.at += 2;
            self.skip_between();
            counts = Counts::CommentedOut;
        }
        counts
    }

    /// Reads one node: its head, and its braces if there are any.
    fn node(&mut self, depth: usize) -> Option<Node> {
        let node = self.head();
        let children = self.braces(depth);
        node.map(|node| Node { children, ..node })
    }

    /// Reads the braces of a node, of which one pair counts, up to what ends the node.
    fn braces(&mut self, depth: usize) -> Option<Vec<Node>> {
        let mut children = None;
        loop {
            self.skip_space();
            let counts = self.take_slashdash();
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
        let rest = self.rest();
        let ends = rest.starts_with("//") || rest.starts_with(|c| matches!(c, '}' | ';') || is_newline(c));
        if !ends && !rest.is_empty() {
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
        for (at, octet) in self.rest().bytes().enumerate() {
            match octet {
                b'}' if open == 1 => {
                    self.at += at;
                    return;
                }
                b'}' => open -= 1,
                b'{' => open += 1,
                _ => {}
            }
        }
        self.at = self.text.len();
    }
}
