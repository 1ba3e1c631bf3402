//! The gate: user-space instructions of Selvedge for a fixed mix of requests, counted by callgrind,
//! against the figures kept in `instructions.txt`.
//!
//! Two runs with different numbers of requests are subtracted, so start and stop do not count.
//! The counts do not depend on how fast or busy the machine is.

use crate::bench::{Bench, Plan, Probe};
use crate::cli::say;
use crate::load::closed::{Closed, Until};
use crate::load::mix::{Afterwards, Mix, request};
use crate::process::probe;
use crate::servers::{Content, bench_folder};
use crate::site::SMALL;
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write as _;
use std::fs;

/// A count may be so much larger than the one kept.
const ALLOWED: f64 = 1.03;
/// The requests of the shorter run warm the caches; those of the longer one, less these, count.
const FEW: u64 = 160;
const MANY: u64 = 4_960;
/// How often each kind is counted, and how often at the most while its count is too large.
const TRIES: usize = 4;
/// See [`TRIES`].
const TRIES_MAX: usize = 16;

/// What becomes of the figures that are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The new ones are compared with them.
    Compare,
    /// The new ones take their place.
    Replace,
}

/// One kind of request.
struct Kind {
    name: &'static str,
    mix: Mix,
}

fn kinds() -> Vec<Kind> {
    let path = format!("/{}", SMALL.name);
    let with = |path: &str, field: &str| {
        let plain = String::from_utf8(request(path, Afterwards::KeepAlive)).expect("a request is text");
        Mix::raw(vec![plain.replacen("\r\n\r\n", &format!("\r\n{field}\r\n\r\n"), 1).into_bytes()])
    };
    vec![
        Kind { name: "get", mix: Mix::one(&path, Afterwards::KeepAlive) },
        Kind { name: "pipelined", mix: Mix::pipelined(&path, 16) },
        Kind {
            name: "not-modified",
            mix: with(&path, "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT\r\nIf-None-Match: *"),
        },
        Kind { name: "range", mix: with(&path, "Range: bytes=10-49") },
        Kind { name: "not-found", mix: Mix::one("/there/is/no/such/file", Afterwards::KeepAlive) },
        Kind { name: "new-connection", mix: Mix::one(&path, Afterwards::Close) },
    ]
}

/// Counts, and compares with (or keeps as) the figures in the tree.
pub(crate) fn run(bench: &Bench, kept: Kept) -> Result<()> {
    ensure!(probe::installed("valgrind"), "valgrind is not installed (apt-get install valgrind)");
    let file = bench_folder().join("instructions.txt");
    let before = fs::read_to_string(&file).unwrap_or_default();
    let mut counts = Vec::new();
    bench.progress.set_length(kinds().len() as u64);
    for kind in kinds() {
        bench.progress.set_message(format!("counting {}", kind.name));
        let counted = count(bench, &kind.mix, kept_for(&before, kind.name));
        counts.push((kind.name, counted.with_context(|| kind.name.to_owned())?));
        bench.progress.inc(1);
    }
    bench.progress.finish_and_clear();
    say(&table(&counts, &before));
    if kept == Kept::Replace {
        fs::write(&file, to_keep(&counts)).with_context(|| format!("{}", file.display()))?;
        return Ok(());
    }
    judge(&counts, &before)
}

/// The least of several counts: hash tables have other seeds in every process, and how often a worker is
/// woken for a new connection depends on the moment.
fn count(bench: &Bench, mix: &Mix, kept: Option<u64>) -> Result<u64> {
    let mut least = u64::MAX;
    for tried in 0..TRIES_MAX {
        if tried >= TRIES && !kept.is_some_and(|kept| is_worse(least, kept)) {
            break;
        }
        let few = total(bench, mix, FEW)?;
        let many = total(bench, mix, MANY)?;
        least = least.min(many.saturating_sub(few) / (MANY - FEW));
    }
    Ok(least)
}

fn total(bench: &Bench, mix: &Mix, requests: u64) -> Result<u64> {
    let server = bench.servers.first().context("selvedge could not be built")?;
    let plan = Plan {
        workload: "instructions",
        name: "instructions".to_owned(),
        title: String::new(),
        content: Content::File,
        path: format!("/{}", SMALL.name),
        mix: mix.clone(),
        connections: 1,
        workers: 1,
        rounds_min: 1,
        probe: Probe::Nothing,
        measure: Box::new(|_, _| Ok(Vec::new())),
    };
    let running = bench.start_under_callgrind(server, &plan)?;
    let mut load = Closed::connect(running.address(), mix.clone(), 1)?;
    let window = load.run(Until::Requests(requests))?;
    ensure!(window.answered + window.errors >= requests, "not every request was answered");
    drop(load);
    probe::callgrind_total(running, &bench.scratch)
}

fn is_worse(count: u64, kept: u64) -> bool {
    count as f64 > kept as f64 * ALLOWED
}

fn kept_for(kept: &str, name: &str) -> Option<u64> {
    let line = kept.lines().find(|line| line.split_ascii_whitespace().next() == Some(name))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn to_keep(counts: &[(&str, u64)]) -> String {
    let mut text = String::from(
        "# User-space instructions per request, counted by callgrind.\n\
         # Kept by: cargo run --release -p selvedge-bench -- instructions --write\n",
    );
    for (name, count) in counts {
        let _ = writeln!(text, "{name:<16}{count:>8}");
    }
    text
}

fn table(counts: &[(&str, u64)], kept: &str) -> String {
    let mut text = format!("{:<16}{:>14}{:>10}{:>10}\n", "request", "instructions", "kept", "change");
    for (name, count) in counts {
        match kept_for(kept, name) {
            Some(before) => {
                let change = (*count as f64 / before as f64 - 1.0) * 100.0;
                let _ = writeln!(text, "{name:<16}{count:>14}{before:>10}{change:>+9.1}%");
            }
            None => drop(writeln!(text, "{name:<16}{count:>14}{:>10}{:>10}", "-", "-")),
        }
    }
    text
}

fn judge(counts: &[(&str, u64)], kept: &str) -> Result<()> {
    let mut worse = Vec::new();
    for (name, count) in counts {
        match kept_for(kept, name) {
            Some(before) if is_worse(*count, before) => worse.push(*name),
            Some(_) => {}
            None => bail!("no figure is kept for {name}: run with --write and commit bench/instructions.txt"),
        }
    }
    ensure!(
        worse.is_empty(),
        "more than 3 % above the figure kept: {}. If that is the price of something worth it, keep it with --write",
        worse.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_percent_more_is_allowed_and_no_more() {
        let kept = to_keep(&[("get", 1_000)]);
        assert!(judge(&[("get", 1_030)], &kept).is_ok());
        assert!(judge(&[("get", 1_031)], &kept).is_err());
        assert!(judge(&[("range", 1)], &kept).is_err());
    }
}
