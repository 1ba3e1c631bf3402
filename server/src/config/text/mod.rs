//! Parses KDL 2.0 text into nodes with positions.
//!
//! Without type annotations, which no setting has. The `kdl` crate is only compared with in tests: it takes more than a
//! second for 10,000 sites (bench/NOTES.md), and its recursion has no limit.

mod character;
mod lexer;
mod node_head;
mod number;
mod parser;
mod scalar;
mod string;

pub(super) use parser::read;

use super::position::Span;

/// A node as written.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) name_at: Span,
    /// `None` if an entry is invalid, which has been reported.
    pub(super) entries: Option<Vec<Entry>>,
    pub(super) children: Option<Vec<Self>>,
    /// Whether a problem was reported within it.
    pub(super) has_problem: bool,
    /// Its head: name, arguments and properties.
    pub(super) at: Span,
}

/// An argument, or a property if it has a name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Option<String>,
    pub(super) scalar: Scalar,
    /// Position of the entry.
    pub(super) at: Span,
    /// Position of its value.
    pub(super) value_at: Span,
}

/// A value as written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Text(String),
    Integer(i128),
    Float(f64),
    Flag(bool),
    Null,
}
