//! Parses nodes and their blocks.

use super::Node;
use super::character::{is_disallowed, is_newline};
use crate::config::position::Span;
use crate::config::problem::Problem;

/// Deepest nesting of blocks. The settings use four.
const DEPTH_MAX: usize = 16;

/// Most disallowed characters that are reported for one text.
const DISALLOWED_MAX: usize = 8;

/// Parses a text. Invalid parts are reported and skipped.
pub(in crate::config) fn read(text: &str, file: u32, problems: &mut Vec<Problem>) -> Vec<Node> {
    let at = if text.starts_with('\u{feff}') { 3 } else { 0 };
    let mut scan = Parser { text, file, at, problems };
    let mut nodes = Vec::new();
    if scan.report_disallowed() {
        // Such characters may make a text look different from its meaning.
        return nodes;
    }
    loop {
        scan.parse_nodes(0, &mut nodes);
        if scan.at >= text.len() {
            return nodes;
        }
        debug_assert!(scan.rest().starts_with('}'), "nothing else ends a list of nodes");
        scan.problem(scan.at, scan.at + 1, "this } has no matching {", "remove it, or add the missing { above");
        scan.at += 1;
    }
}

/// Whether a node is in force.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Active,
    /// It follows a `/-`.
    CommentedOut,
}

/// A text with the current position.
pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    file: u32,
    pub(super) at: usize,
    pub(super) problems: &'a mut Vec<Problem>,
}

impl<'a> Parser<'a> {
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
    fn report_disallowed(&mut self) -> bool {
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

    /// Parses nodes up to a closing brace or the end of the text.
    fn parse_nodes(&mut self, depth: usize, into: &mut Vec<Node>) {
        loop {
            self.skip_between();
            let state = self.skip_slashdash();
            match self.rest().chars().next() {
                None | Some('}') => return,
                Some('{') => {
                    self.problem(self.at, self.at + 1, "braces without a name before them", "");
                    self.parse_block(depth);
                }
                Some(_) => {
                    let node = self.parse_node(depth);
                    if state == NodeState::Active {
                        into.extend(node);
                    }
                }
            }
        }
    }

    /// Skips any `/-` and the space after it.
    pub(super) fn skip_slashdash(&mut self) -> NodeState {
        let mut state = NodeState::Active;
        while self.rest().starts_with("/-") {
            self.at += 2;
            self.skip_between();
            state = NodeState::CommentedOut;
        }
        state
    }

    /// Parses one node: its head and its block.
    fn parse_node(&mut self, depth: usize) -> Option<Node> {
        let node = self.parse_head();
        let children = self.parse_blocks(depth);
        node.map(|node| Node { children, ..node })
    }

    /// Parses the blocks of a node, one of which is in force, up to the end of the node.
    fn parse_blocks(&mut self, depth: usize) -> Option<Vec<Node>> {
        let mut children = None;
        loop {
            self.skip_space();
            let state = self.skip_slashdash();
            if !self.rest().starts_with('{') {
                break;
            }
            let open = self.at;
            let block = self.parse_block(depth);
            match (state, &children) {
                (NodeState::CommentedOut, _) => {}
                (NodeState::Active, None) => children = Some(block),
                (NodeState::Active, Some(_)) => {
                    self.problem(open, open + 1, "a second block", "merge it into the first");
                }
            }
        }
        let rest = self.rest();
        let ends = rest.starts_with("//") || rest.starts_with(|c| matches!(c, '}' | ';') || is_newline(c));
        if !ends && !rest.is_empty() {
            self.problem(self.at, self.at + 1, "a setting directly after a closing brace", "put it on its own line");
        }
        children
    }

    /// Parses a block that starts here.
    fn parse_block(&mut self, depth: usize) -> Vec<Node> {
        let open = self.at;
        self.at += 1;
        let mut nodes = Vec::new();
        if depth + 1 < DEPTH_MAX {
            self.parse_nodes(depth + 1, &mut nodes);
        } else {
            self.problem(open, open + 1, "blocks are nested more than 16 deep", "no setting is nested that deep");
            self.skip_block();
        }
        if self.rest().starts_with('}') {
            self.at += 1;
        } else {
            self.problem(open, open + 1, "this { is not closed", "add a } where the block ends");
        }
        nodes
    }

    /// Skips to the closing brace of a block, at any depth.
    fn skip_block(&mut self) {
        let mut open = 1_usize;
        for (at, byte) in self.rest().bytes().enumerate() {
            match byte {
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
