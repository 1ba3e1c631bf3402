//! The reply of `selvedge last`: the recorded requests as text for people or as JSON, one request on a line.

use crate::log::utc_text;
use crate::recorder::{LastQuery, RequestRecord, select};
use selvedge::service::RequestPhase;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Longest reply in bytes. Further requests are counted only.
const REPLY_BYTES_MAX: usize = 4 << 20;

/// Returns the last requests of a recorder that a query selects, the newest one first.
pub(crate) fn report(memory: &[AtomicU64], query: &LastQuery) -> String {
    let records = select(memory, query);
    let mut out = String::new();
    for (number, record) in records.iter().enumerate() {
        if out.len() >= REPLY_BYTES_MAX {
            let left_out = records.len() - number;
            let _ = match query.json {
                true => writeln!(out, "{{\"left_out\":{left_out}}}"),
                false => writeln!(out, "{left_out} more requests are left out"),
            };
            break;
        }
        match query.json {
            true => out.push_str(&serde_json::to_string(&JsonRecord::of(record)).expect("texts and numbers")),
            false => write_line(record, &mut out),
        }
        out.push('\n');
    }
    if records.is_empty() && !query.json {
        out.push_str("no request is recorded that fits\n");
    }
    out
}

/// The names are documented in `docs/metrics.md` and stay stable.
#[derive(Serialize)]
struct JsonRecord<'a> {
    id: String,
    completed: String,
    client: String,
    method: &'a str,
    host: &'a str,
    protocol: Option<&'static str>,
    tls: bool,
    target: &'a str,
    target_cut: bool,
    status: u16,
    site: &'a str,
    route: &'a str,
    reason: &'a str,
    aborted: bool,
    reset: bool,
    cached: bool,
    dry_run: bool,
    content_bytes: u64,
    connection_requests: u32,
    elapsed_us: u32,
    /// Microseconds by phase, of those that the request had to wait in.
    phases_us: BTreeMap<&'static str, u32>,
    upstream: Option<&'a str>,
    upstream_status: Option<u16>,
    tries: u8,
}

impl<'a> JsonRecord<'a> {
    fn of(record: &'a RequestRecord) -> Self {
        Self {
            id: id(record),
            completed: utc_text(record.completed_micros),
            client: record.client.to_string(),
            method: &record.method,
            host: &record.host,
            protocol: record.version.map(|version| version.as_str()),
            tls: record.is_tls,
            target: &record.target,
            target_cut: record.is_target_cut,
            status: record.status,
            site: &record.site,
            route: &record.route,
            reason: &record.reason,
            aborted: record.is_aborted,
            reset: record.is_reset,
            cached: record.is_cached,
            dry_run: record.is_dry_run_refused,
            content_bytes: record.content_bytes,
            connection_requests: record.requests,
            elapsed_us: record.elapsed_micros,
            phases_us: phases(record).collect(),
            upstream: Some(&*record.upstream).filter(|upstream| !upstream.is_empty()),
            upstream_status: record.upstream_status,
            tries: record.tries,
        }
    }
}

/// Returns what identifies a request in its process: the worker and the number.
fn id(record: &RequestRecord) -> String {
    let (worker, number) = record.id;
    format!("{worker}-{number}")
}

fn phases(record: &RequestRecord) -> impl Iterator<Item = (&'static str, u32)> {
    let all = RequestPhase::ALL.into_iter().map(|phase| (phase.name(), record.phases.micros(phase)));
    all.filter(|(_, micros)| *micros > 0)
}

/// Writes a request for people: time, identifier, status, duration, request, client, site and route, and what else is known.
fn write_line(record: &RequestRecord, out: &mut String) {
    let RequestRecord { status, client, site, route, reason, upstream, tries, .. } = record;
    let target = record.target.escape_debug();
    let cut = if record.is_target_cut { "..." } else { "" };
    // The line of a refused head may have any words, also such as follow here.
    let target = if record.version.is_none() { format!("\"{target}{cut}\"") } else { format!("{target}{cut}") };
    // It has no duration.
    let elapsed = if record.version.is_none() { "-".to_owned() } else { time(record.elapsed_micros) };
    let method = if record.method.is_empty() { String::new() } else { format!("{} ", printable(&record.method)) };
    let place = [&**site, &**route].join(" ");
    let host = if record.host == *site { "" } else { &record.host };
    // Writing to a text cannot fail.
    let (completed, id) = (utc_text(record.completed_micros), id(record));
    let _ = write!(out, "{completed} {id} {status} {elapsed:>7} {method}{target} {client}");
    for (name, text) in [("host ", host), ("", place.trim()), ("", &**reason), ("upstream ", &**upstream)] {
        if !text.is_empty() {
            let _ = write!(out, ", {name}{}", printable(text));
        }
    }
    if *tries > 1 {
        let _ = write!(out, " ({tries} tries)");
    }
    if let Some(status) = record.upstream_status {
        let _ = write!(out, " {status}");
    }
    // The reason of such a rule states it, too.
    let is_dry_run = record.is_dry_run_refused && !reason.ends_with("(dry run)");
    let words = [
        (is_dry_run, "dry run"),
        (record.is_aborted, "aborted"),
        (record.is_reset, "reset"),
        (record.is_cached, "cached"),
    ];
    for (is_so, word) in words {
        if is_so {
            let _ = write!(out, ", {word}");
        }
    }
    for (name, micros) in phases(record) {
        let _ = write!(out, ", {} {}", name.replace('_', " "), time(micros));
    }
}

/// Returns a text of a record for a terminal. That of a dump from elsewhere may have bytes that control it.
fn printable(text: &str) -> String {
    let quoted = |character| match character {
        '"' | '\'' | '\\' => character.to_string(),
        character => character.escape_debug().to_string(),
    };
    text.chars().map(quoted).collect()
}

fn time(micros: u32) -> String {
    // `u` in place of `µ`, readable in every character set.
    format!("{:.1?}", Duration::from_micros(micros.into())).replace('µ', "u")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{recorder_with, sample_record};

    #[test]
    fn the_line_of_a_refused_head_is_quoted() {
        let target = "GET /pay 203.0.113.66, bank.test /transfer\" \u{1b}".to_owned();
        let record = RequestRecord { version: None, method: String::new(), target, ..sample_record() };
        let mut line = String::new();
        write_line(&record, &mut line);
        assert!(
            line.contains("       - \"GET /pay 203.0.113.66, bank.test /transfer\\\" \\u{1b}\" 192.0.2.7, "),
            "{line}"
        );
    }

    #[test]
    fn each_line_of_a_long_reply_is_json() {
        let recorder = recorder_with(9_000);
        let query = LastQuery { json: true, count_max: 10_000, ..LastQuery::default() };
        let reply = report(recorder.numbers(), &query);
        let mut lines: Vec<serde_json::Value> =
            reply.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect();
        let left_out = lines.pop().and_then(|line| line["left_out"].as_u64()).expect("the reply is cut");
        assert_eq!(lines.len() as u64 + left_out, 9_000);
        assert!(left_out > 0 && lines.iter().all(|line| line["status"] == 400));
    }

    #[test]
    fn no_text_of_a_record_controls_a_terminal() {
        let text = || "\u{1b}[31m\n\u{202e}\u{9b}31m".to_owned();
        let record = RequestRecord {
            method: text(),
            host: text() + "host",
            target: text(),
            site: text(),
            route: text(),
            reason: text(),
            upstream: text(),
            ..sample_record()
        };
        let mut line = String::new();
        write_line(&record, &mut line);
        assert!(line.matches("\\u{1b}[31m\\n\\u{202e}\\u{9b}31m").count() == 7, "{line}");
        assert!(!line.contains(|character: char| character.is_control() || character == '\u{202e}'), "{line}");
        let record = RequestRecord { reason: "the condition \"it's\" \\d ü".to_owned(), ..sample_record() };
        line.clear();
        write_line(&record, &mut line);
        assert!(line.contains(", the condition \"it's\" \\d ü"), "{line}");
    }
}
