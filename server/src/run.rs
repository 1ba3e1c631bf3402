//! `selvedge run`, from top to bottom.

use crate::certificates::unix_now;
use crate::cli::{RunArgs, ServedNames};
use crate::compile::ServingState;
use crate::config::model;
use crate::config_path;
use crate::log;
use crate::log::config::Level;
use crate::metrics::{MetricsData, MetricsServer};
use crate::preflight::CheckScope;
use crate::process::{
    self, ControlHandler, ControlReply, RunMode, ServingProcess, StartCgiPrograms, StartError, StartedPrograms,
    StartedRunner, StatusFormat, StopMode,
};
use crate::recorder::{LastQuery, Recorder};
use crate::reload::{self, LiveServer, ReloadSource};
use crate::remote_control::{RemoteCommands, RemoteControl};
use crate::site::{MetricsSlot, StatusFeed};
use crate::snapshot::Refusal;
use crate::status_page::{CertificateExpiry, LiveFacts, PageFacts, PageMaker};
use crate::{certificate_status, check, explanation, last_requests};
use selvedge::{ExitCause, Handle};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the sandboxed directories and the files of certificates are checked for changes. A check of 10,000
/// folders takes about 1 % of a core.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which expiring certificates are logged.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How long the end of the process waits for the collector of traces.
const SPANS_TIMEOUT: Duration = Duration::from_secs(1);

/// Reply to commands after the end.
const STOPPED: &str = "the server has stopped";

/// Runs a configuration: as the supervisor, or as the serving process.
pub(crate) fn run(options: &RunArgs) -> ExitCode {
    process::raise_descriptor_limit();
    let file = match config_path::find(&options.config) {
        Ok(file) => file,
        Err(problem) => return print_refusal(&Refusal::Plain(problem)),
    };
    let scope = if process::is_supervised() { CheckScope::Supervised } else { CheckScope::All };
    let mut configuration = match reload::read(&file, scope) {
        Ok(configuration) => configuration,
        Err(refusal) => return print_refusal(&refusal),
    };
    let workers = reload::workers(&configuration.settings);
    let driver = options.driver.unwrap_or_else(|| reload::driver(&configuration.settings));
    let (serving, programs) = match process::start(&configuration.settings, workers) {
        Ok(RunMode::Serve(serving, programs)) => (Arc::new(*serving), programs),
        Ok(RunMode::Ended(code)) => return code,
        Err(StartError::Listen(problems)) => {
            return print_refusal(&reload::cannot_listen(problems, &mut configuration));
        }
        Err(StartError::Other(problem)) => return print_refusal(&Refusal::Plain(problem)),
    };
    let StartedPrograms { approval, cgi } = programs;
    let recorder = start_recorder(workers, &serving);
    let state = serving_state(&serving, cgi, recorder.clone());
    let started = reload::start(&file, configuration, driver, &serving, (process::connect, state.clone()));
    let (live, running) = match started {
        Ok(started) => started,
        Err(refusal) => {
            let code = print_refusal(&refusal);
            serving.finish();
            return code;
        }
    };
    let endpoints = live.endpoint_texts();
    let (status_feed, exporter) = (state.status_feed.clone(), state.exporter.clone());
    let (live, handle) = (Mutex::new(Some(live)), running.handle());
    let commands = Arc::new(ServerCommands { live, handle, recorder, status_feed });
    commands.start_status_pages();
    let metrics_slot = state.metrics.clone();
    if let Err(problem) = serving.start_commands(commands.clone()) {
        return print_refusal(&Refusal::Plain(problem));
    }
    if let Err(error) = start_threads(&commands, approval, state) {
        return print_refusal(&Refusal::Plain(format!("cannot start: {error}")));
    }
    let remote = commands.live().as_ref().and_then(LiveServer::remote_control).map(|endpoint| endpoint.parts());
    let remote = match remote.map(|parts| RemoteControl::start(parts, commands.clone())).transpose() {
        Ok(remote) => remote,
        Err(error) => return print_refusal(&Refusal::Plain(format!("cannot accept remote commands: {error}"))),
    };
    let metrics = match start_metrics(&commands, &metrics_slot) {
        Ok(metrics) => metrics,
        Err(error) => return print_refusal(&Refusal::Plain(format!("cannot start to serve metrics: {error}"))),
    };
    commands.live().iter().for_each(LiveServer::wait_for_names);
    serving.ready();
    commands.live().iter().for_each(LiveServer::remove_unlisted_listeners);
    report_ready(ready_lines(options, &file, &endpoints), &commands, metrics.as_ref());
    let exit_cause = running.join();
    drop((remote, metrics));
    exporter.stop(SPANS_TIMEOUT);
    serving.mark_drained();
    if let Some(mut live) = commands.live().take() {
        live.record_counts();
        live.finish();
    }
    serving.finish();
    match exit_cause {
        ExitCause::Stopped => ExitCode::SUCCESS,
        ExitCause::WorkerPanicked => ExitCode::FAILURE,
    }
}

/// Returns the lines that report readiness: one for each URL.
fn ready_lines(options: &RunArgs, file: &Path, endpoints: &[String]) -> Vec<String> {
    match &options.served {
        Some(ServedNames { subject, names }) => {
            names.iter().map(|name| format!("serving {subject} on https://{name}/")).collect()
        }
        None => endpoints.iter().map(|endpoint| format!("serving {} on {endpoint}", file.display())).collect(),
    }
}

/// Reports where clients reach the server, with these lines, its remote commands and its metrics.
fn report_ready(mut lines: Vec<String>, commands: &ServerCommands, metrics: Option<&MetricsServer>) {
    let live = commands.live();
    let remote = live.as_ref().and_then(LiveServer::remote_control);
    lines.extend(remote.map(|remote| format!("serving remote commands on https://{}/", remote.authority())));
    drop(live);
    lines.extend(metrics.map(|metrics| format!("serving metrics on {}", metrics.text())));
    lines.iter().for_each(|line| log::print_line(line));
}

/// Sets what formats the metrics, and starts their listener if the configuration has one.
fn start_metrics(commands: &Arc<ServerCommands>, slot: &Arc<MetricsSlot>) -> io::Result<Option<MetricsServer>> {
    let commands_of_slot = Arc::downgrade(commands);
    slot.set(Box::new(move |format| Some(commands_of_slot.upgrade()?.metrics()?.format(format))));
    let endpoint = commands.live().as_ref().and_then(|live| live.metrics_endpoint.clone());
    endpoint.map(|endpoint| endpoint.start(slot.clone())).transpose()
}

/// Creates the flight recorder, and hands its memory to the supervisor. Without memory, the server runs without one.
fn start_recorder(workers: usize, serving: &ServingProcess) -> Option<Arc<Recorder>> {
    match Recorder::new(workers) {
        Ok(recorder) => {
            process::hand_over_recorder(serving, recorder.as_fd());
            Some(Arc::new(recorder))
        }
        Err(error) => {
            log::print_line(&format!("selvedge: no memory for the flight recorder: {error}"));
            None
        }
    }
}

/// Returns what serving has beside the configuration.
fn serving_state(
    serving: &ServingProcess,
    cgi: Option<Arc<dyn StartCgiPrograms>>,
    recorder: Option<Arc<Recorder>>,
) -> ServingState {
    let cookie_secret = serving.start_info().cookie_secret.clone();
    ServingState { cgi, cookie_secret, recorder, ..ServingState::default() }
}

/// Starts the threads that look at files, resolve names and order certificates.
fn start_threads(
    commands: &Arc<ServerCommands>,
    programs: Option<StartedRunner>,
    state: ServingState,
) -> io::Result<()> {
    let checker = commands.clone();
    thread::Builder::new().name("selvedge-look".to_owned()).spawn(move || checker.check_files())?;
    let ServingState { automatic, resolver, .. } = state;
    thread::Builder::new().name("selvedge-dns".to_owned()).spawn(move || resolver.run())?;
    if let Some(programs) = programs {
        automatic.run_programs_with(Arc::new(programs.connect()?));
    }
    thread::Builder::new().name("selvedge-acme".to_owned()).spawn(move || automatic.run())?;
    Ok(())
}

fn print_refusal(refusal: &Refusal) -> ExitCode {
    process::exit_message(&refusal.lines().join("\n"));
    check::print_refusal(refusal)
}

/// Implements the control commands for a running server.
struct ServerCommands {
    /// `None` after the server has stopped.
    live: Mutex<Option<LiveServer>>,
    handle: Handle,
    recorder: Option<Arc<Recorder>>,
    /// The streams of live pages.
    status_feed: Arc<StatusFeed>,
}

impl ServerCommands {
    fn live(&self) -> MutexGuard<'_, Option<LiveServer>> {
        // A panic during a reload leaves either configuration in force.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what metrics are made of; `None` after the server has stopped.
    fn metrics(&self) -> Option<MetricsData> {
        self.live().as_ref().map(LiveServer::metrics)
    }

    /// Sets what makes live pages.
    fn start_status_pages(self: &Arc<Self>) {
        let live = StateOfServer(Arc::downgrade(self));
        self.status_feed.set(Box::new(PageMaker::new(live, self.recorder.clone())));
    }

    fn reload_from(&self, text: Option<String>) -> ControlReply {
        let Some(live) = &mut *self.live() else { return ControlReply::Refused(STOPPED.to_owned()) };
        match live.reload_and_log(text.map_or(ReloadSource::File, ReloadSource::Text)) {
            Ok(reloaded) => {
                let lines = reloaded.lines();
                if !live.logs_to_standard_error(model::Level::Info) {
                    log::print_line(&format!("reloaded: {}", lines.join("; ")));
                }
                ControlReply::Done(reloaded.report())
            }
            Err(refusal) => {
                if !live.logs_to_standard_error(model::Level::Error) {
                    log::print_line(&format!("not reloaded: {}", refusal.lines().join("; ")));
                }
                ControlReply::Refused(format!("not reloaded, so all is as it was:\n{refusal}"))
            }
        }
    }

    /// Checks the sandboxed directories and the files of certificates periodically until the server has stopped.
    fn check_files(&self) {
        let mut expiry_checked: Option<Instant> = None;
        loop {
            match &mut *self.live() {
                Some(live) => {
                    live.check_roots();
                    live.refresh_files();
                    live.reload_changed_lists();
                    live.log_events();
                    live.record_counts();
                    if expiry_checked.is_none_or(|at| at.elapsed() >= EXPIRY_CHECK_INTERVAL) {
                        expiry_checked = Some(Instant::now());
                        live.warn_of_expiry();
                    }
                }
                None => return,
            }
            thread::sleep(FILE_CHECK_INTERVAL);
        }
    }
}

/// The state of a server that runs, for its live pages.
struct StateOfServer(Weak<ServerCommands>);

impl LiveFacts for StateOfServer {
    fn facts(&self) -> Option<PageFacts> {
        self.0.upgrade()?.live().as_ref().map(LiveServer::page_facts)
    }

    fn certificates(&self) -> Option<CertificateExpiry> {
        self.0.upgrade()?.live().as_ref().map(LiveServer::certificate_expiry)
    }
}

impl RemoteCommands for ServerCommands {
    fn reload(&self, text: Option<String>) -> ControlReply {
        self.reload_from(text)
    }

    fn status(&self, format: StatusFormat) -> String {
        ControlHandler::status(self, format)
    }

    fn certificates(&self, format: StatusFormat) -> String {
        ControlHandler::certificates(self, format)
    }

    fn log(&self, level: Level, name: &'static str, text: String) {
        self.live().iter().for_each(|live| live.log_remote(level, name, text.clone()));
    }
}

impl ControlHandler for ServerCommands {
    fn reload(&self) -> ControlReply {
        self.reload_from(None)
    }

    fn status(&self, format: StatusFormat) -> String {
        match &*self.live() {
            Some(live) => live.status().format(format),
            None => STOPPED.to_owned(),
        }
    }

    fn certificates(&self, format: StatusFormat) -> String {
        match &*self.live() {
            Some(live) => certificate_status::format(&live.certificate_status(), format, unix_now()),
            None => STOPPED.to_owned(),
        }
    }

    fn last(&self, query: &LastQuery) -> String {
        match &self.recorder {
            Some(recorder) => last_requests::report(recorder.numbers(), query),
            None => "the system provided no memory for the flight recorder".to_owned(),
        }
    }

    fn explain(&self, format: StatusFormat, request: &str) -> ControlReply {
        let request = match serde_json::from_str(request) {
            Ok(request) => request,
            Err(error) => return ControlReply::Refused(format!("no request to explain: {error}")),
        };
        // Without the lock, because the files of a request may be on a slow disk.
        let parts = self.live().as_ref().map(LiveServer::explainable);
        let Some((explainable, number, file)) = parts else { return ControlReply::Refused(STOPPED.to_owned()) };
        let source = format!("configuration {number} of the running server, {}", file.display());
        match explanation::explain(&explainable, &request) {
            Ok(explanation) => ControlReply::Done(explanation.format(format, &source, file.parent())),
            Err(problem) => ControlReply::Refused(problem),
        }
    }

    fn settings(&self) -> String {
        let settings = self.live().as_ref().map(LiveServer::settings_in_force);
        settings.map_or_else(|| STOPPED.to_owned(), |settings| settings.to_string())
    }

    fn stop_listening(&self) {
        self.live().iter().for_each(LiveServer::stop_listening);
    }

    fn lasting_responses(&self) -> usize {
        self.handle.leased_responses()
    }

    fn reopen_logs(&self) {
        self.live().iter_mut().for_each(LiveServer::reopen_logs);
    }

    fn stop(&self, mode: StopMode) {
        // Otherwise a page would go on to show this process.
        self.status_feed.end();
        match mode {
            StopMode::HandOver => self.handle.hand_over(),
            StopMode::Graceful => self.handle.stop(),
            StopMode::Immediate => self.handle.stop_now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ConfigArgs;
    use crate::syntax::HostName;

    #[test]
    fn names_are_reported_instead_of_listeners() {
        let config = ConfigArgs { file: None, config: None };
        let mut options = RunArgs { config, driver: None, served: None };
        let endpoints = ["http://127.0.0.1:80/".to_owned()];
        let lines = |options: &RunArgs| ready_lines(options, Path::new("/etc/a.kdl"), &endpoints);
        assert_eq!(lines(&options), ["serving /etc/a.kdl on http://127.0.0.1:80/"]);
        let names = ["a.example", "b.example"].map(|name| name.parse::<HostName>().unwrap()).to_vec();
        options.served = Some(ServedNames { subject: "site".to_owned(), names });
        assert_eq!(lines(&options), ["serving site on https://a.example/", "serving site on https://b.example/"]);
    }
}
