//! From one configuration to the next while the server serves: a transaction. All that is new
//! is read, compiled, opened and bound first; where anything of it fails, nothing has changed.

use crate::config::model::{self, Settings};
use crate::config::{self, Claimed, Configuration, Problem, Sources};
use crate::listeners::Places;
use crate::log::plan::Level;
use crate::log::{self, Connect, LogObserver, Logs};
use crate::process::{Answer, CannotListen, Confinement, Coverage, Enclosure, Identity, Post, Sandbox};
use crate::site::Sites;
use crate::snapshot::{Refusal, Snapshot, Trace};
use crate::status::{Connections, InForce, Latency, Log, Observed, Requests, Sent, Status};
use crate::world::{self, Disk, Needs};
use crate::{changes, compile};
use selvedge::{Driver, Handle, Server, Succession};
use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Why a configuration without sites does not take the place of one with some. Whoever looks at
/// a file in the moment in which an editor writes it finds it empty.
const EMPTY: &str = "the configuration has no site any more, as if it were half written";

/// How long workers may take to say what their connections are doing. One that takes longer is
/// held up, which is an answer, too.
const CENSUS_TIME: Duration = Duration::from_secs(1);

/// A server that is running, with what it takes to change its configuration.
#[derive(Debug)]
pub(crate) struct Live {
    file: PathBuf,
    connect: Connect,
    /// As many as it began with.
    workers: usize,
    /// The limit on connections, which is as it began with, too.
    connections_max: usize,
    began: Instant,
    post: Arc<Post>,
    /// What this process can reach; `None` when nothing keeps it from anything.
    enclosure: Option<Enclosure>,
    /// What has taken the place of folders since, and was no reason for another process.
    successors: Vec<Identity>,
    /// What it began with.
    first: Settings,
    handle: Handle,
    succession: Succession<Sites, LogObserver>,
    places: Places,
    snapshot: Snapshot,
    /// Those whose place was taken and that still have connections.
    earlier: Vec<Trace>,
}

/// The files that this process can reach, and whether there are some that it cannot.
#[derive(Default)]
struct Reached {
    is_denied: Cell<bool>,
}

impl Reached {
    fn note<T>(&self, looked: io::Result<T>) {
        if looked.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied) {
            self.is_denied.set(true);
        }
    }
}

impl Sources for Reached {
    fn text(&self, file: &Path) -> Result<String, String> {
        Disk.text(file).inspect_err(|_| self.note(world::read_regular(file)))
    }

    fn matches(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let folder_of = |pattern: PathBuf| pattern.parent().map(Path::to_owned).unwrap_or(pattern);
        Disk.matches(folder, pattern).inspect_err(|_| self.note(fs::read_dir(folder_of(folder.join(pattern)))))
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }
}

/// What a reload has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reloaded {
    /// This process serves another configuration.
    InForce {
        /// Its number.
        generation: u64,
        /// How many earlier ones still have connections.
        earlier: usize,
        /// What it says otherwise than the one before, a line for each.
        changes: Vec<String>,
        /// Settings that have changed, and count from the next start on only.
        at_next_start: Vec<&'static str>,
    },
    /// It needs files that this process has locked itself out of, so another one serves it;
    /// what there is to say of that.
    Elsewhere(String),
}

impl Reloaded {
    /// What there is to say of it, the most important first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let (generation, earlier, changes, at_next_start) = match self {
            Self::Elsewhere(text) => return vec![text.clone()],
            Self::InForce { generation, earlier, changes, at_next_start } => {
                (generation, earlier, changes, at_next_start)
            }
        };
        let earlier = if *earlier > 0 { format!(", {earlier} earlier with connections") } else { String::new() };
        let mut lines = vec![format!("configuration {generation}{earlier}")];
        if !at_next_start.is_empty() {
            lines.push(format!("what has changed of {} counts from the next start on", at_next_start.join(", ")));
        }
        lines.extend_from_slice(changes);
        if lines.len() == 1 {
            lines.push("it says what the one before said".to_owned());
        }
        lines
    }
}

/// Reads a configuration, and holds what it needs to the world.
///
/// # Errors
/// Everything that is wrong.
pub(crate) fn read(file: &Path) -> Result<Configuration, Refusal> {
    hold_to_world(config::read(file, &Disk).map_err(Refusal::Problems)?, Needs::OfAll)
}

fn hold_to_world(mut configuration: Configuration, needs: Needs) -> Result<Configuration, Refusal> {
    let problems = world::problems(&configuration.claims, needs);
    if problems.is_empty() { Ok(configuration) } else { Err(Refusal::of(problems, &mut configuration)) }
}

/// The driver that a configuration names.
pub(crate) fn driver(settings: &Settings) -> Driver {
    match settings.process.driver {
        model::Driver::Auto => Driver::Auto,
        model::Driver::Epoll => Driver::Epoll,
        model::Driver::IoUring => Driver::IoUring,
    }
}

/// Starts to serve a configuration in a process that has its post.
///
/// # Errors
/// Every problem; then nothing is left open.
pub(crate) fn begin(
    file: &Path,
    mut configuration: Configuration,
    driver: Driver,
    post: &Arc<Post>,
    connect: Connect,
) -> Result<(Live, selvedge::Running), Refusal> {
    let sandbox = Sandbox::of(&configuration);
    let enclosure = Enclosure::of(sandbox.clone());
    let confinement = post.confine(&sandbox).map_err(Refusal::Plain)?;
    let snapshot = Snapshot::prepare(&mut configuration, None, &Disk, connect)?;
    if let Some(remark) = confinement.remark() {
        snapshot.logs.say(Level::Warn, "Sandbox", remark.to_owned());
    }
    for note in post.notes() {
        snapshot.logs.say(Level::Error, "Restarted", note.clone());
    }
    let workers = workers(&snapshot.settings);
    let listeners = Places::default().towards(post, &snapshot.settings.listeners);
    let listeners = listeners.map_err(|problems| cannot_listen(problems, &mut configuration))?;
    let (places, listeners) = listeners.begin();
    let server = snapshot.server(Server::on(listeners, workers)).driver(driver);
    let started = server.serve_generations(snapshot.service(workers));
    let (running, succession) = started.map_err(|error| Refusal::Plain(format!("cannot start: {error}")))?;
    let live = Live {
        file: file.to_owned(),
        connect,
        workers,
        connections_max: snapshot.connections_max(),
        began: Instant::now(),
        post: post.clone(),
        enclosure: (confinement != Confinement::None).then_some(enclosure),
        successors: Vec::new(),
        first: snapshot.settings.clone(),
        handle: running.handle(),
        succession,
        places,
        snapshot,
        earlier: Vec::new(),
    };
    Ok((live, running))
}

/// How many workers a configuration wants.
pub(crate) fn workers(settings: &Settings) -> usize {
    settings.process.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

impl Live {
    /// Where it listens.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Lets go of sockets that the process was given and the configuration does not name. To be
    /// called when the process is ready: until then another one may serve there.
    pub(crate) fn leave_other_places(&self) {
        self.places.leave_others(&self.post, &self.handle);
    }

    /// Accepts nobody any more: another process serves by now.
    pub(crate) fn leave(&self) {
        self.places.endpoints().for_each(|endpoint| self.handle.leave(endpoint));
    }

    /// Reads the configuration again and has it served from now on.
    ///
    /// # Errors
    /// Every problem; then nothing has changed.
    pub(crate) fn reload(&mut self) -> Result<Reloaded, Refusal> {
        let sources = Reached::default();
        let configuration = match config::read(&self.file, &sources) {
            Ok(configuration) => configuration,
            // Another process may reach it, and says the same of what nobody can read.
            Err(_) if sources.is_denied.get() && self.enclosure.is_some() && !self.post.is_alone() => {
                return self.renew();
            }
            Err(problems) => return Err(Refusal::Problems(problems)),
        };
        if configuration.settings.sites.is_empty() && !self.snapshot.settings.sites.is_empty() {
            return Err(Refusal::Plain(EMPTY.to_owned()));
        }
        let wanted = Sandbox::of(&configuration);
        if self.enclosure.as_ref().is_some_and(|enclosure| enclosure.covers(&wanted) == Coverage::TooNarrow) {
            return self.renew();
        }
        let mut configuration = hold_to_world(configuration, Needs::OfServing)?;
        let next = Snapshot::prepare(&mut configuration, Some(&self.snapshot), &Disk, self.connect)?;
        let listeners = self.places.towards(&self.post, &next.settings.listeners);
        let listeners = listeners.map_err(|problems| cannot_listen(problems, &mut configuration))?;
        let places = listeners.make(&self.post, &self.handle);
        let changes = changes::between(&self.snapshot.settings, &next.settings);
        let at_next_start = changes::at_next_start(&self.first, &next.settings);
        // The new places are listened at by now, and whoever connects there waits for a moment.
        self.succession.replace(&next.generation(self.workers), next.existing());
        self.post.drains_within(next.drain_time());
        self.earlier.push(self.snapshot.trace());
        self.snapshot = next;
        // Dropped, the one before is served only by the connections that it still has.
        self.let_go_of_earlier();
        self.places = places.map_err(|error| Refusal::Plain(format!("cannot listen at all new places: {error}")))?;
        let (generation, earlier) = (self.snapshot.number, self.earlier.len());
        Ok(Reloaded::InForce { generation, earlier, changes, at_next_start })
    }

    /// Has another process serve in the place of this one.
    fn renew(&self) -> Result<Reloaded, Refusal> {
        match self.post.renew() {
            Answer::Done(text) => {
                self.leave();
                Ok(Reloaded::Elsewhere(text))
            }
            Answer::Refused(text) => Err(Refusal::Plain(text)),
        }
    }

    /// Looks whether a folder was put in the place of one that this process may reach, as when the
    /// logs' is made anew: then another process has to serve. One that was tried is not tried again.
    pub(crate) fn look_around(&mut self) {
        self.let_go_of_earlier();
        // What has another in its place, or is to have none, needs to reach nothing new.
        let Some(enclosure) = self.enclosure.as_ref().filter(|_| !self.post.is_stopping()) else { return };
        let successors = enclosure.successors();
        if successors.iter().all(|folder| self.successors.contains(folder)) {
            return;
        }
        self.successors = successors;
        let (level, text) = match self.renew() {
            Ok(reloaded) => (Level::Info, reloaded.lines().join("; ")),
            Err(refusal) => (Level::Error, format!("it cannot be reached: {}", refusal.lines().join("; "))),
        };
        let text = format!("a folder was replaced by another: {text}");
        // The error log may be in it.
        log::say(&text);
        self.snapshot.logs.say(level, "FolderReplaced", text);
    }

    /// As [`Live::reload`], with a word in the error log.
    pub(crate) fn reload_and_tell(&mut self) -> Result<Reloaded, Refusal> {
        let done = self.reload();
        match &done {
            Ok(reloaded) => self.snapshot.logs.say(Level::Info, "Reloaded", reloaded.lines().join("; ")),
            Err(refusal) => {
                let why = refusal.lines().join("; ");
                let text = format!("the configuration stays as it is: {why}");
                self.snapshot.logs.say(Level::Error, "ReloadRefused", text);
            }
        }
        done
    }

    /// How things are. Waits for workers, but not long.
    pub(crate) fn status(&self) -> Status {
        let census = self.handle.census(CENSUS_TIME);
        let totals = self.snapshot.tallies.totals();
        let observed = self.snapshot.observed().into_iter();
        let losses = self.snapshot.logs.losses();
        Status {
            version: env!("CARGO_PKG_VERSION"),
            process_id: std::process::id(),
            uptime_seconds: self.began.elapsed().as_secs(),
            restarts: self.post.restarts(),
            workers: self.workers,
            workers_silent: census.silent_workers,
            configuration: InForce::of(self.file.display().to_string(), self.snapshot.number, &census),
            listeners: self.places.endpoints().map(ToString::to_string).collect(),
            connections: Connections::of(&census, self.connections_max, &totals),
            requests: Requests::of(&totals),
            sent: Sent { head_bytes: totals.head_bytes, content_bytes: totals.content_bytes },
            latency_ns: Latency::of(&totals),
            incidents: totals.incidents.iter().copied().collect(),
            observed: observed.map(|(site, gate, count)| Observed { site, gate, count }).collect(),
            logs: losses.map(|(name, lines_lost)| Log { name: name.to_owned(), lines_lost }).collect(),
        }
    }

    /// Lets go of configurations that no connection has any more, and so of logs that nobody writes to.
    fn let_go_of_earlier(&mut self) {
        self.earlier.retain(Trace::is_served);
    }

    /// Opens all log files anew, as after they were moved away.
    pub(crate) fn reopen_logs(&mut self) {
        self.let_go_of_earlier();
        self.all_logs().for_each(|logs| logs.reopener().reopen());
    }

    fn all_logs(&self) -> impl Iterator<Item = &Arc<Logs>> {
        self.earlier.iter().map(|earlier| &earlier.logs).chain([&self.snapshot.logs])
    }

    /// Waits until what is left of the logs is written. The server has stopped.
    pub(crate) fn finish(self) {
        let mut logs: Vec<_> = self.all_logs().cloned().collect();
        drop(self);
        while let Some(last) = logs.pop() {
            // One that several configurations have shared ends with the last of them.
            if let Some(logs) = Arc::into_inner(last) {
                logs.finish();
            }
        }
    }
}

/// The problems of places to listen at, where the configuration names them.
pub(crate) fn cannot_listen(problems: Vec<CannotListen>, configuration: &mut Configuration) -> Refusal {
    let problem = |CannotListen { address, why }| {
        let at = compile::place_of(configuration, &Claimed::Listens(address)).unwrap_or_default();
        Problem::of_world(at, why, String::new())
    };
    let problems = problems.into_iter().map(problem).collect();
    Refusal::of(problems, configuration)
}
