//! The access logs and the error log, and what is counted on the way.
//!
//! Workers never wait for a log: each gathers lines and hands them over a few times a
//! second through a bounded queue, and what does not fit is counted. Threads write, survive
//! what can happen to what they write to, and say it when it is over.
//! This floor never names the configuration, a site, or a socket.

pub(crate) mod plan;

mod access;
mod error;
mod escape;
mod time;

mod histogram;
mod observer;
mod tallies;

mod logs;

mod health;
mod outlet;
mod pen;
mod rotate;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use access::{Format, FormatProblem};
pub(crate) use logs::{LogProblem, Logs};
pub(crate) use observer::LogObserver;
pub(crate) use outlet::{Connect, Letters};
pub(crate) use tallies::{Tallies, Totals};

use std::io::Write;

/// Says a line to whoever started the program, before there is a log or beside it.
pub(crate) fn say(line: &str) {
    // There is nobody to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}
