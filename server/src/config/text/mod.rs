//! From KDL text to nodes with their places.
//!
//! `scan` finds nodes and bounds how deep they nest, `head` finds the values of each, `part`
//! reads one value. What is not plain in a value (escapes, many lines, numbers that are not
//! whole) is read by the `kdl` crate, one value at a time: the crate takes 100 us for a site
//! of three lines, which is a second for 10,000 of them, and its recursion over nested braces
//! and over mistakes has no bound.

mod head;
mod kdl;
mod part;
mod scan;
mod skip;

pub(super) use scan::read;

use super::place::Span;

/// A node as it is written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) name_at: Span,
    /// `None` when one of them cannot be read, which has been noted.
    pub(super) entries: Option<Vec<Entry>>,
    pub(super) children: Option<Vec<Self>>,
    /// Its head: the name, the arguments and the properties.
    pub(super) at: Span,
}

/// An argument, or a property when it has a name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Option<String>,
    pub(super) scalar: Scalar,
    /// All of it.
    pub(super) at: Span,
    /// The value of it.
    pub(super) value_at: Span,
}

/// A value as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Text(String),
    Integer(i128),
    Float(f64),
    Flag(bool),
    Null,
}
