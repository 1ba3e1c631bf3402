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
            let _ = writeln!(out, "{} more requests are left out", records.len() - number);
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
    let elapsed = time(record.elapsed_micros);
    let method = if record.method.is_empty() { String::new() } else { format!("{} ", record.method) };
    let place = [&**site, &**route].join(" ");
    let host = if record.host == *site { "" } else { &record.host };
    // Writing to a text cannot fail.
    let (completed, id) = (utc_text(record.completed_micros), id(record));
    let _ = write!(out, "{completed} {id} {status} {elapsed:>7} {method}{target}{cut} {client}");
    for (name, text) in [("host ", host), ("", place.trim()), ("", &**reason), ("upstream ", &**upstream)] {
        if !text.is_empty() {
            let _ = write!(out, ", {name}{text}");
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

fn time(micros: u32) -> String {
    // `u` in place of `µ`, readable in every character set.
    format!("{:.1?}", Duration::from_micros(micros.into())).replace('µ', "u")
}
