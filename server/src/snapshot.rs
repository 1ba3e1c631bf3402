//! A configuration with everything that it needs open: what a generation of connections is
//! served with. Nothing of it ever changes.

use crate::compile::{self, Compiled, Kept};
use crate::config::model::{AccessLog, ErrorLog, ExistingConnections, Logs as LogSettings, Settings};
use crate::config::value::HostPattern;
use crate::config::{Claimed, Configuration, Problem, Problems, Sources};
use crate::log::{Connect, LogObserver, LogProblem, Logs, Tallies};
use crate::site::{Observed, SiteTable, Sites};
use selvedge::service::{Admission, UNIX_PEER};
use selvedge::{Existing, Generation, Limits, Server};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What a generation of connections is served with.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// From 1, as configurations take each other's place.
    pub(crate) number: u64,
    pub(crate) settings: Settings,
    pub(crate) logs: Arc<Logs>,
    /// What was counted, also under configurations before this one.
    pub(crate) tallies: Arc<Tallies>,
    table: Arc<SiteTable>,
    limits: Limits,
    kept: Kept,
}

/// Why a configuration cannot be served.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// What is wrong with it, and where.
    Problems(Problems),
    /// What has no place in it.
    Plain(String),
}

impl Refusal {
    /// Problems of a configuration, which is of no use any more.
    pub(crate) fn of(problems: Vec<Problem>, configuration: &mut Configuration) -> Self {
        Self::Problems(Problems::new(problems, std::mem::take(&mut configuration.texts)))
    }

    /// Everything that is wrong, a line for each.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Problems(problems) => problems.lines().collect(),
            Self::Plain(text) => vec![text.clone()],
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problems(problems) => problems.fmt(f),
            Self::Plain(text) => writeln!(f, "selvedge: {text}"),
        }
    }
}

impl Snapshot {
    /// Compiles a configuration and opens its roots and logs. Logs and counting gates of which
    /// the one before says the same are its own.
    ///
    /// # Errors
    /// Every problem; nothing is left open then.
    pub(crate) fn prepare(
        configuration: &mut Configuration,
        earlier: Option<&Self>,
        sources: &dyn Sources,
        connect: Connect,
    ) -> Result<Self, Refusal> {
        let nothing = Kept::default();
        let kept = earlier.map_or(&nothing, |earlier| &earlier.kept);
        let Compiled { table, logs: plan, limits, kept } =
            compile::compile(configuration, kept, sources).map_err(|problems| Refusal::of(problems, configuration))?;
        let same = earlier.filter(|earlier| logs_of(&earlier.settings) == logs_of(&configuration.settings));
        let logs = match same {
            Some(earlier) => earlier.logs.clone(),
            None => Arc::new(Logs::start(&plan, connect).map_err(|problem| explain(&problem, configuration))?),
        };
        let number = earlier.map_or(1, |earlier| earlier.number + 1);
        let tallies = earlier.map_or_else(Arc::default, |earlier| earlier.tallies.clone());
        Ok(Self { number, settings: configuration.settings.clone(), logs, tallies, table, limits, kept })
    }

    /// What serves connections with it.
    pub(crate) fn generation(&self, workers: usize) -> Generation<Sites, LogObserver> {
        let generation = Generation::new(self.service(workers), self.observer()).limits(self.limits.clone());
        match self.door() {
            Some(door) => generation.admit(door),
            None => generation,
        }
    }

    /// A server that begins with it.
    pub(crate) fn server(&self, server: Server) -> Server<LogObserver> {
        let server = server.observe(self.observer()).limits(self.limits.clone());
        match self.door() {
            Some(door) => server.admit(door),
            None => server,
        }
    }

    /// What each worker makes its view of the sites with.
    pub(crate) fn service(&self, workers: usize) -> impl Fn() -> Sites + Send + Sync + use<> {
        let table = self.table.clone();
        move || Sites::new(table.clone(), workers)
    }

    fn observer(&self) -> LogObserver {
        LogObserver::new(&self.logs, &self.limits).counting(&self.tallies)
    }

    /// Who asks of each connection whether its client may have one more. Over a Unix socket
    /// there is no address to count.
    fn door(&self) -> Option<impl Fn(SocketAddr) -> Admission + Send + Sync + use<>> {
        let gate = self.kept.connections()?.clone();
        Some(move |peer: SocketAddr| match peer {
            UNIX_PEER => Admission::Serve(Box::new(())),
            _ => gate.admit(peer.ip()),
        })
    }

    /// How many connections there may be. Where the server has begun already it stays as it was.
    pub(crate) fn connections_max(&self) -> usize {
        self.limits.connections_max
    }

    /// How long what runs may take at a stop.
    pub(crate) fn drain_time(&self) -> Duration {
        self.limits.drain_time
    }

    /// What becomes of connections that are there when this one takes the place of another.
    pub(crate) fn existing(&self) -> Existing {
        match self.settings.process.existing_connections {
            ExistingConnections::Finish => Existing::Finish,
            ExistingConnections::Follow => Existing::Follow,
        }
    }

    /// What gates that only observe have counted so far: the first name of their site, or
    /// nothing for one before all of them; the gate; how often it was against somebody.
    pub(crate) fn observed(&self) -> Vec<(Option<String>, &'static str, u64)> {
        let connections = self.kept.connections().and_then(|gate| gate.observed());
        let connections = connections.map(|count| (None, "connections-per-client-max", count));
        let of_sites = self.table.observed().map(|Observed { site, gate, count }| {
            let name = self.settings.sites[site].names.first().map(ToString::to_string);
            (name, gate, count)
        });
        connections.into_iter().chain(of_sites).collect()
    }

    /// What tells whether connections are still served with it.
    pub(crate) fn trace(&self) -> Trace {
        Trace { table: Arc::downgrade(&self.table), logs: self.logs.clone() }
    }
}

/// A snapshot whose place was taken.
#[derive(Debug)]
pub(crate) struct Trace {
    table: Weak<SiteTable>,
    pub(crate) logs: Arc<Logs>,
}

impl Trace {
    /// Whether connections are still served with it.
    pub(crate) fn is_served(&self) -> bool {
        self.table.strong_count() > 0
    }
}

/// What the logs are made of.
type LogsOf<'a> = (&'a LogSettings, Vec<(Option<&'a HostPattern>, Option<&'a AccessLog>, Option<&'a ErrorLog>)>);

fn logs_of(settings: &Settings) -> LogsOf<'_> {
    let sites = settings.sites.iter();
    let of_sites = sites.map(|site| (site.names.first(), site.access_log.as_ref(), site.error_log.as_ref()));
    (&settings.logs, of_sites.collect())
}

/// The problem of a log, at its place where it is a file.
fn explain(problem: &LogProblem, configuration: &mut Configuration) -> Refusal {
    let place =
        problem.path.as_ref().and_then(|path| compile::place_of(configuration, &Claimed::Written(path.clone())));
    match place {
        Some(at) => {
            let problem = Problem::of_world(at, problem.to_string(), String::new());
            Refusal::of(vec![problem], configuration)
        }
        None => Refusal::Plain(problem.to_string()),
    }
}
