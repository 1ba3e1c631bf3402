//! Benchmarks Selvedge against other servers: `selvedge-bench all`, `selvedge-bench WORKLOAD…`, and the
//! check of instruction limits, `selvedge-bench instructions`.
//!
//! All traffic stays on loopback. Every loop is bounded in count and time. Every started process is stopped,
//! also after an error or a signal.

mod bench;
mod certificate;
mod cli;
mod figures;
mod hello;
mod instructions;
mod interrupt;
mod load;
mod machine;
mod names;
mod output;
mod process;
mod report;
mod server_binary;
mod servers;
mod site;
mod workloads;

use anyhow::{Result, bail};
use bench::{Bench, Plan};
use clap::Parser;
use cli::{Cli, Task};
use figures::Case;
use indicatif::{ProgressBar, ProgressStyle};
use process::server_process::run_on_cores;
use report::Section;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use servers::{Missing, ServerFacts};
use std::process::ExitCode;
use workloads::Workload;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.task() {
        Task::ServeHello { port, workers } => hello::serve(port, workers).map_err(Into::into),
        Task::Instructions => prepare(&cli, &["selvedge-epoll".to_owned()])
            .and_then(|(bench, _)| instructions::run(&bench, cli.stored_limits())),
        Task::Workloads(wanted) => run(&cli, &wanted),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report_error(&format!("selvedge-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Finds or builds the servers, creates the files to serve, and returns the bench and the missing servers.
fn prepare(cli: &Cli, only: &[String]) -> Result<(Bench, Vec<Missing>)> {
    interrupt::register_handlers()?;
    raise_descriptor_limit()?;
    let work = cli::work_directory();
    let scratch = work.join("scratch");
    std::fs::create_dir_all(&scratch)?;
    let progress = ProgressBar::new(1)
        .with_style(ProgressStyle::with_template("{bar:32.cyan/blue} {pos}/{len} {elapsed_precise} {msg}")?);
    progress.set_message("finding and building the servers");
    progress.tick();
    let (servers, missing) = servers::find(&work, only);
    let site = site::BenchSite::create(work.join("site"))?;
    let certificate = certificate::Certificate::in_folder(&scratch);
    let (effort, cores) = (cli.effort(), machine::cores()?);
    let bench = Bench { servers, site, effort, scratch, certificate, cores, progress };
    Ok((bench, missing))
}

fn run(cli: &Cli, wanted: &[&'static Workload]) -> Result<()> {
    let (bench, missing) = prepare(cli, cli.servers())?;
    if let Some(Missing { name, reason, install }) = missing.first().filter(|_| !cli.servers().is_empty()) {
        bail!("cannot measure {name}, which --servers names: {reason} (install it with: {install})");
    }
    let mut planned = Vec::new();
    for workload in wanted {
        match (workload.plans)(&bench) {
            Ok(plans) => planned.push((workload.name, plans)),
            Err(error) => output::report_error(&format!("{}: skipped, {error:#}", workload.name)),
        }
    }
    select_tables(&mut planned, cli.tables())?;
    bench.progress.set_length(planned.iter().flat_map(|(_, plans)| plans).map(|plan| bench.steps(plan) as u64).sum());
    let folder = cli.output();
    // Before the first report is written: the report files are tracked and would make the revision "dirty".
    let machine = machine::facts(&bench.cores);
    // The load generator has the last core for itself; the servers run on the first ones.
    let load_core = bench.cores.last().copied().into_iter().collect::<Vec<_>>();
    run_on_cores(&load_core, || {
        planned.iter().try_for_each(|(workload, plans)| {
            let cases = plans.iter().map(|plan| bench.run(plan)).collect::<Result<Vec<Case>>>()?;
            let section = Section {
                workload: (*workload).to_owned(),
                machine: machine.with_current_date(),
                command: cli::command_line(),
                seconds: bench.effort.seconds,
                rounds: plans.iter().map(|plan| bench.rounds(plan)).max().unwrap_or(0),
                servers: facts(&bench, plans),
                missing: missing.clone(),
                cases: report::merge_cases(cases),
            };
            report::write(&section, &folder)?;
            bench.progress.suspend(|| output::print(&report::markdown::tables(&section)));
            Ok::<_, anyhow::Error>(())
        })
    })??;
    bench.progress.finish_and_clear();
    output::print(&format!("written to {}", folder.display()));
    Ok(())
}

/// Returns the facts about all servers. All plans of a workload start a server with one configuration.
fn facts(bench: &Bench, plans: &[Plan]) -> Vec<ServerFacts> {
    let facts = |plan: &Plan| bench.servers.iter().map(|server| server.facts(plan.content)).collect();
    plans.first().map(facts).unwrap_or_default()
}

/// Removes all tables that `--tables` does not name. Without names, all tables stay.
fn select_tables(planned: &mut Vec<(&str, Vec<Plan>)>, tables: &[String]) -> Result<()> {
    if tables.is_empty() {
        return Ok(());
    }
    let mut known: Vec<&str> = planned.iter().flat_map(|(_, plans)| plans).map(|plan| &*plan.name).collect();
    // A table may have several consecutive plans.
    known.dedup();
    if let Some(unknown) = tables.iter().find(|table| !known.contains(&table.as_str())) {
        bail!("the chosen workloads have no table {unknown:?}; their tables are {}", known.join(", "));
    }
    for (_, plans) in planned.iter_mut() {
        plans.retain(|plan| tables.contains(&plan.name));
    }
    planned.retain(|(_, plans)| !plans.is_empty());
    Ok(())
}

/// Raises the limit of open file descriptors to the hard limit; child processes inherit it.
fn raise_descriptor_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}
