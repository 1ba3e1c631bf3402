//! The command line.

use crate::bench::{Effort, RunKind};
use crate::instructions::StoredLimits;
use crate::names::bench_folder;
use crate::servers;
use crate::workloads::{WORKLOADS, Workload};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

const ALL: &str = "all";
const INSTRUCTIONS: &str = "instructions";
const SERVE_HELLO: &str = "serve-hello";

/// Benchmarks Selvedge against other servers
#[derive(Parser)]
#[command(name = "selvedge-bench")]
pub(crate) struct Cli {
    /// `all`, or names of workloads, or `instructions`: check user-space instructions against the stored limits
    #[arg(required = true, value_name = "WORKLOAD")]
    workloads: Vec<String>,

    /// Smoke test: measure everything once and briefly
    #[arg(long)]
    quick: bool,

    /// Duration of each measurement [default: 2, or 0.3 with --quick]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// Number of measurements of each server; the figures are medians [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// Measure only these servers
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(servers::names()))]
    servers: Vec<String>,

    /// Measure only these tables of the workloads, named as in the report
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tables: Vec<String>,

    /// Directory of the report [default: bench/results/all/; with --quick, --servers or --tables: target/bench/results/]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// With `instructions`: store the counts as the new limits
    #[arg(long)]
    write: bool,
}

/// The task that the command line names.
pub(crate) enum Task {
    Workloads(Vec<&'static Workload>),
    Instructions,
    ServeHello { port: u16, workers: usize },
}

impl Cli {
    pub(crate) fn task(&self) -> Task {
        let words: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        match words.as_slice() {
            [INSTRUCTIONS] if !self.tables.is_empty() => {
                exit_with_usage_error(&format!("{INSTRUCTIONS} has no tables"))
            }
            [INSTRUCTIONS] => Task::Instructions,
            [ALL] => Task::Workloads(WORKLOADS.iter().collect()),
            [SERVE_HELLO, port, workers] => match (port.parse(), workers.parse()) {
                (Ok(port), Ok(workers)) => Task::ServeHello { port, workers },
                _ => exit_with_usage_error(&format!("{SERVE_HELLO} PORT WORKERS")),
            },
            names => Task::Workloads(names.iter().map(|name| workload(name)).collect()),
        }
    }

    pub(crate) fn effort(&self) -> Effort {
        let kind = if self.quick { RunKind::Quick } else { RunKind::Full };
        let (seconds, rounds) = if self.quick { (0.3, 1) } else { (2.0, 3) };
        Effort {
            seconds: self.seconds.unwrap_or(seconds).clamp(0.1, 60.0),
            rounds: self.rounds.unwrap_or(rounds).clamp(1, 100),
            kind,
        }
    }

    pub(crate) fn servers(&self) -> &[String] {
        &self.servers
    }

    pub(crate) fn tables(&self) -> &[String] {
        &self.tables
    }

    pub(crate) fn stored_limits(&self) -> StoredLimits {
        if self.write { StoredLimits::Replace } else { StoredLimits::Compare }
    }

    /// Returns the directory of the report. A quick or partial run does not overwrite the tracked results.
    pub(crate) fn output(&self) -> PathBuf {
        match &self.output {
            Some(folder) => folder.clone(),
            None if self.quick || !self.servers.is_empty() || !self.tables.is_empty() => {
                work_directory().join("results")
            }
            None => bench_folder().join("results/all"),
        }
    }
}

fn workload(name: &str) -> &'static Workload {
    WORKLOADS.iter().find(|workload| workload.name == name).unwrap_or_else(|| {
        if [ALL, INSTRUCTIONS].contains(&name) {
            exit_with_usage_error(&format!("{name:?} cannot be combined with other workloads"));
        }
        let known: Vec<String> =
            WORKLOADS.iter().map(|workload| format!("  {:<14}{}", workload.name, workload.about)).collect();
        exit_with_usage_error(&format!(
            "unknown workload {name:?}; the workloads are\n  {ALL}\n{}\n  {INSTRUCTIONS}",
            known.join("\n")
        ))
    })
}

fn exit_with_usage_error(why: &str) -> ! {
    clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{why}\n")).exit()
}

/// Returns the directory for generated files, below cargo's target directory.
pub(crate) fn work_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| bench_folder().join("../target"), PathBuf::from);
    target.canonicalize().unwrap_or(target).join("bench")
}

/// Returns the command line of this run.
pub(crate) fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --release -p selvedge-bench -- {}", arguments.join(" "))
}
