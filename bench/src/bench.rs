//! Runs plans: every server once in every round, so that a disturbance hits all alike; then the
//! probes; then the medians.

use crate::figures::{Case, Figure, Figures, Sample, Samples, add_ratios};
use crate::interrupt;
use crate::load::closed::{Closed, Until};
use crate::load::mix::{Afterwards, Mix};
use crate::process::probe;
use crate::process::running::{Running, free_port};
use crate::servers::{Content, Launch, Server};
use crate::site::Site;
use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// So many requests at a rate are a measurement, if that takes no longer than this many seconds.
const REQUESTS_ENOUGH: f64 = 64.0;
/// So many show that it works.
const REQUESTS_FEW: f64 = 2.0;
/// See [`REQUESTS_ENOUGH`].
const WINDOW_AT_RATE_MAX: f64 = 6.0;
/// Too much is offered for so long at least: what a server does then shows once its queue is full, and
/// one held to a sixth of a core has half a second's work in a queue of 4,096.
const OVERLOAD_WINDOW_MIN: Duration = Duration::from_secs(3);

/// How thorough a run is.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) kind: Kind,
}

/// What a run is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To see that everything works.
    Quick,
    /// For figures.
    Full,
}

impl Effort {
    /// One of two values.
    pub(crate) fn pick<T>(&self, quick: T, full: T) -> T {
        if self.kind == Kind::Quick { quick } else { full }
    }

    pub(crate) fn window(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// The same where requests are sent at a rate: longer where those would be few.
    pub(crate) fn window_at(&self, rate: f64) -> Duration {
        let enough = self.pick(REQUESTS_FEW, REQUESTS_ENOUGH);
        self.window().max(Duration::from_secs_f64((enough / rate).min(WINDOW_AT_RATE_MAX)))
    }

    /// The same under more than a server can do, which shows once its queues are full.
    pub(crate) fn window_of_overload(&self) -> Duration {
        self.pick(self.window(), self.window().max(OVERLOAD_WINDOW_MIN))
    }

    /// Before the window, unmeasured.
    pub(crate) fn warm(&self) -> Duration {
        Duration::from_secs_f64((self.seconds / 4.0).clamp(0.1, 0.5))
    }

    /// The same for files of which a server answers few in that time: what it keeps of them it
    /// may decide after a second.
    pub(crate) fn warm_of_long(&self) -> Duration {
        self.pick(self.warm(), Duration::from_secs(2))
    }
}

/// What the probes look at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    Nothing,
    SystemCalls,
    /// Of a few requests, because they are long.
    SystemCallsOfFew,
    SystemCallsAndInstructions,
}

/// The measuring of one server in one round.
pub(crate) type Measure = Box<dyn Fn(&Bench, &Running) -> Result<Vec<Sample>>>;

/// A table to be.
pub(crate) struct Plan {
    pub(crate) workload: &'static str,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) content: Content,
    /// What a server must answer before it is measured.
    pub(crate) path: String,
    pub(crate) mix: Mix,
    pub(crate) connections: usize,
    pub(crate) workers: usize,
    /// Rounds that its figures need at least, where they vary more than others from one to the next.
    pub(crate) rounds_min: usize,
    pub(crate) probe: Probe,
    pub(crate) measure: Measure,
}

/// All that the measuring needs.
pub(crate) struct Bench {
    pub(crate) servers: Vec<Server>,
    pub(crate) site: Site,
    pub(crate) effort: Effort,
    /// A directory for what servers and tools leave behind.
    pub(crate) scratch: PathBuf,
    /// The cores a server may have; the load has the last one.
    pub(crate) cores: Vec<usize>,
    pub(crate) progress: ProgressBar,
}

impl Bench {
    /// The servers that can do this.
    fn contenders(&self, plan: &Plan) -> Vec<&Server> {
        self.servers.iter().filter(|server| server.answers(plan.content)).collect()
    }

    /// What the probes look at; a quick run proves that they work, with one table.
    fn probe_of(&self, plan: &Plan) -> Probe {
        if self.effort.kind == Kind::Quick && plan.name != "small-file-64" { Probe::Nothing } else { plan.probe }
    }

    /// How many rounds a plan has.
    pub(crate) fn rounds(&self, plan: &Plan) -> usize {
        self.effort.rounds.max(self.effort.pick(1, plan.rounds_min))
    }

    /// How many steps of the progress bar a plan takes.
    pub(crate) fn steps(&self, plan: &Plan) -> usize {
        self.contenders(plan).len() * (self.rounds(plan) + usize::from(self.probe_of(plan) != Probe::Nothing))
    }

    /// Carries out a plan. A server that fails is named in the notes and the others go on, but for a quick
    /// run: nobody reads its notes.
    pub(crate) fn carry_out(&self, plan: &Plan) -> Result<Case> {
        let contenders = self.contenders(plan);
        let (mut samples, mut notes) = (Samples::default(), Vec::new());
        for round in 1..=self.rounds(plan) {
            let mut seen = Vec::new();
            for server in &contenders {
                self.say(&format!("{}: round {round}, {}", plan.name, server.name()))?;
                match self.start(server, plan).and_then(|running| (plan.measure)(self, &running)) {
                    Ok(found) => seen.extend(found.into_iter().map(|sample| (server.name(), sample))),
                    Err(error) if self.effort.kind == Kind::Quick => {
                        return Err(error.context(format!("{} at {}", plan.name, server.name())));
                    }
                    Err(error) => notes.push(format!("{}, round {round}: {error:#}", server.name())),
                }
                self.progress.inc(1);
            }
            add_ratios(&mut seen, plan.content.ratios());
            seen.into_iter().for_each(|(server, sample)| samples.add(server, sample));
        }
        if self.probe_of(plan) != Probe::Nothing {
            for server in &contenders {
                self.say(&format!("{}: probing {}", plan.name, server.name()))?;
                let (figures, problems) = self.probe(server, plan);
                samples.add(server.name(), Sample { at: String::new(), figures });
                notes.extend(problems.into_iter().map(|problem| format!("{}: {problem:#}", server.name())));
                self.progress.inc(1);
            }
        }
        // What a stopped load has seen is not a measurement.
        ensure!(!interrupt::requested(), "stopped by a signal");
        let absent: Vec<&str> =
            self.servers.iter().filter(|server| !server.answers(plan.content)).map(Server::name).collect();
        if !absent.is_empty() {
            notes.push(format!("Not here, because they do not answer this by themselves: {}.", absent.join(", ")));
        }
        let order: Vec<String> = self.servers.iter().map(|server| server.name().to_owned()).collect();
        let rows = samples.rows(&order);
        Ok(Case { workload: plan.workload.to_owned(), name: plan.name.clone(), title: plan.title.clone(), rows, notes })
    }

    fn say(&self, what: &str) -> Result<()> {
        ensure!(!interrupt::requested(), "stopped by a signal");
        self.progress.set_message(what.to_owned());
        Ok(())
    }

    /// The cores for so many workers.
    fn cores_for(&self, workers: usize) -> &[usize] {
        &self.cores[..workers.min(self.cores.len())]
    }

    fn launch<T>(&self, plan: &Plan, then: impl FnOnce(&Launch<'_>) -> Result<T>) -> Result<T> {
        let state = self.scratch.join("state");
        if state.exists() {
            fs::remove_dir_all(&state)?;
        }
        fs::create_dir_all(&state)?;
        then(&Launch {
            port: free_port()?,
            workers: plan.workers,
            root: &self.site.root,
            content: plan.content,
            path: &plan.path,
            afterwards: plan.mix.afterwards,
            state: &state,
        })
    }

    pub(crate) fn start(&self, server: &Server, plan: &Plan) -> Result<Running> {
        self.launch(plan, |launch| self.run(server.command(launch)?, plan, launch))
    }

    pub(crate) fn start_under_callgrind(&self, server: &Server, plan: &Plan) -> Result<Running> {
        self.launch(plan, |launch| {
            let command = probe::under_callgrind(&server.command(launch)?, &self.scratch)?;
            self.run(command, plan, launch)
        })
    }

    fn run(&self, command: Command, plan: &Plan, launch: &Launch<'_>) -> Result<Running> {
        let log = self.scratch.join("server.log");
        Running::start(command, self.cores_for(plan.workers), launch.port, &plan.path, &log)
    }

    fn probe(&self, server: &Server, plan: &Plan) -> (Figures, Vec<anyhow::Error>) {
        let (mut figures, mut problems) = (Figures::new(), Vec::new());
        if probe::installed("strace") {
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
        let mut load = Closed::connect(running.address(), plan.mix.clone(), plan.connections)?;
        let enough = if plan.probe == Probe::SystemCallsOfFew { 25 } else { self.effort.pick(2_000, 10_000) };
        let requests = enough.max(plan.connections as u64 * 4);
        load.run(Until::Requests(requests))?;
        probe::system_calls(&running, &self.scratch, || Ok(load.run(Until::Requests(requests))?.answered))
    }

    fn instructions(&self, server: &Server, plan: &Plan) -> Result<Option<f64>> {
        if *probe::COUNTERS {
            let running = self.start(server, plan)?;
            let mut load = Closed::connect(running.address(), plan.mix.clone(), plan.connections)?;
            load.run(Until::Requests(10_000))?;
            let count = || Ok(load.run(Until::Requests(100_000))?.answered);
            return probe::counted_instructions(&running, count).map(Some);
        }
        if !server.runs_under_callgrind() || !probe::installed("valgrind") {
            return Ok(None);
        }
        let few = self.callgrind(server, plan, 320)?;
        let many = self.callgrind(server, plan, 1_920)?;
        Ok(Some((many as f64 - few as f64) / 1_600.0))
    }

    fn callgrind(&self, server: &Server, plan: &Plan, requests: u64) -> Result<u64> {
        let running = self.start_under_callgrind(server, plan)?;
        let mut load = Closed::connect(running.address(), plan.mix.clone(), plan.connections.min(16))?;
        let window = load.run(Until::Requests(requests))?;
        ensure!(window.errors == 0, "{} requests failed under callgrind", window.errors);
        drop(load);
        probe::callgrind_total(running, &self.scratch)
    }
}

/// A new connection for every request needs more of them than are open at any moment.
pub(crate) fn open_connections(mix: &Mix, connections: usize) -> usize {
    if mix.afterwards == Afterwards::Close { connections.max(1_000) } else { connections }
}
