//! One line of the Combined Log Format for each request.

use super::format::{access_time, escape};
use selvedge::proto::field::Known;
use selvedge::proto::http1::write::write_decimal;
use selvedge::service::Exchange;
use std::io::Write;

/// The parts of a line that stay the same from line to line for a while.
#[derive(Clone, Debug)]
pub(super) struct Combined {
    unix_time: i64,
    time: [u8; 26],
}

impl Combined {
    pub(super) fn new() -> Self {
        Self { unix_time: 0, time: access_time(0) }
    }

    /// Appends `host - - [time] "line" status bytes "referer" "user agent"`.
    pub(super) fn append(&mut self, exchange: &Exchange<'_>, out: &mut Vec<u8>) {
        if exchange.unix_time != self.unix_time {
            self.unix_time = exchange.unix_time;
            self.time = access_time(exchange.unix_time);
        }
        // Writing to memory cannot fail.
        let _ = write!(out, "{}", exchange.peer.ip());
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(&self.time);
        out.extend_from_slice(b"] \"");
        escape(exchange.line, out);
        out.extend_from_slice(b"\" ");
        write_decimal(exchange.status.code().into(), out);
        out.push(b' ');
        match exchange.content_bytes {
            0 => out.push(b'-'),
            bytes => write_decimal(bytes, out),
        }
        for known in [Known::Referer, Known::UserAgent] {
            out.extend_from_slice(b" \"");
            match exchange.request.and_then(|request| request.known(known)) {
                Some(value) if !value.is_empty() => escape(value, out),
                _ => out.push(b'-'),
            }
            out.push(b'"');
        }
        out.push(b'\n');
    }
}
