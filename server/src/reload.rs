//! Reloads of a running server, as transactions: everything new is read, compiled, opened and bound first. If any
//! step fails, nothing has changed.

mod list_changes;
mod live_status;
mod sandboxed_files;

use crate::certificates::{CertificateFolder, CertificateStatus};
use crate::compile::ServingState;
use crate::config::model::{self, Settings};
use crate::config::{self, Configuration, MachineRequirementKind, Problem};
use crate::explanation::Explainable;
use crate::listeners::ListenerSet;
use crate::log::config::Level;
use crate::log::{self, Connect, LogObserver, Logs};
use crate::metrics::MetricsEndpoint;
use crate::preflight::{self, CheckScope, Disk};
use crate::process::{
    ActiveSandbox, Confinement, ControlReply, Coverage, FileId, ListenError, PanicWatch, Sandbox, ServingProcess,
    UnreadableFiles, report_configuration,
};
use crate::reload_outcome::ReloadOutcome;
use crate::remote_control::RemoteEndpoint;
use crate::site::SiteService;
use crate::snapshot::{Predecessor, Refusal, RetiredSnapshot, Snapshot};
use crate::status_resources::RateHistory;
use crate::watched_lists::WatchedLists;
use crate::{certificates, compile, config_diff, expectations};
use sandboxed_files::SandboxedFiles;
use selvedge::{AppHandle, Driver, Endpoint, Handle, Server};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Why a configuration without sites does not replace one with sites. An editor that is writing the file may have
/// truncated it.
const NO_SITE: &str = "the new configuration has no sites, and may be incomplete";

/// Why a configuration in a request is refused.
const TOO_NARROW: &str = "the configuration needs files or programs that this process may not use";

/// A running server with what a reload needs.
#[derive(Debug)]
pub(crate) struct LiveServer {
    file: PathBuf,
    connect: Connect,
    /// As at the start.
    workers: usize,
    /// The connection limit, as at the start.
    connections_max: usize,
    started_at: Instant,
    /// The start, since 1970.
    started: Duration,
    serving_process: Arc<ServingProcess>,
    /// The sandbox of this process; `None` if it has none.
    active_sandbox: Option<ActiveSandbox>,
    /// What this process was started for. Other processes run its programs, whether or not it has a sandbox.
    sandbox_at_start: Sandbox,
    /// Replaced directories for which a new process was already tried.
    replaced_directories: Vec<FileId>,
    /// The settings at the start.
    settings_at_start: Arc<Settings>,
    handle: Handle,
    app_handle: AppHandle<SiteService, LogObserver>,
    listeners: ListenerSet,
    snapshot: Snapshot,
    /// The lists of the configuration, which are reloaded when they change.
    lists: WatchedLists,
    /// Where remote commands are accepted.
    remote_control: Option<RemoteEndpoint>,
    /// Where metrics are read.
    pub(crate) metrics_endpoint: Option<MetricsEndpoint>,
    /// Replaced snapshots that still have connections.
    earlier: Vec<RetiredSnapshot>,
    rates: RateHistory,
    panics: PanicWatch,
}

/// What a reload reads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReloadSource {
    /// The file of the configuration.
    File,
    /// A text instead of it.
    Text(String),
    /// The running configuration, with its lists as they are now.
    RunningWithNewLists,
}

impl ReloadSource {
    fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::File | Self::RunningWithNewLists => None,
        }
    }
}

/// Reads a configuration and checks its requirements.
///
/// # Errors
/// All problems.
pub(crate) fn read(file: &Path, scope: CheckScope) -> Result<Configuration, Refusal> {
    let configuration = config::read(file, &Disk).map_err(|problems| {
        let of_machine = preflight::problems(problems.requirements(), scope);
        Refusal::Problems(problems.with(of_machine))
    })?;
    let problems = preflight::problems(&configuration.requirements, scope);
    refuse(problems, configuration)
}

/// Returns the configuration, unless it has problems.
fn refuse(problems: Vec<Problem>, mut configuration: Configuration) -> Result<Configuration, Refusal> {
    if problems.is_empty() { Ok(configuration) } else { Err(Refusal::of(problems, &mut configuration)) }
}

/// Returns the driver of a configuration.
pub(crate) fn driver(settings: &Settings) -> Driver {
    match settings.process.driver {
        model::Driver::Auto => Driver::Auto,
        model::Driver::Epoll => Driver::Epoll,
        model::Driver::IoUring => Driver::IoUring,
    }
}

/// Starts to serve a configuration.
///
/// # Errors
/// All problems; nothing stays open then.
pub(crate) fn start(
    file: &Path,
    mut configuration: Configuration,
    driver: Driver,
    serving_process: &Arc<ServingProcess>,
    (connect, state): (Connect, ServingState),
) -> Result<(LiveServer, selvedge::RunningServer), Refusal> {
    create_certificate_folder(&mut configuration)?;
    let unreadable = UnreadableFiles::find(&configuration.settings.process, configuration.texts.files());
    let sandbox = Sandbox::of(&configuration);
    let active_sandbox = ActiveSandbox::of(sandbox.clone());
    let confinement = serving_process.confine(&sandbox).map_err(Refusal::Plain)?;
    if serving_process.start_info().tries_expectations {
        configuration = refuse(expectations::problems_at_start(&configuration), configuration)?;
    }
    let configuration_before = serving_process.start_info().configuration_before;
    let predecessor = Predecessor::Start { state, configuration_before };
    let snapshot = Snapshot::prepare(&mut configuration, predecessor, &Disk, connect)?;
    snapshot.apply_automatic_certificates();
    snapshot.apply_traces();
    snapshot.observe_upstreams();
    if let Some(warning) = confinement.warning() {
        snapshot.logs.log(Level::Warn, "Sandbox", warning.to_owned());
    }
    unreadable.iter().for_each(|unreadable| warn_of_unreadable(unreadable, &snapshot));
    for message in &serving_process.start_info().notes {
        snapshot.logs.log_separately(Level::Error, "Restarted", message.clone());
    }
    let (workers, lists) = (workers(&snapshot.settings), WatchedLists::of(&configuration, None));
    let remote_control = RemoteEndpoint::bind(&snapshot, serving_process);
    let remote_control = remote_control.map_err(|problem| cannot_listen(vec![problem], &mut configuration))?;
    let metrics_endpoint = MetricsEndpoint::bind(&snapshot, serving_process);
    let metrics_endpoint = metrics_endpoint.map_err(|problem| cannot_listen(vec![problem], &mut configuration))?;
    let of_control = remote_control.iter().map(|remote| remote.address().clone());
    let of_metrics = metrics_endpoint.iter().map(|endpoint| endpoint.address().clone());
    let beside = ListenerSet::beside(of_control.chain(of_metrics).collect());
    let listeners = beside.plan_change(serving_process, &snapshot.settings.listeners);
    let listeners = listeners.map_err(|problems| cannot_listen(problems, &mut configuration))?;
    let (places, listeners) = listeners.into_parts();
    let server = snapshot.server(Server::from_listeners(listeners, workers), &places).driver(driver);
    let started = server.serve_replaceable(snapshot.service(workers, &places));
    let (running, app_handle) = started.map_err(|error| Refusal::Plain(format!("cannot start: {error}")))?;
    report_configuration(serving_process, snapshot.number);
    let live = LiveServer {
        file: file.to_owned(),
        connect,
        workers,
        connections_max: snapshot.connections_max(),
        started_at: Instant::now(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        serving_process: serving_process.clone(),
        active_sandbox: (confinement != Confinement::None).then_some(active_sandbox),
        sandbox_at_start: sandbox,
        replaced_directories: Vec::new(),
        settings_at_start: snapshot.settings.clone(),
        handle: running.handle(),
        app_handle,
        listeners: places,
        snapshot,
        lists,
        remote_control,
        metrics_endpoint,
        earlier: Vec::new(),
        rates: RateHistory::default(),
        panics: PanicWatch::default(),
    };
    Ok((live, running))
}

/// Warns in the error log and on standard error.
fn warn_of_unreadable(unreadable: &UnreadableFiles, snapshot: &Snapshot) {
    let text = format!("{}; `{}` permits it", unreadable.consequence(), unreadable.command());
    if !snapshot.settings.logs.error.is_on_standard_error(model::Level::Warn) {
        log::print_line(&format!("selvedge: warning: {text}"));
    }
    snapshot.logs.log(Level::Warn, "ConfigurationUnreadable", text);
}

/// Creates the folder of certificates, if one is needed. The sandbox can only permit a folder that exists.
fn create_certificate_folder(configuration: &mut Configuration) -> Result<(), Refusal> {
    let folder = configuration.requirements.iter().find_map(|requirement| match &requirement.kind {
        MachineRequirementKind::CertificateFolder(path) => Some((path.clone(), requirement.at)),
        _ => None,
    });
    let Some((path, at)) = folder else { return Ok(()) };
    match CertificateFolder::open(&path) {
        Ok(_) => Ok(()),
        Err(error) => {
            let what = format!("cannot create the folder {}: {error}", path.display());
            let instead = "create it, and make the user of the server its owner".to_owned();
            Err(Refusal::of(vec![Problem::with_suggestion(at, what, instead)], configuration))
        }
    }
}

/// Returns the number of workers of a configuration.
pub(crate) fn workers(settings: &Settings) -> usize {
    settings.process.workers.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

impl LiveServer {
    /// Returns the address of each listener, as clients use it.
    pub(crate) fn endpoint_texts(&self) -> Vec<String> {
        let with_tls = self.listeners.endpoints_with_tls(&self.snapshot.settings.listeners);
        let text = |endpoint: &Endpoint| match endpoint {
            Endpoint::Inet(address) if with_tls.contains(endpoint) => format!("https://{address}/"),
            Endpoint::Inet(address) => format!("http://{address}/"),
            unix @ Endpoint::Unix(_) => unix.to_string(),
        };
        self.listeners.endpoints().map(text).collect()
    }

    /// Releases sockets that the configuration does not name. Call it when the process is ready, because another
    /// process may serve there until then.
    pub(crate) fn remove_unlisted_listeners(&self) {
        self.listeners.remove_unlisted(&self.serving_process, &self.handle);
    }

    /// Stops accepting, because another process serves.
    pub(crate) fn stop_listening(&self) {
        self.handle.remove_listeners(self.listeners.endpoints());
        self.snapshot.carried.end_shared_work();
        self.remote_control.iter().for_each(RemoteEndpoint::stop);
        self.metrics_endpoint.iter().for_each(MetricsEndpoint::stop);
    }

    /// Reloads the configuration.
    ///
    /// # Errors
    /// All problems; nothing has changed then.
    pub(crate) fn reload(&mut self, source: ReloadSource) -> Result<ReloadOutcome, Refusal> {
        // A new process would read the file.
        let is_text = matches!(source, ReloadSource::Text(_));
        let is_running = source == ReloadSource::RunningWithNewLists;
        let replaced = source.into_text().map(|text| (self.file.as_path(), text));
        let sources = SandboxedFiles { replaced, ..SandboxedFiles::default() };
        let running = self.lists.running(&sources);
        let configuration = match config::read(&self.file, if is_running { &running } else { &sources }) {
            Ok(configuration) => configuration,
            // A new process may be able to read it, or reports that it is unreadable.
            Err(_)
                if !is_text
                    && sources.is_denied.get()
                    && self.active_sandbox.is_some()
                    && !self.serving_process.is_unsupervised() =>
            {
                return self.replace_process(None);
            }
            Err(problems) => return Err(Refusal::Problems(problems)),
        };
        if configuration.settings.sites.is_empty() && !self.snapshot.settings.sites.is_empty() {
            return Err(Refusal::Plain(NO_SITE.to_owned()));
        }
        let required = Sandbox::of(&configuration);
        if self.coverage_of(&required) == Coverage::TooNarrow {
            return match is_text {
                true => Err(Refusal::Plain(format!("{TOO_NARROW}: write it to {}, and reload", self.file.display()))),
                false => self.replace_process(Some(&configuration.settings)),
            };
        }
        let problems = preflight::problems(&configuration.requirements, CheckScope::ServingProcess);
        if !problems.is_empty() && !is_text && self.new_process_can_read_more(&configuration.settings) {
            return self.replace_process(Some(&configuration.settings));
        }
        let mut configuration = refuse(problems, configuration)?;
        let next = Snapshot::prepare(&mut configuration, Predecessor::Snapshot(&self.snapshot), &Disk, self.connect)?;
        let mut configuration = refuse(expectations::problems_at_start(&configuration), configuration)?;
        let listeners = self.listeners.plan_change(&self.serving_process, &next.settings.listeners);
        let listeners = listeners.map_err(|problems| cannot_listen(problems, &mut configuration))?;
        next.wait_for_names();
        let before = self.settings_in_force();
        let changes = config_diff::between(&before, &next.settings);
        let details = config_diff::details(&before, &next.settings);
        let at_next_start = config_diff::at_next_start(&before, &next.settings);
        // New listeners are bound, and clients that connect there wait until the next line but one: only the new
        // configuration knows whether a listener has TLS.
        self.snapshot.end_leases(&next);
        self.app_handle.replace(&next.app_version(self.workers, listeners.next()));
        let places = listeners.apply(&self.serving_process, &self.handle);
        self.serving_process.set_shutdown_timeout(next.limits().shutdown_timeout);
        self.earlier.push(self.snapshot.retire());
        self.snapshot = next;
        report_configuration(&self.serving_process, self.snapshot.number);
        self.lists = WatchedLists::of(&configuration, Some(&self.lists));
        self.snapshot.apply_automatic_certificates();
        self.snapshot.apply_traces();
        self.snapshot.observe_upstreams();
        if let (Some(remote), Some(host)) = (&self.remote_control, &self.snapshot.control_host) {
            remote.replace_host(host.clone());
        }
        // The previous snapshot is kept only by its connections.
        self.drop_unused_snapshots();
        self.listeners =
            places.map_err(|error| Refusal::Plain(format!("cannot listen on all new addresses: {error}")))?;
        let (generation, earlier) = (self.snapshot.number, self.earlier.len());
        Ok(ReloadOutcome::Applied { generation, earlier, changes, details, at_next_start })
    }

    /// Whether this process can serve a configuration with these files and programs. A process without a sandbox reaches
    /// all files, but no programs that were added since its start.
    fn coverage_of(&self, required: &Sandbox) -> Coverage {
        match &self.active_sandbox {
            Some(active_sandbox) => active_sandbox.covers(required),
            None => self.sandbox_at_start.covers_programs(required),
        }
    }

    /// Whether a new process, which begins with the privileges of the supervisor, could read certificates or keys that
    /// this one may not read.
    fn new_process_can_read_more(&self, settings: &Settings) -> bool {
        // A pipe is broken if the process that opens such files has ended.
        let is_denied = |error: io::Error| matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::BrokenPipe);
        let is_denied = |path: &PathBuf| certificates::read_file(path).is_err_and(is_denied);
        self.settings_at_start.process.user.is_some()
            && !self.serving_process.is_unsupervised()
            && settings.private_files().iter().any(is_denied)
    }

    /// Requests a new serving process, for these settings if they are known.
    fn replace_process(&self, settings: Option<&Settings>) -> Result<ReloadOutcome, Refusal> {
        let before = self.settings_in_force();
        let changes = settings.map(|settings| config_diff::between(&before, settings));
        match self.serving_process.replace_process() {
            ControlReply::Done(text) => {
                // If the settings are not known, no route is known to have changed.
                settings.inspect(|settings| self.snapshot.carried.end_leases_beside(settings));
                self.stop_listening();
                let details = settings.map(|settings| config_diff::details(&before, settings));
                Ok(ReloadOutcome::InNewProcess { text, changes, details: details.unwrap_or_default() })
            }
            ControlReply::Refused(text) => Err(Refusal::Plain(text)),
        }
    }

    /// Returns the settings in force: those of the configuration, and of the start where a change needs a restart.
    pub(crate) fn settings_in_force(&self) -> Settings {
        config_diff::in_force(&self.snapshot.settings, &self.settings_at_start)
    }

    /// Returns what requests are explained by, the number of the configuration in force, and its file.
    pub(crate) fn explainable(&self) -> (Explainable, u64, PathBuf) {
        let https_port = self.snapshot.https_port(&self.listeners);
        let explainable = Explainable { https_port, ..Explainable::from(&self.snapshot) };
        (explainable, self.snapshot.number, self.file.clone())
    }

    /// Checks whether a directory of the sandbox was replaced, for example the log folder. Then a new process has to
    /// serve. A replacement is tried once.
    pub(crate) fn check_roots(&mut self) {
        self.drop_unused_snapshots();
        // A process that was replaced or is stopping needs nothing new.
        let Some(active_sandbox) = self.active_sandbox.as_ref().filter(|_| !self.serving_process.is_shutting_down())
        else {
            return;
        };
        let replaced = active_sandbox.replaced_directories();
        if replaced.iter().all(|folder| self.replaced_directories.contains(folder)) {
            return;
        }
        self.replaced_directories = replaced;
        let (level, text) = match self.replace_process(None) {
            Ok(ReloadOutcome::InNewProcess { text, .. }) => (Level::Info, text),
            Ok(reloaded) => (Level::Info, reloaded.lines().join("; ")),
            Err(refusal) => {
                (Level::Error, format!("cannot start a process that can access it: {}", refusal.lines().join("; ")))
            }
        };
        let text = format!("a directory of the sandbox was replaced: {text}");
        // The error log may be in the replaced directory.
        log::print_line(&text);
        self.snapshot.logs.log(level, "FolderReplaced", text);
    }

    /// Reloads, and logs the result. Each reload has a line of its own, with the number of its configuration.
    pub(crate) fn reload_and_log(&mut self, source: ReloadSource) -> Result<ReloadOutcome, Refusal> {
        let done = self.reload(source);
        match &done {
            Ok(reloaded) => self.snapshot.logs.log_separately(Level::Info, "Reloaded", reloaded.lines().join("; ")),
            Err(refusal) => {
                let why = refusal.lines().join("; ");
                let text = format!("the configuration is unchanged: {why}");
                self.snapshot.logs.log_separately(Level::Error, "ReloadRefused", text);
            }
        }
        done
    }

    /// Whether the error log writes an event of this level to standard error.
    pub(crate) fn logs_to_standard_error(&self, level: model::Level) -> bool {
        self.snapshot.settings.logs.error.is_on_standard_error(level)
    }

    /// Returns where remote commands are accepted.
    pub(crate) fn remote_control(&self) -> Option<&RemoteEndpoint> {
        self.remote_control.as_ref()
    }

    /// Logs a remote command, or why a client cannot send one.
    pub(crate) fn log_remote(&self, level: Level, name: &'static str, text: String) {
        self.snapshot.logs.log(level, name, text);
    }

    /// Waits for the first look-up of each name of an upstream server.
    pub(crate) fn wait_for_names(&self) {
        self.snapshot.wait_for_names();
    }

    /// Loads certificates and users again whose files have changed.
    pub(crate) fn refresh_files(&self) {
        if self.serving_process.is_shutting_down() {
            return;
        }
        self.snapshot.refresh_certificates();
        self.snapshot.refresh_users();
    }

    /// Logs what has happened to the certificates that the server gets by itself, to the names of upstream servers, to the
    /// export of traces, and to the listener of metrics.
    pub(crate) fn log_events(&self) {
        self.snapshot.log_certificate_events();
        self.snapshot.log_name_events();
        self.snapshot.log_span_events();
        if let Some(text) = self.metrics_endpoint.as_ref().and_then(MetricsEndpoint::eviction_report) {
            self.snapshot.logs.log(Level::Warn, "MetricsConnectionsEvicted", text);
        }
    }

    /// Returns the state of the certificates that the server gets by itself.
    pub(crate) fn certificate_status(&self) -> Vec<CertificateStatus> {
        self.snapshot.certificate_status()
    }

    /// Logs a warning for each certificate that is not valid or soon will not be.
    pub(crate) fn warn_of_expiry(&self) {
        if self.serving_process.is_shutting_down() {
            return;
        }
        self.snapshot.warn_of_expiry();
    }

    /// Drops snapshots without connections, and so logs without writers.
    fn drop_unused_snapshots(&mut self) {
        self.earlier.retain(RetiredSnapshot::is_served);
    }

    /// Reopens all log files.
    pub(crate) fn reopen_logs(&mut self) {
        self.drop_unused_snapshots();
        self.all_logs().for_each(|logs| logs.reopener().reopen());
    }

    fn all_logs(&self) -> impl Iterator<Item = &Arc<Logs>> {
        self.earlier.iter().map(|earlier| &earlier.logs).chain([&self.snapshot.logs])
    }

    /// Waits until pending log lines are written. The server has stopped.
    pub(crate) fn finish(self) {
        let mut logs: Vec<_> = self.all_logs().cloned().collect();
        drop(self);
        while let Some(last) = logs.pop() {
            // Logs that several configurations share end with the last of them.
            if let Some(logs) = Arc::into_inner(last) {
                logs.flush_and_join();
            }
        }
    }
}

/// Reports addresses that cannot be bound at their settings.
pub(crate) fn cannot_listen(problems: Vec<ListenError>, configuration: &mut Configuration) -> Refusal {
    let problem = |ListenError { address, why }| {
        let at =
            compile::position_of(configuration, &MachineRequirementKind::ListenAddress(address)).unwrap_or_default();
        Problem::with_suggestion(at, why, String::new())
    };
    let problems = problems.into_iter().map(problem).collect();
    Refusal::of(problems, configuration)
}
