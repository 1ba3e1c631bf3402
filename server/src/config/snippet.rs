//! Named groups of settings: `snippet "name" { ... }`, and `use "name"` in their place.
//!
//! The values of a `use` are variables of the snippet: `use "app" root="/srv/a"` gives `${root}` its value.

use super::position::Span;
use super::problem::Problem;
use super::text::Node;
use std::collections::HashMap;
use std::rc::Rc;

/// Deepest nesting of snippets.
pub(super) const DEPTH_MAX: usize = 16;

/// The snippets of a configuration.
#[derive(Debug, Default)]
pub(super) struct Snippets {
    pub(super) known: HashMap<String, Rc<Snippet>>,
    /// The snippets that led here, with the values of their variables.
    pub(super) stack: Vec<(Rc<Snippet>, HashMap<String, String>)>,
}

#[derive(Debug)]
pub(super) struct Snippet {
    pub(super) name: String,
    pub(super) nodes: Vec<Node>,
    pub(super) at: Span,
    pub(super) is_used: std::cell::Cell<bool>,
}

impl Snippets {
    /// Returns the value that the current snippet has for a variable.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        self.stack.last().and_then(|(_, values)| values.get(name).cloned())
    }

    /// Whether settings of a snippet are being read.
    pub(super) fn is_within(&self) -> bool {
        !self.stack.is_empty()
    }

    /// Returns a problem for each snippet that is never used.
    pub(super) fn unused(&self) -> impl Iterator<Item = Problem> {
        self.known.values().filter(|snippet| !snippet.is_used.get()).map(|snippet| {
            let problem = Problem::new(snippet.at, format!("snippet `{}` is never used", snippet.name.escape_debug()));
            problem.suggest("write `use NAME` in a site or route, or remove it")
        })
    }
}
