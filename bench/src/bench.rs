//! Runs plans. Each round measures every server once, so that a disturbance affects all servers alike. Then
//! the probes run, and the medians are computed.

use crate::certificate::Certificate;
use crate::figures::{Case, Figure, Figures, Sample, Samples, add_ratios};
use crate::interrupt;
use crate::load::closed::{ClosedLoop, Until};
use crate::load::mix::{Mix, Persistence};
use crate::process::probe;
use crate::process::server_process::{Ports, ServerProcess};
use crate::servers::{ContentKind, Launch, Server, UpstreamProgram};
use crate::site::BenchSite;
use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// At a fixed rate, a measurement lasts until this number of requests is sent, within
/// [`WINDOW_AT_RATE_SECONDS_MAX`].
const REQUESTS_AT_RATE_MIN: f64 = 64.0;
/// The number of requests at a fixed rate that a quick run sends.
const REQUESTS_AT_RATE_MIN_QUICK: f64 = 2.0;
/// The longest window at a fixed rate, in seconds.
const WINDOW_AT_RATE_SECONDS_MAX: f64 = 6.0;
/// The shortest window of an overload. Its effect shows when the accept queue is full: with a sixth of a
/// core, a queue of 4,096 connections is half a second of work.
const OVERLOAD_WINDOW_MIN: Duration = Duration::from_secs(3);

/// How long and how often a run measures.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) kind: RunKind,
}

/// The purpose of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// A smoke test.
    Quick,
    /// A measurement.
    Full,
}

impl Effort {
    /// Returns `quick` in a quick run, else `full`.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.kind == RunKind::Quick { quick } else { full }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns the window for requests at a fixed rate (per second). It is longer than [`Self::window`] if the rate
    /// is low.
    pub(crate) fn window_at_rate(&self, rate: f64) -> Duration {
        let enough = self.pick(REQUESTS_AT_RATE_MIN_QUICK, REQUESTS_AT_RATE_MIN);
        self.window().max(Duration::from_secs_f64((enough / rate).min(WINDOW_AT_RATE_SECONDS_MAX)))
    }

    /// Returns the window for an overload, which shows its effect when the queues of the server are full.
    pub(crate) fn overload_window(&self) -> Duration {
        self.pick(self.window(), self.window().max(OVERLOAD_WINDOW_MIN))
    }

    /// Returns the duration of the unmeasured load before the window.
    pub(crate) fn warm_up(&self) -> Duration {
        Duration::from_secs_f64((self.seconds / 4.0).clamp(0.1, 0.5))
    }

    /// Returns the duration of the unmeasured load for long files. A server sends few of them in that time, and
    /// may decide only after a second which files it caches.
    pub(crate) fn warm_up_for_long_content(&self) -> Duration {
        self.pick(self.warm_up(), Duration::from_secs(2))
    }
}

/// What the probes count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    None,
    SystemCalls,
    /// System calls of a few requests, because each request is long.
    SystemCallsOfFewRequests,
    SystemCallsAndInstructions,
}

/// Measures one server in one round.
pub(crate) type Measure = Box<dyn Fn(&Bench, &ServerProcess) -> Result<Vec<Sample>>>;

/// The plan of one table.
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) content: ContentKind,
    /// The path that a server must serve before it is measured.
    pub(crate) path: String,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) workers: usize,
    /// The minimum number of rounds, for figures that vary much from round to round.
    pub(crate) rounds_min: usize,
    pub(crate) probe: Probe,
    /// The upstream, if the servers are measured as proxies.
    pub(crate) upstream: Option<UpstreamProgram>,
    pub(crate) measure: Measure,
}

/// The servers, files, cores and settings of a run.
pub(crate) struct Bench {
    pub(crate) servers: Vec<Server>,
    pub(crate) site: BenchSite,
    pub(crate) effort: Effort,
    /// A directory for files that servers and tools write.
    pub(crate) scratch: PathBuf,
    pub(crate) certificate: Certificate,
    /// The cores for the servers; the load generator has the last one.
    pub(crate) cores: Vec<usize>,
    pub(crate) progress: ProgressBar,
}

impl Bench {
    /// Returns the servers that can serve the content of a plan.
    fn capable_servers(&self, plan: &Plan) -> Vec<&Server> {
        self.servers.iter().filter(|server| server.serves(plan.content)).collect()
    }

    /// Returns the probe of a plan. A quick run probes one table only, as a smoke test of the probes.
    fn probe_for(&self, plan: &Plan) -> Probe {
        if self.effort.kind == RunKind::Quick && plan.name != "small-file-64" { Probe::None } else { plan.probe }
    }

    /// Returns the number of rounds of a plan.
    pub(crate) fn rounds(&self, plan: &Plan) -> usize {
        self.effort.rounds.max(self.effort.pick(1, plan.rounds_min))
    }

    /// Returns the number of progress bar steps of a plan.
    pub(crate) fn steps(&self, plan: &Plan) -> usize {
        self.capable_servers(plan).len() * (self.rounds(plan) + usize::from(self.probe_for(plan) != Probe::None))
    }

    /// Runs a plan. If a server fails, a note in the report names it and the run continues. A quick run fails
    /// instead, because its notes are not read.
    pub(crate) fn run(&self, plan: &Plan) -> Result<Case> {
        let capable_servers = self.capable_servers(plan);
        let (mut samples, mut notes) = (Samples::default(), Vec::new());
        for round in 1..=self.rounds(plan) {
            let mut seen = Vec::new();
            for server in &capable_servers {
                self.show_progress(&format!("{}: round {round}, {}", plan.name, server.name()))?;
                match self.start(server, plan).and_then(|running| (plan.measure)(self, &running)) {
                    Ok(found) => seen.extend(found.into_iter().map(|sample| (server.name(), sample))),
                    Err(error) if self.effort.kind == RunKind::Quick => {
                        return Err(error.context(format!("{} at {}", plan.name, server.name())));
                    }
                    Err(error) => notes.push(format!("{}, round {round}: {error:#}", server.name())),
                }
                self.progress.inc(1);
            }
            add_ratios(&mut seen, plan.content.ratios());
            seen.into_iter().for_each(|(server, sample)| samples.add(server, sample));
        }
        if self.probe_for(plan) != Probe::None {
            for server in &capable_servers {
                self.show_progress(&format!("{}: probing {}", plan.name, server.name()))?;
                let (figures, problems) = self.probe(server, plan);
                samples.add(server.name(), Sample { condition: String::new(), figures });
                notes.extend(problems.into_iter().map(|problem| format!("{}: {problem:#}", server.name())));
                self.progress.inc(1);
            }
        }
        // The result of an interrupted load is not a measurement.
        ensure!(!interrupt::is_requested(), "stopped by a signal");
        let absent: Vec<&str> =
            self.servers.iter().filter(|server| !server.serves(plan.content)).map(Server::name).collect();
        if !absent.is_empty() {
            notes.push(format!("Not measured, because they cannot serve this content: {}.", absent.join(", ")));
        }
        let order: Vec<String> = self.servers.iter().map(|server| server.name().to_owned()).collect();
        let rows = samples.rows(&order);
        Ok(Case { workload: plan.workload.to_owned(), name: plan.name.clone(), title: plan.title.clone(), rows, notes })
    }

    fn show_progress(&self, message: &str) -> Result<()> {
        ensure!(!interrupt::is_requested(), "stopped by a signal");
        self.progress.set_message(message.to_owned());
        Ok(())
    }

    /// Returns the cores for a number of workers.
    fn cores_for(&self, workers: usize) -> &[usize] {
        &self.cores[..workers.min(self.cores.len())]
    }

    /// Returns the core of an upstream: its own if the machine has one, else that of the load generator.
    fn upstream_core(&self, workers: usize) -> &[usize] {
        let from_last = if self.cores.len() > workers + 1 { 2 } else { 1 };
        let first = self.cores.len() - from_last;
        &self.cores[first..=first]
    }

    fn with_launch<T>(&self, plan: &Plan, action: impl FnOnce(&Launch<'_>) -> Result<T>) -> Result<T> {
        let state = self.scratch.join("state");
        if state.exists() {
            fs::remove_dir_all(&state)?;
        }
        fs::create_dir_all(&state)?;
        action(&Launch {
            ports: Ports::free()?,
            workers: plan.workers,
            root: &self.site.root,
            content: plan.content,
            path: &plan.path,
            persistence: plan.mix.persistence,
            state: &state,
            certificate: &self.certificate,
        })
    }

    pub(crate) fn start(&self, server: &Server, plan: &Plan) -> Result<ServerProcess> {
        self.with_launch(plan, |launch| self.start_command(server.command(launch)?, plan, launch))
    }

    pub(crate) fn start_under_callgrind(&self, server: &Server, plan: &Plan) -> Result<ServerProcess> {
        self.with_launch(plan, |launch| {
            let command = probe::under_callgrind(&server.command(launch)?, &self.scratch)?;
            self.start_command(command, plan, launch)
        })
    }

    /// Starts a server, after its upstream if the plan has one.
    fn start_command(&self, command: Command, plan: &Plan, launch: &Launch<'_>) -> Result<ServerProcess> {
        let log = self.scratch.join("server.log");
        let start = || ServerProcess::start(command, self.cores_for(plan.workers), launch.ports, &plan.path, &log);
        let Some(upstream) = &plan.upstream else { return start() };
        let ports = Ports { plain: launch.ports.upstream, ..launch.ports };
        let (core, log) = (self.upstream_core(plan.workers), self.scratch.join("upstream.log"));
        let upstream = ServerProcess::start(upstream.command(launch), core, ports, &plan.path, &log)?;
        Ok(start()?.with_upstream(upstream))
    }

    fn probe(&self, server: &Server, plan: &Plan) -> (Figures, Vec<anyhow::Error>) {
        let (mut figures, mut problems) = (Figures::new(), Vec::new());
        if probe::is_installed("strace") {
            match self.system_calls(server, plan) {
                Ok(calls) => drop(figures.insert(Figure::SystemCalls, calls)),
                Err(error) => problems.push(error.context("system calls")),
            }
        }
        if plan.probe == Probe::SystemCallsAndInstructions {
            match self.instructions(server, plan) {
                Ok(Some(count)) => drop(figures.insert(Figure::Instructions, count)),
                Ok(None) => {}
                Err(error) => problems.push(error.context("instructions")),
            }
        }
        (figures, problems)
    }

    fn system_calls(&self, server: &Server, plan: &Plan) -> Result<f64> {
        let running = self.start(server, plan)?;
        let mut load = ClosedLoop::connect(running.address(), plan.mix.clone(), plan.connections)?;
        let enough = if plan.probe == Probe::SystemCallsOfFewRequests { 25 } else { self.effort.pick(2_000, 10_000) };
        let requests = enough.max(plan.connections as u64 * 4);
        load.run(Until::Requests(requests))?;
        probe::system_calls(&running, &self.scratch, || Ok(load.run(Until::Requests(requests))?.completed))
    }

    fn instructions(&self, server: &Server, plan: &Plan) -> Result<Option<f64>> {
        if *probe::HAS_COUNTERS {
            let running = self.start(server, plan)?;
            let mut load = ClosedLoop::connect(running.address(), plan.mix.clone(), plan.connections)?;
            load.run(Until::Requests(10_000))?;
            let count = || Ok(load.run(Until::Requests(100_000))?.completed);
            return probe::counted_instructions(&running, count).map(Some);
        }
        if !server.runs_under_callgrind() || !probe::is_installed("valgrind") {
            return Ok(None);
        }
        let few = self.count_with_callgrind(server, plan, 320)?;
        let many = self.count_with_callgrind(server, plan, 1_920)?;
        Ok(Some((many as f64 - few as f64) / 1_600.0))
    }

    fn count_with_callgrind(&self, server: &Server, plan: &Plan, requests: u64) -> Result<u64> {
        let running = self.start_under_callgrind(server, plan)?;
        let mut load = ClosedLoop::connect(running.address(), plan.mix.clone(), plan.connections.min(16))?;
        let window = load.run(Until::Requests(requests))?;
        ensure!(window.errors == 0, "{} requests failed under callgrind", window.errors);
        drop(load);
        probe::callgrind_total(running, &self.scratch)
    }
}

/// Returns the limit of open connections. With a new connection for each request it is higher, because closed
/// connections overlap with new ones.
pub(crate) fn open_connections_max(mix: &Mix, connections: usize) -> usize {
    if mix.persistence == Persistence::Close { connections.max(1_000) } else { connections }
}
