//! The settings of traces.

use super::print::{Printer, quote};
use crate::config::value::write_time;
use std::fmt;
use std::time::Duration;

/// Where traces are sent, and which.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traces {
    /// The URL of http or https that accepts traces.
    pub(crate) url: String,
    /// The name of this server among the services of a trace.
    pub(crate) service: String,
    /// The share of the traces that begin here: 0 to 1.
    pub(crate) ratio: f64,
    /// The time from which a request is exported in any case.
    pub(crate) slower: Duration,
    /// The fields of each request to the collector.
    pub(crate) headers: Vec<(String, String)>,
}

impl Traces {
    /// Whether the certificate of the collector is verified.
    pub(crate) fn has_tls(&self) -> bool {
        self.url.starts_with("https:")
    }

    pub(super) fn write(&self, lines: &mut Printer<'_, '_>) -> fmt::Result {
        lines.braces(format_args!("traces {}", quote(&self.url)), |lines| {
            lines.line(format_args!("service {}", quote(&self.service)))?;
            lines.line(format_args!("ratio {}", self.ratio))?;
            lines.line(format_args!("slower \"{}\"", write_time(self.slower)))?;
            self.headers
                .iter()
                .try_for_each(|(name, value)| lines.line(format_args!("header {} {}", quote(name), quote(value))))
        })
    }
}
