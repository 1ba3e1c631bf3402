//! Which requests `selvedge last` shows.

use super::record::RequestRecord;
use crate::syntax::Network;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;

/// Most requests of one reply.
const REPLY_RECORDS_MAX: usize = 10_000;

/// Selects the last requests. Every condition has to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LastQuery {
    /// Whether the reply is JSON.
    pub(crate) json: bool,
    /// Most requests; at most [`REPLY_RECORDS_MAX`].
    pub(crate) count_max: usize,
    pub(crate) status: Option<StatusRange>,
    /// At least this time from the complete head to the complete response.
    pub(crate) slower: Option<Duration>,
    /// An address or a network.
    pub(crate) client: Option<String>,
    /// The first name of a site.
    pub(crate) site: Option<String>,
    /// The name of a route: its setting `name`, or its first pattern.
    pub(crate) route: Option<String>,
    /// A part of the reason.
    pub(crate) reason: Option<String>,
    /// Whether only requests are selected that a rule in dry-run mode would have refused.
    pub(crate) dry_run: bool,
    /// The number of the worker, and that of the request among those of the worker.
    pub(crate) id: Option<(usize, u64)>,
}

/// Reads what identifies a request in its process: the number of the worker, a hyphen, and that of the request.
///
/// # Errors
/// What to write.
pub(crate) fn request_id(text: &str) -> Result<(usize, u64), String> {
    let numbers = text.split_once('-').and_then(|(worker, number)| Some((worker.parse().ok()?, number.parse().ok()?)));
    numbers.ok_or_else(|| "expected a worker and a number as `selvedge last` prints them, such as 0-4711".to_owned())
}

impl LastQuery {
    /// Returns the most requests of the reply.
    pub(crate) fn count(&self) -> usize {
        self.count_max.min(REPLY_RECORDS_MAX)
    }

    /// Whether a request is selected.
    pub(super) fn selects(&self, record: &RequestRecord) -> bool {
        let has = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
        let network = self.client.as_ref().map(|client| client.parse::<Network>());
        self.status.is_none_or(|status| status.contains(record.status))
            && self.slower.is_none_or(|time| u128::from(record.elapsed_micros) >= time.as_micros())
            && has(&self.site, &record.site)
            && self.route.as_ref().is_none_or(|wanted| *wanted == record.route || *wanted == record.pattern)
            && self.reason.as_ref().is_none_or(|part| record.reason.contains(part))
            && (record.is_dry_run_refused || !self.dry_run)
            && network.is_none_or(|network| network.is_ok_and(|network| network.contains(record.client)))
    }
}

/// A status code, or those from a first to a last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl FromStr for StatusRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || "expected a status such as 404, 5xx or 400-599".to_owned();
        let code = |text: &str| -> Result<u16, String> {
            let code = text.parse::<u16>().ok().filter(|code| text.len() == 3 && (100..=999).contains(code));
            code.ok_or_else(invalid)
        };
        if let Some(class) = text.strip_suffix("xx") {
            let first = code(&format!("{class}00"))?;
            return Ok(Self { first, last: first + 99 });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = Self { first: code(first)?, last: code(last)? };
        if range.first <= range.last { Ok(range) } else { Err(invalid()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_numbers_of_its_worker_and_its_own() {
        assert_eq!(request_id("12-4711"), Ok((12, 4711)));
        for text in ["", "4711", "-1", "1-", "a-1", "1-2-3", "1-18446744073709551616"] {
            assert!(request_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn statuses_are_a_code_a_class_or_a_range() {
        for (text, first, last) in [("404", 404, 404), ("5xx", 500, 599), ("400-599", 400, 599), ("499", 499, 499)] {
            assert_eq!(text.parse(), Ok(StatusRange { first, last }));
        }
        for text in ["", "xx", "55xx", "50", "5x", "5xx-6xx", "500-400", "+50", "1000", "abc"] {
            assert!(text.parse::<StatusRange>().is_err(), "{text}");
        }
    }
}
