//! The languages of values: path patterns, targets of redirects and rewrites, host names, networks. Each has one parser.
//!
//! A parsed value is what a site works with. The configuration adds the position to an error.

mod captures;
mod case_sensitivity;
mod foreign;
mod glob;
mod host;
mod network;
mod pattern;
mod placeholder;
mod regular_expression;
mod request_url;
mod response_selector;
mod template;
mod text_pattern;
mod variable;

pub(crate) use captures::Captures;
pub(crate) use case_sensitivity::CaseSensitivity;
pub(crate) use foreign::placeholder as foreign_placeholder;
pub(crate) use host::{HostName, INTERNAL_DOMAINS, NameReach};
pub(crate) use network::{Network, contain_all_of_a_version};
pub(crate) use pattern::{Pattern, absolute_path, check_path_characters};
pub(crate) use placeholder::{
    Needs, PlaceholderNames, RequestValues, TextTemplate, check_no_placeholder, list_variables,
};
pub(crate) use request_url::RequestUrl;
pub(crate) use response_selector::{ResponseSelector, SentFile};
pub(crate) use template::{Template, TryPath};
pub(crate) use text_pattern::TextPattern;
pub(crate) use variable::VARIABLES;

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
