//! The command line.

use crate::bench::{Effort, Kind};
use crate::instructions::Kept;
use crate::servers::{self, bench_folder};
use crate::workloads::{WORKLOADS, Workload};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

const ALL: &str = "all";
const INSTRUCTIONS: &str = "instructions";
const SERVE_HELLO: &str = "serve-hello";

/// Selvedge beside its peers
#[derive(Parser)]
#[command(name = "selvedge-bench")]
pub(crate) struct Cli {
    /// `all`, or workloads by name, or `instructions`: the gate on user-space instructions
    #[arg(required = true, value_name = "WORKLOAD")]
    what: Vec<String>,

    /// A smoke run: everything once, for moments
    #[arg(long)]
    quick: bool,

    /// How long each measurement takes [default: 2, or 0.3 with --quick]
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,

    /// How often every server is measured; the figures are medians [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,

    /// Only these servers
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(servers::names()))]
    servers: Vec<String>,

    /// Only these tables of the workloads, by the name that stands over them
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    tables: Vec<String>,

    /// Where the report goes [default: bench/results/all/; a quick run, or one of some servers or tables: target/bench/results/]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// With `instructions`: keep the figure as the new limit
    #[arg(long)]
    write: bool,
}

/// What is to be done.
pub(crate) enum What {
    Workloads(Vec<&'static Workload>),
    Instructions,
    ServeHello { port: u16, workers: usize },
}

impl Cli {
    pub(crate) fn what(&self) -> What {
        let words: Vec<&str> = self.what.iter().map(String::as_str).collect();
        match words.as_slice() {
            [INSTRUCTIONS] if !self.tables.is_empty() => refuse(&format!("{INSTRUCTIONS} has no tables")),
            [INSTRUCTIONS] => What::Instructions,
            [ALL] => What::Workloads(WORKLOADS.iter().collect()),
            [SERVE_HELLO, port, workers] => match (port.parse(), workers.parse()) {
                (Ok(port), Ok(workers)) => What::ServeHello { port, workers },
                _ => refuse(&format!("{SERVE_HELLO} PORT WORKERS")),
            },
            names => What::Workloads(names.iter().map(|name| workload(name)).collect()),
        }
    }

    pub(crate) fn effort(&self) -> Effort {
        let kind = if self.quick { Kind::Quick } else { Kind::Full };
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

    pub(crate) fn kept(&self) -> Kept {
        if self.write { Kept::Replace } else { Kept::Compare }
    }

    /// Neither a quick run nor one of some servers or tables overwrites the figures that are kept.
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
            refuse(&format!("{name:?} goes with no other workload"));
        }
        let known: Vec<String> =
            WORKLOADS.iter().map(|workload| format!("  {:<14}{}", workload.name, workload.about)).collect();
        refuse(&format!("there is no workload {name:?}; there are\n  {ALL}\n{}\n  {INSTRUCTIONS}", known.join("\n")))
    })
}

fn refuse(why: &str) -> ! {
    clap::Error::raw(clap::error::ErrorKind::InvalidValue, format!("{why}\n")).exit()
}

/// Where everything goes that is made and not kept: under cargo's target directory.
pub(crate) fn work_directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| bench_folder().join("../target"), PathBuf::from);
    target.canonicalize().unwrap_or(target).join("bench")
}

/// How this run was asked for.
pub(crate) fn command_line() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo run --release -p selvedge-bench -- {}", arguments.join(" "))
}

/// Says something to the user.
#[allow(clippy::print_stdout, reason = "the command line talks here")]
pub(crate) fn say(text: &str) {
    println!("{text}");
}

/// Says what went wrong.
#[allow(clippy::print_stderr, reason = "the command line talks here")]
pub(crate) fn complain(text: &str) {
    eprintln!("{text}");
}
