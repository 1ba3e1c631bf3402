//! The languages of values: path patterns, targets of redirects and rewrites, host names, networks. Each has one parser.
//!
//! A parsed value is what a site works with. The configuration adds the position to an error.

mod host;
mod network;
mod pattern;
mod template;

pub(crate) use host::HostName;
pub(crate) use network::Network;
pub(crate) use pattern::{Captures, Pattern, absolute_path, check_path_characters};
pub(crate) use template::{Template, TryPath};

/// Why a value is invalid, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ValueError {
    pub(crate) message: String,
    pub(crate) suggestion: String,
}

impl ValueError {
    pub(crate) fn new(what: impl Into<String>, instead: impl Into<String>) -> Self {
        Self { message: what.into(), suggestion: instead.into() }
    }
}
