//! Parses KDL text into nodes with positions.
//!
//! Our parser finds nodes and limits their nesting. Values that are not plain (escapes, multi-line strings,
//! fractions) are parsed by the `kdl` crate, one at a time, because the crate is slow for large files and its
//! recursion has no limit.

mod entry;
mod kdl;
mod lexer;
mod newline;
mod node_head;
mod parser;

pub(super) use parser::read;

use super::position::Span;

/// A node as written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) name_at: Span,
    /// `None` if an entry is invalid, which has been reported.
    pub(super) entries: Option<Vec<Entry>>,
    pub(super) children: Option<Vec<Self>>,
    /// Its head: name, arguments and properties.
    pub(super) at: Span,
}

/// An argument, or a property if it has a name.
#[derive(Debug)]
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
