//! The access log and the error log.
//!
//! Workers never wait for a log: each gathers lines and hands them over a few times a
//! second through a bounded queue, and what does not fit is counted. One thread writes.
//! This floor never names the configuration, a site, or a socket.

mod access;
mod error;
mod format;
mod observer;
mod sink;

pub(crate) use observer::LogObserver;
pub(crate) use sink::{Access, Logs};

use std::io::Write;

/// Says a line to whoever started the program, before there is a log or beside it.
pub(crate) fn say(line: &str) {
    // There is nobody to tell when standard error is gone.
    let _ = writeln!(std::io::stderr(), "{line}");
}
