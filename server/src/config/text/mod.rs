//! From KDL text to nodes with their places.
//!
//! `scan` finds where each node begins and ends and bounds how deep they nest; `plain` reads
//! the heads that nearly all nodes have; every other head is read by the `kdl` crate, which
//! is the judge of the syntax. The crate alone takes 100 us for a site of three lines, which
//! is a second for 10,000 of them, and its recursion has no bound.

mod kdl;
mod plain;
mod scan;
mod skip;

pub(super) use scan::read;

use super::place::Span;

/// A node as it is written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) name_at: Span,
    /// `None` when they cannot be read, which has been noted.
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
