//! What a line of an access log is about, and its escaped values.

use crate::log::escape::{
    JSON_NUMBER_BYTES, TEXT_NUMBER_BYTES, escape, escape_for_json, escape_json, escape_word, fitting,
};
use crate::traces::TraceContext;
use selvedge::Request;
use selvedge::proto::target::Host;
use selvedge::service::Exchange;
use std::net::IpAddr;
use std::time::Duration;

/// Marks a value that was cut.
pub(super) const TRUNCATION_MARK: &[u8] = b"...";

/// One of the two times of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeOf {
    /// When its head was complete.
    Received,
    /// When its response was complete.
    Completed,
}

/// What a line is about.
pub(super) struct LogRecord<'a> {
    pub(super) exchange: &'a Exchange<'a>,
    pub(super) site: &'a str,
    /// When the response was complete, since 1970.
    pub(super) completed: Duration,
    /// `None` if the configuration has no traces.
    pub(super) trace: Option<TraceContext>,
    /// Most bytes of each value; longer ones end in [`TRUNCATION_MARK`].
    pub(super) value_bytes_max: usize,
}

impl<'a> LogRecord<'a> {
    pub(super) fn request(&self) -> Option<&'a Request> {
        self.exchange.request
    }

    /// Returns one of the two times of the request, since 1970. A malformed request has its end time only.
    pub(super) fn time(&self, time_of: TimeOf) -> Duration {
        match (time_of, self.exchange.elapsed) {
            (TimeOf::Received, Some(elapsed)) => self.completed.saturating_sub(elapsed),
            _ => self.completed,
        }
    }

    /// Returns one of the two times in whole seconds since 1970.
    pub(super) fn unix_seconds(&self, time_of: TimeOf) -> i64 {
        self.time(time_of).as_secs().cast_signed()
    }

    /// Returns the client's address.
    pub(super) fn client(&self) -> IpAddr {
        self.request().map_or_else(|| self.exchange.peer.ip(), Request::client)
    }

    /// Returns the host of the request, if it has one.
    pub(super) fn host(&self) -> Option<Host<'a>> {
        self.request().and_then(Request::host)
    }

    /// Appends a value to a line of text.
    pub(super) fn text(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, TEXT_NUMBER_BYTES, escape, out);
    }

    /// Appends a value that must not contain a space.
    pub(super) fn word(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, TEXT_NUMBER_BYTES, escape_word, out);
    }

    /// Appends a value to a JSON string.
    pub(super) fn json(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, JSON_NUMBER_BYTES, escape_json, out);
    }

    /// Appends the output of [`LogRecord::text`] to a JSON string.
    pub(super) fn text_for_json(&self, value: &[u8], out: &mut Vec<u8>) {
        self.escaped(value, TEXT_NUMBER_BYTES + 1, escape_for_json, out);
    }

    fn escaped(&self, value: &[u8], number_bytes: usize, escape: fn(&[u8], &mut Vec<u8>), out: &mut Vec<u8>) {
        let shown = fitting(value, self.value_bytes_max, number_bytes);
        escape(shown, out);
        if shown.len() < value.len() {
            out.extend_from_slice(TRUNCATION_MARK);
        }
    }
}
