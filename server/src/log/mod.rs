//! Access logs, error logs and counters.
//!
//! Workers never wait for a log. Each buffers lines and sends them four times a second through the bounded queue of the
//! log; what does not fit is counted. One thread for each file system, stream and socket writes, survives failures of
//! single logs, and reports when a failure is over.
//! This module never names the configuration, a site, or a socket.

pub(crate) mod config;

mod access;
mod error;
mod escape;
mod time;

mod counter;
mod histogram;
mod metrics;
mod observer;
mod route_counters;
mod totals;

mod logs;

mod held_lines;
mod line_batch;
mod line_writer;
mod loss_counter;
mod queue;
mod rotate;
mod sink;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use access::{Format, FormatProblem};
pub(crate) use error::canonical;
pub(crate) use histogram::Latencies;
pub(crate) use logs::{LogProblem, Logs};
pub(crate) use metrics::{CounterDetails, Counters};
pub(crate) use observer::{LogObserver, PENDING_BYTES_MAX};
pub(crate) use queue::queue_bytes_max;
pub(crate) use route_counters::{CounterLabels, ROUTE_COUNTER_BYTES, RouteSums, SiteLabels};
pub(crate) use sink::{Connect, LogDatagrams};
pub(crate) use time::utc_text;
pub(crate) use totals::{NamedCounts, SiteTotals, Totals};

use std::env;
use std::io::{IsTerminal, Write};

/// Whether standard error is a terminal that shows colours. A variable `NO_COLOR` that is not empty forbids them.
pub(crate) fn has_colours() -> bool {
    let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal()
        && !is_set("NO_COLOR")
        && env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Prints a line to standard error, before the logs are open or beside them.
pub(crate) fn print_line(line: &str) {
    // A closed standard error cannot be reported.
    let _ = writeln!(std::io::stderr(), "{line}");
}
