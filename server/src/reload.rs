//! From one configuration to the next while the server serves: a transaction. All that is new
//! is read, compiled, opened and bound first; where anything of it fails, nothing has changed.

use crate::compile;
use crate::config::model::Settings;
use crate::config::{self, Claimed, Configuration, Problem};
use crate::listeners::{CannotListen, Places};
use crate::log::plan::Level;
use crate::log::{Connect, LogObserver, Logs};
use crate::site::Sites;
use crate::snapshot::{Refusal, Snapshot, Trace};
use crate::world::{self, Disk};
use selvedge::{Handle, Server, Succession};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a configuration without sites does not take the place of one with some. Whoever looks at
/// a file in the moment in which an editor writes it finds it empty.
const EMPTY: &str = "the configuration has no site any more, as if it were half written";

/// A server that is running, with what it takes to change its configuration.
#[derive(Debug)]
pub(crate) struct Live {
    file: PathBuf,
    connect: Connect,
    /// As many as it began with.
    workers: usize,
    handle: Handle,
    succession: Succession<Sites, LogObserver>,
    places: Places,
    snapshot: Snapshot,
    /// Those whose place was taken and that still have connections.
    earlier: Vec<Trace>,
}

/// What a reload has done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reloaded {
    /// The number of the configuration that is in force now.
    pub(crate) generation: u64,
    /// How many earlier ones still have connections.
    pub(crate) earlier: usize,
    /// Settings that have changed, and count from the next start on only.
    pub(crate) at_next_start: Vec<&'static str>,
}

/// Reads a configuration, and holds what it needs to the world.
///
/// # Errors
/// Everything that is wrong.
pub(crate) fn read(file: &Path) -> Result<Configuration, Refusal> {
    let mut configuration = config::read(file, &Disk).map_err(Refusal::Problems)?;
    let problems = world::problems(&configuration.claims);
    if problems.is_empty() { Ok(configuration) } else { Err(Refusal::of(problems, &mut configuration)) }
}

/// Starts to serve a configuration.
///
/// # Errors
/// Every problem; then nothing is left open.
pub(crate) fn begin(file: &Path, connect: Connect) -> Result<(Live, selvedge::Running), Refusal> {
    let mut configuration = read(file)?;
    let snapshot = Snapshot::prepare(&mut configuration, None, &Disk, connect)?;
    let workers = snapshot.workers();
    let listeners = Places::default().towards(&snapshot.settings.listeners, workers);
    let listeners = listeners.map_err(|problems| cannot_listen(problems, &mut configuration))?;
    let (places, listeners) = listeners.begin();
    let server = snapshot.server(Server::on(listeners, workers));
    let started = server.serve_generations(snapshot.service(workers));
    let (running, succession) = started.map_err(|error| Refusal::Plain(format!("cannot start: {error}")))?;
    let (file, handle) = (file.to_owned(), running.handle());
    let live = Live { file, connect, workers, handle, succession, places, snapshot, earlier: Vec::new() };
    Ok((live, running))
}

impl Live {
    /// Where it listens.
    pub(crate) fn places(&self) -> &Places {
        &self.places
    }

    /// Reads the configuration again and has it served from now on.
    ///
    /// # Errors
    /// Every problem; then nothing has changed.
    pub(crate) fn reload(&mut self) -> Result<Reloaded, Refusal> {
        let mut configuration = read(&self.file)?;
        if configuration.settings.sites.is_empty() && !self.snapshot.settings.sites.is_empty() {
            return Err(Refusal::Plain(EMPTY.to_owned()));
        }
        let next = Snapshot::prepare(&mut configuration, Some(&self.snapshot), &Disk, self.connect)?;
        let listeners = self.places.towards(&next.settings.listeners, self.workers);
        let listeners = listeners.map_err(|problems| cannot_listen(problems, &mut configuration))?;
        let places = listeners.make(&self.handle);
        let at_next_start = at_next_start(&self.snapshot.settings, &next.settings);
        // The new places are listened at by now, and whoever connects there waits for a moment.
        self.succession.replace(&next.generation(self.workers), next.existing());
        self.earlier.push(self.snapshot.trace());
        self.snapshot = next;
        // Dropped, the one before is served only by the connections that it still has.
        self.earlier.retain(Trace::is_served);
        self.places = places.map_err(|error| Refusal::Plain(format!("cannot listen at all new places: {error}")))?;
        Ok(Reloaded { generation: self.snapshot.number, earlier: self.earlier.len(), at_next_start })
    }

    /// The same, with a word in the error log if nothing has changed.
    pub(crate) fn reload_and_tell(&mut self) -> Result<Reloaded, Refusal> {
        let done = self.reload();
        if let Err(refusal) = &done {
            let why = refusal.lines().join("; ");
            let text = format!("the configuration stays as it is: {why}");
            self.snapshot.logs.say(Level::Error, "ReloadRefused", text);
        }
        done
    }

    /// Opens all log files anew, as after they were moved away.
    pub(crate) fn reopen_logs(&self) {
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

fn cannot_listen(problems: Vec<CannotListen>, configuration: &mut Configuration) -> Refusal {
    let problem = |CannotListen { address, why }| {
        let at = compile::place_of(configuration, &Claimed::Listens(address)).unwrap_or_default();
        Problem::of_world(at, format!("cannot listen here: {why}"), String::new())
    };
    let problems = problems.into_iter().map(problem).collect();
    Refusal::of(problems, configuration)
}

/// What cannot be changed while the server runs.
fn at_next_start(before: &Settings, now: &Settings) -> Vec<&'static str> {
    let (old, new) = (&before.process, &now.process);
    let list = [
        ("workers", old.workers != new.workers),
        ("user", old.user != new.user),
        ("group", old.group != new.group),
        ("pid-file", old.pid_file != new.pid_file),
        ("control", old.control != new.control),
        ("supervision", old.supervision != new.supervision),
        ("connections-max", before.limits.connections_max != now.limits.connections_max),
    ];
    list.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).collect()
}
