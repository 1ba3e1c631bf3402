//! Serves the settings that options of the command line stand for, in this process: the rest of `selvedge serve` and
//! `selvedge proxy`. The settings are read, compiled and served as those of a configuration file.

use crate::compile::ServingState;
use crate::config::model::Switch;
use crate::config::{self, Configuration, Problems, Sources};
use crate::listeners::ListenerSet;
use crate::process::{self, ListenError, ServingProcess};
use crate::site_urls::{ServedEndpoint, urls};
use crate::snapshot::{Predecessor, Refusal, Snapshot};
use crate::{log, reload};
use selvedge::{Driver, Server};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Interval at which changes of certificates and of the names of servers are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The options that settings stand for.
const OPTIONS: [(&str, &str); 12] = [
    ("listen", "`--listen`"),
    ("workers", "`--workers`"),
    ("access", "`--log`"),
    ("error", "`--error-log`"),
    ("trailing-slash", "`--trailing-slash`"),
    ("header", "`--header`"),
    ("header-add", "`--header`"),
    ("cors", "`--cors`"),
    ("basic-auth", "`--auth`"),
    ("error-page", "`--not-found`"),
    ("proxy", "`--to`"),
    ("host", "`--host`"),
];

/// What a command without a configuration reports.
pub(crate) struct Presentation<'a> {
    /// What is served, for the line of each URL.
    pub(crate) subject: String,
    /// Returns what to do if an address cannot be bound.
    pub(crate) listen_hint: fn(&ListenError) -> String,
    /// Is called with the URLs when the server has started.
    pub(crate) started: &'a dyn Fn(&[String]),
}

/// Reads the settings that the options of a command stand for.
///
/// # Errors
/// All problems, one a line.
pub(crate) fn read(command: &str, text: &str) -> Result<Configuration, String> {
    config::read(Path::new(command), &Options(text)).map_err(|problems| in_lines(&problems))
}

/// Serves until a signal ends it.
///
/// # Errors
/// If it cannot start.
pub(crate) fn run(mut configuration: Configuration, driver: Driver, shown: &Presentation<'_>) -> Result<(), String> {
    let workers = reload::workers(&configuration.settings);
    let serving = Arc::new(ServingProcess::without_commands(workers));
    let listeners = ListenerSet::default().plan_change(&serving, &configuration.settings.listeners).map_err(|all| {
        let line = |error: &ListenError| format!("{}{}", error.why, (shown.listen_hint)(error));
        all.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    let state = ServingState::default();
    let started = Predecessor::Start { state: state.clone(), configuration_before: 0 };
    let snapshot = Snapshot::prepare(&mut configuration, started, &Options(""), process::connect);
    let snapshot = snapshot.map_err(|refusal| refusal_in_lines(&refusal))?;
    let (endpoints, listeners) = listeners.into_parts();
    serving.set_shutdown_timeout(snapshot.limits().shutdown_timeout);
    snapshot.apply_automatic_certificates();
    snapshot.observe_upstreams();
    start_threads(&configuration, state);
    snapshot.wait_for_names();
    let server = snapshot.server(Server::from_listeners(listeners, workers), &endpoints).driver(driver);
    let running = server.serve_each(snapshot.service(workers, &endpoints));
    let running = running.map_err(|error| format!("cannot start: {error}"))?;
    // Before the line that reports readiness, because a client may act on that line.
    let reopener = snapshot.logs.reopener();
    process::obey_signals(running.handle(), serving.clone(), move || reopener.reopen())
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    let urls = urls(&served_endpoints(&configuration, &endpoints));
    for url in &urls {
        log::print_line(&format!("serving {} on {url}", shown.subject));
    }
    (shown.started)(&urls);
    let live = Arc::new(Mutex::new(Some(snapshot)));
    let logged = live.clone();
    thread::spawn(move || log_events(&logged));
    running.join();
    serving.finish();
    let last = live.lock().unwrap_or_else(PoisonError::into_inner).take();
    let logs = last.map(|snapshot| snapshot.logs.clone());
    if let Some(logs) = logs.and_then(Arc::into_inner) {
        logs.flush_and_join();
    }
    Ok(())
}

/// Starts the threads that the settings need.
fn start_threads(configuration: &Configuration, state: ServingState) {
    let ServingState { automatic, resolver, .. } = state;
    let settings = &configuration.settings;
    if !settings.upstreams.is_empty() {
        thread::spawn(move || resolver.run());
    }
    if settings.listeners.iter().any(|listener| listener.tls == Switch::On) {
        thread::spawn(move || automatic.run());
    }
}

/// Logs what happens to certificates and names until the server has ended.
fn log_events(live: &Mutex<Option<Snapshot>>) {
    loop {
        match &*live.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(snapshot) => {
                snapshot.log_certificate_events();
                snapshot.log_name_events();
            }
            None => return,
        }
        thread::sleep(LOG_INTERVAL);
    }
}

fn served_endpoints(configuration: &Configuration, set: &ListenerSet) -> Vec<ServedEndpoint> {
    let listeners = &configuration.settings.listeners;
    let with_tls = set.endpoints_with_tls(listeners);
    let is_ipv6_only = listeners.iter().any(|listener| listener.is_ipv6_only);
    let endpoint = |endpoint: &selvedge::Endpoint| ServedEndpoint {
        endpoint: endpoint.clone(),
        scheme: if with_tls.contains(endpoint) { "https" } else { "http" },
        serves_ipv4: !is_ipv6_only,
    };
    set.endpoints().map(endpoint).collect()
}

fn refusal_in_lines(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Problems(problems) => in_lines(problems),
        Refusal::Plain(text) => text.clone(),
    }
}

/// Returns the problems without positions in a text that the user has not written.
fn in_lines(problems: &Problems) -> String {
    problems.messages(option_of).collect::<Vec<_>>().join("\n")
}

/// Returns the option that a line of settings stands for.
fn option_of(line: &str) -> Option<&'static str> {
    let setting = line.split_whitespace().next()?;
    OPTIONS.iter().find(|(name, _)| *name == setting).map(|(_, option)| *option)
}

/// The settings that the options stand for.
struct Options<'t>(&'t str);

impl Sources for Options<'_> {
    fn text(&self, _: &Path) -> Result<String, String> {
        Ok(self.0.to_owned())
    }

    fn matching_files(&self, _: &Path, _: &str) -> Result<Vec<PathBuf>, String> {
        Ok(Vec::new())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}
