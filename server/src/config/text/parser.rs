//! Parses nodes and their blocks.

use super::Node;
use super::character::is_newline;
use super::lexer::Lexer;
use crate::config::problem::Problem;

/// Deepest nesting of blocks. The settings use four.
const DEPTH_MAX: usize = 16;

/// Parses a text. Invalid parts are reported and skipped.
pub(in crate::config) fn read(text: &str, file: u32, problems: &mut Vec<Problem>) -> Vec<Node> {
    let mut parser = Parser { lexer: Lexer::new(text, file, problems) };
    let mut nodes = Vec::new();
    if parser.lexer.report_disallowed() {
        // Such characters may make a text look different from its meaning.
        return nodes;
    }
    loop {
        parser.parse_nodes(0, &mut nodes);
        if parser.lexer.at >= text.len() {
            return nodes;
        }
        debug_assert!(parser.lexer.rest().starts_with('}'), "nothing else ends a list of nodes");
        parser.lexer.problem(
            parser.lexer.at,
            parser.lexer.at + 1,
            "this } has no matching {",
            "remove it, or add the missing { above",
        );
        parser.lexer.at += 1;
    }
}

/// Whether a node is in force.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Active,
    /// It follows a `/-`.
    CommentedOut,
}

/// Parses nodes with the position of a lexer.
pub(super) struct Parser<'a> {
    pub(super) lexer: Lexer<'a>,
}

impl Parser<'_> {
    /// Parses nodes up to a closing brace or the end of the text.
    fn parse_nodes(&mut self, depth: usize, into: &mut Vec<Node>) {
        loop {
            self.lexer.skip_between();
            let state = self.skip_slashdash();
            match self.lexer.rest().chars().next() {
                None | Some('}') => return,
                Some('{') => {
                    self.lexer.problem(self.lexer.at, self.lexer.at + 1, "braces without a name before them", "");
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
        while self.lexer.rest().starts_with("/-") {
            self.lexer.at += 2;
            self.lexer.skip_between();
            state = NodeState::CommentedOut;
        }
        state
    }

    /// Parses one node: its head and its block.
    fn parse_node(&mut self, depth: usize) -> Option<Node> {
        let problems_before = self.lexer.problems.len();
        let node = self.parse_head();
        let children = self.parse_blocks(depth);
        let has_problem = self.lexer.problems.len() > problems_before;
        node.map(|node| Node { children, has_problem, ..node })
    }

    /// Parses the blocks of a node, one of which is in force, up to the end of the node.
    fn parse_blocks(&mut self, depth: usize) -> Option<Vec<Node>> {
        let mut children = None;
        loop {
            self.lexer.skip_space();
            let state = self.skip_slashdash();
            if !self.lexer.rest().starts_with('{') {
                break;
            }
            let open = self.lexer.at;
            let block = self.parse_block(depth);
            match (state, &children) {
                (NodeState::CommentedOut, _) => {}
                (NodeState::Active, None) => children = Some(block),
                (NodeState::Active, Some(_)) => {
                    self.lexer.problem(open, open + 1, "a second block", "merge it into the first");
                }
            }
        }
        let rest = self.lexer.rest();
        let ends = rest.starts_with("//") || rest.starts_with(|c| matches!(c, '}' | ';') || is_newline(c));
        if !ends && !rest.is_empty() {
            self.lexer.problem(
                self.lexer.at,
                self.lexer.at + 1,
                "a setting directly after a closing brace",
                "put it on its own line",
            );
        }
        children
    }

    /// Parses a block that starts here.
    fn parse_block(&mut self, depth: usize) -> Vec<Node> {
        let open = self.lexer.at;
        self.lexer.at += 1;
        let mut nodes = Vec::new();
        if depth + 1 < DEPTH_MAX {
            self.parse_nodes(depth + 1, &mut nodes);
        } else {
            self.lexer.problem(open, open + 1, "blocks are nested more than 16 deep", "no setting is nested that deep");
            self.skip_block();
        }
        if self.lexer.rest().starts_with('}') {
            self.lexer.at += 1;
        } else {
            self.lexer.problem(open, open + 1, "this { is not closed", "add a } where the block ends");
        }
        nodes
    }

    /// Skips to the closing brace of a block, at any depth.
    fn skip_block(&mut self) {
        let mut open = 1_usize;
        for (at, byte) in self.lexer.rest().bytes().enumerate() {
            match byte {
                b'}' if open == 1 => {
                    self.lexer.at += at;
                    return;
                }
                b'}' => open -= 1,
                b'{' => open += 1,
                _ => {}
            }
        }
        self.lexer.at = self.lexer.text.len();
    }
}
