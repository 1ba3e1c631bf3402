//! The check of instruction limits: counts the user-space instructions of Selvedge for fixed kinds of requests
//! with callgrind, and compares them with the limits in `instructions.txt`.
//!
//! Each count is the difference of two runs with different numbers of requests, so start-up and shutdown do not count.
//! The counts do not depend on how fast or busy the machine is.

use crate::bench::{Bench, Plan, Probe};
use crate::load::closed::{ClosedLoop, Until};
use crate::load::mix::{Mix, Persistence, request};
use crate::names::bench_folder;
use crate::output::print;
use crate::process::probe;
use crate::servers::ContentKind;
use crate::site::SMALL;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;

/// A count may exceed the stored one by this factor.
const GROWTH_ALLOWED: f64 = 1.03;
/// The numbers of requests of the two runs. The shorter run warms the caches; the difference counts. The long run is so
/// long because the start of a server takes a few million instructions more or less, depending on the seeds of hash
/// tables and on what it finds in the system.
const SHORT_RUN_REQUESTS: u64 = 160;
const LONG_RUN_REQUESTS: u64 = 19_840;
/// How often a kind is counted for a limit that is stored.
const ATTEMPTS_STORED: usize = 4;
/// How often a kind is counted at most, while its count is above the limit.
const ATTEMPTS_MAX: usize = 16;

/// What to do with the stored limits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredLimits {
    /// Compare the new counts with them.
    Compare,
    /// Replace them with the new counts.
    Replace,
}

/// A kind of request.
struct RequestKind {
    name: &'static str,
    mix: Mix,
}

fn request_kinds() -> Vec<RequestKind> {
    let path = format!("/{}", SMALL.name);
    let with = |path: &str, field: &str| {
        let plain = String::from_utf8(request(path, Persistence::KeepAlive)).expect("the request is UTF-8");
        Mix::raw(vec![plain.replacen("\r\n\r\n", &format!("\r\n{field}\r\n\r\n"), 1).into_bytes()])
    };
    vec![
        RequestKind { name: "get", mix: Mix::one(&path, Persistence::KeepAlive) },
        RequestKind { name: "pipelined", mix: Mix::pipelined(&path, 16) },
        RequestKind {
            name: "not-modified",
            mix: with(&path, "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\nIf-None-Match: *"),
        },
        RequestKind { name: "range", mix: with(&path, "Range: bytes=10-49") },
        RequestKind { name: "not-found", mix: Mix::one("/there/is/no/such/file", Persistence::KeepAlive) },
        RequestKind { name: "new-connection", mix: Mix::one(&path, Persistence::Close) },
    ]
}

/// Counts the instructions, and compares them with the stored limits or replaces the limits.
pub(crate) fn run(bench: &Bench, stored_limits: StoredLimits) -> Result<()> {
    ensure!(probe::is_installed("valgrind"), "valgrind is not installed (apt-get install valgrind)");
    let file = bench_folder().join("instructions.txt");
    let stored = fs::read_to_string(&file).unwrap_or_default();
    let mut counts = Vec::new();
    bench.progress.set_length(request_kinds().len() as u64);
    for kind in request_kinds() {
        bench.progress.set_message(format!("counting {}", kind.name));
        let limit = match stored_limits {
            StoredLimits::Compare => limit_for(&stored, kind.name),
            StoredLimits::Replace => None,
        };
        let counted = count(bench, &kind.mix, limit);
        counts.push((kind.name, counted.with_context(|| kind.name.to_owned())?));
        bench.progress.inc(1);
    }
    bench.progress.finish_and_clear();
    print(&table(&counts, &stored));
    if stored_limits == StoredLimits::Replace {
        fs::write(&file, format_limits(&counts)).with_context(|| format!("{}", file.display()))?;
        return Ok(());
    }
    check_limits(&counts, &stored)
}

/// Returns the smallest of several counts. They vary because hash tables have random seeds, and the number of
/// wake-ups of a worker for a new connection depends on timing. A count within the limit is enough.
fn count(bench: &Bench, mix: &Mix, limit: Option<u64>) -> Result<u64> {
    let mut smallest = u64::MAX;
    for attempt in 0..ATTEMPTS_MAX {
        let is_enough = match limit {
            Some(limit) => !is_above(smallest, limit),
            None => attempt >= ATTEMPTS_STORED,
        };
        if is_enough {
            break;
        }
        let short_run = count_total(bench, mix, SHORT_RUN_REQUESTS)?;
        let long_run = count_total(bench, mix, LONG_RUN_REQUESTS)?;
        smallest = smallest.min(long_run.saturating_sub(short_run) / (LONG_RUN_REQUESTS - SHORT_RUN_REQUESTS));
    }
    Ok(smallest)
}

fn count_total(bench: &Bench, mix: &Mix, requests: u64) -> Result<u64> {
    let server = bench.servers.first().context("cannot build selvedge")?;
    let plan = Plan {
        workload: "instructions",
        name: "instructions".to_owned(),
        title: String::new(),
        content: ContentKind::File,
        path: format!("/{}", SMALL.name),
        mix: mix.clone(),
        connections: 1,
        workers: 1,
        rounds_min: 1,
        probe: Probe::None,
        upstream: None,
        measure: Box::new(|_, _| Ok(Vec::new())),
    };
    let running = bench.start_under_callgrind(server, &plan)?;
    let mut load = ClosedLoop::connect(running.address(), mix.clone(), 1)?;
    let window = load.run(Until::Requests(requests))?;
    ensure!(window.completed + window.errors >= requests, "not all requests got a response");
    drop(load);
    probe::callgrind_total(running, &bench.scratch)
}

fn is_above(count: u64, limit: u64) -> bool {
    count as f64 > limit as f64 * GROWTH_ALLOWED
}

fn limit_for(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find(|line| line.split_ascii_whitespace().next() == Some(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn format_limits(counts: &[(&str, u64)]) -> String {
    let mut text = String::from(
        "# Limits of user-space instructions per request, counted by callgrind.\n\
         # Written by: cargo run --release -p selvedge-bench -- instructions --write\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "{name:<16}{count:>8}");
    }
    text
}

fn table(counts: &[(&str, u64)], limits: &str) -> String {
    let mut text = format!("{:<16}{:>14}{:>10}{:>10}\n", "request", "instructions", "stored", "change");
    for (name, count) in counts {
        match limit_for(limits, name) {
            Some(stored) => {
                let change = (*count as f64 / stored as f64 - 1.0) * 100.0;
                let _ = writeln!(text, "{name:<16}{count:>14}{stored:>10}{change:>+9.1}%");
            }
            None => drop(writeln!(text, "{name:<16}{count:>14}{:>10}{:>10}", "-", "-")),
        }
    }
    text
}

fn check_limits(counts: &[(&str, u64)], limits: &str) -> Result<()> {
    let mut above = Vec::new();
    for (name, count) in counts {
        match limit_for(limits, name) {
            Some(limit) if is_above(*count, limit) => above.push(*name),
            Some(_) => {}
            None => bail!("no limit is stored for {name}: run with --write and commit bench/instructions.txt"),
        }
    }
    ensure!(
        above.is_empty(),
        "more than 3 % above the stored limit: {}. If the increase is justified, store it with --write",
        above.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_may_exceed_its_limit_by_three_percent() {
        let limits = format_limits(&[("get", 1_000)]);
        assert!(check_limits(&[("get", 1_030)], &limits).is_ok());
        assert!(check_limits(&[("get", 1_031)], &limits).is_err());
        assert!(check_limits(&[("range", 1)], &limits).is_err());
    }
}
