//! Selvedge beside its peers: `selvedge-bench all`, `selvedge-bench WORKLOAD…`, and the gate
//! `selvedge-bench instructions`.
//!
//! Everything runs on loopback; every loop is bounded in count and time; whatever is started is
//! stopped, also after an error or a signal.

mod bench;
mod cli;
mod figures;
mod hello;
mod instructions;
mod interrupt;
mod load;
mod machine;
mod origin;
mod process;
mod report;
mod servers;
mod site;
mod workloads;

use anyhow::{Result, bail};
use bench::{Bench, Plan};
use clap::Parser;
use cli::{Cli, What};
use figures::Case;
use indicatif::{ProgressBar, ProgressStyle};
use process::running::on_cores;
use report::Section;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use servers::Missing;
use std::process::ExitCode;
use workloads::Workload;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.what() {
        What::ServeHello { port, workers } => hello::serve(port, workers).map_err(Into::into),
        What::Instructions => {
            prepare(&cli, &["selvedge".to_owned()]).and_then(|(bench, _)| instructions::run(&bench, cli.kept()))
        }
        What::Workloads(wanted) => run(&cli, &wanted),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            cli::complain(&format!("selvedge-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Everything that has to be there before anything is measured.
fn prepare(cli: &Cli, only: &[String]) -> Result<(Bench, Vec<Missing>)> {
    interrupt::watch()?;
    raise_descriptor_limit()?;
    let work = cli::work_directory();
    let scratch = work.join("scratch");
    std::fs::create_dir_all(&scratch)?;
    let progress = ProgressBar::new(1)
        .with_style(ProgressStyle::with_template("{bar:32.cyan/blue} {pos}/{len} {elapsed_precise} {msg}")?);
    progress.set_message("finding and building the servers");
    progress.tick();
    let (servers, missing) = servers::find(&work, only);
    let site = site::Site::make(work.join("site"))?;
    let bench = Bench { servers, site, effort: cli.effort(), scratch, cores: machine::cores()?, progress };
    Ok((bench, missing))
}

fn run(cli: &Cli, wanted: &[&'static Workload]) -> Result<()> {
    let (bench, missing) = prepare(cli, cli.servers())?;
    if let Some(Missing { name, why, install }) = missing.first().filter(|_| !cli.servers().is_empty()) {
        bail!("{name}, which is asked for, cannot be had: {why} ({install})");
    }
    let mut planned = Vec::new();
    for workload in wanted {
        match (workload.plans)(&bench) {
            Ok(plans) => planned.push((workload.name, plans)),
            Err(error) => cli::complain(&format!("{}: skipped, {error:#}", workload.name)),
        }
    }
    choose(&mut planned, cli.tables())?;
    bench.progress.set_length(planned.iter().flat_map(|(_, plans)| plans).map(|plan| bench.steps(plan) as u64).sum());
    let folder = cli.output();
    // Before the first figures are written: those are kept in the tree, and are no other revision.
    let machine = machine::facts(&bench.cores);
    // The load has the last core for itself; the servers are started on the first ones.
    let load_core = bench.cores.last().copied().into_iter().collect::<Vec<_>>();
    on_cores(&load_core, || {
        planned.iter().try_for_each(|(workload, plans)| {
            let cases = plans.iter().map(|plan| bench.carry_out(plan)).collect::<Result<Vec<Case>>>()?;
            let section = Section {
                workload: (*workload).to_owned(),
                machine: machine.now(),
                command: cli::command_line(),
                seconds: bench.effort.seconds,
                rounds: plans.iter().map(|plan| bench.rounds(plan)).max().unwrap_or(0),
                servers: bench.servers.iter().map(servers::Server::facts).collect(),
                missing: missing.clone(),
                cases: report::merge(cases),
            };
            report::write(&section, &folder)?;
            bench.progress.suspend(|| cli::say(&report::markdown::tables(&section)));
            Ok::<_, anyhow::Error>(())
        })
    })??;
    bench.progress.finish_and_clear();
    cli::say(&format!("written to {}", folder.display()));
    Ok(())
}

/// Leaves the tables that are asked for, all of them where none is.
fn choose(planned: &mut Vec<(&str, Vec<Plan>)>, tables: &[String]) -> Result<()> {
    if tables.is_empty() {
        return Ok(());
    }
    let mut known: Vec<&str> = planned.iter().flat_map(|(_, plans)| plans).map(|plan| &*plan.name).collect();
    // A table may have several plans, one behind the other.
    known.dedup();
    if let Some(unknown) = tables.iter().find(|table| !known.contains(&table.as_str())) {
        bail!("there is no table {unknown:?} in what is asked for; there are {}", known.join(", "));
    }
    for (_, plans) in planned.iter_mut() {
        plans.retain(|plan| tables.contains(&plan.name));
    }
    planned.retain(|(_, plans)| !plans.is_empty());
    Ok(())
}

/// As many descriptors as the system allows; what is started inherits it.
fn raise_descriptor_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
