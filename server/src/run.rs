//! `selvedge serve` and `selvedge run`, from top to bottom.

use crate::check;
use crate::cli::{AccessLog, Run, Serve};
use crate::log::plan::{AccessPlan, Destination, ErrorForm, ErrorPlan, Level, LogPlan, SitePlan};
use crate::log::{self, LogObserver, Logs};
use crate::process::{self, Order};
use crate::reload::{self, Live, Reloaded};
use crate::site::{Options, Root, Site};
use selvedge::{Ending, Endpoint, Handle, Limits, Server};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Serves a directory until a signal ends it.
pub(crate) fn serve(options: &Serve) -> Result<(), String> {
    process::raise_descriptor_limit();
    let root = Root::open(&options.dir).map_err(|error| format!("cannot serve {}: {error}", options.dir.display()))?;
    if !root.follows_links() {
        log::say("selvedge: there is no openat2 here (Linux 5.6), so symbolic links are not followed");
    }
    let workers = match options.workers {
        Some(workers) => usize::from(workers),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let limits = Limits::default();
    let server =
        Server::bind_with_workers(&options.listen, workers).map_err(|error| cannot_listen(&options.listen, &error))?;

    let logs = Logs::start(&log_plan(options), process::connect).map_err(|problem| problem.to_string())?;
    let site = Options { listing: options.listing, workers };
    let root = Arc::new(root);
    let running = server
        .observe(LogObserver::new(&logs, &limits))
        .limits(limits)
        .serve_each(move || Site::new(root.clone(), site))
        .map_err(|error| format!("cannot start: {error}"))?;

    // Before the line that says it is ready, which is when somebody may want to end it.
    let reopener = logs.reopener();
    process::obey_signals(running.handle(), &[Order::ReopenLogs], move |_| reopener.reopen())
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    for address in running.addresses() {
        log::say(&format!("serving {} on http://{address}/", options.dir.display()));
    }
    running.join();
    logs.finish();
    Ok(())
}

/// Serves what a configuration says until a signal ends it.
pub(crate) fn run(options: &Run) -> ExitCode {
    process::raise_descriptor_limit();
    let (live, running) = match reload::begin(&options.config, process::connect) {
        Ok(begun) => begun,
        Err(refusal) => return check::refuse(&refusal),
    };
    let endpoints: Vec<String> = live.places().endpoints().map(endpoint_text).collect();
    let live = Arc::new(Mutex::new(Some(live)));
    if let Err(error) = obey(&live, running.handle()) {
        log::say(&format!("selvedge: cannot watch signals: {error}"));
        return ExitCode::FAILURE;
    }
    for endpoint in endpoints {
        log::say(&format!("serving {} on {endpoint}", options.config.display()));
    }
    let ending = running.join();
    if let Some(live) = locked(&live).take() {
        live.finish();
    }
    match ending {
        Ending::Stopped => ExitCode::SUCCESS,
        Ending::WorkerLost => ExitCode::FAILURE,
    }
}

fn endpoint_text(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Inet(address) => format!("http://{address}/"),
        unix @ Endpoint::Unix(_) => unix.to_string(),
    }
}

/// Obeys signals from now on. Those to reload that come while one is obeyed are one more.
fn obey(live: &Arc<Mutex<Option<Live>>>, handle: Handle) -> io::Result<()> {
    let (ask, asked) = sync_channel(1);
    let reloading = live.clone();
    thread::Builder::new().name("selvedge-reload".to_owned()).spawn(move || {
        while asked.recv().is_ok() {
            if let Some(live) = locked(&reloading).as_mut() {
                reload_once(live);
            }
        }
    })?;
    let live = live.clone();
    process::obey_signals(handle, &[Order::ReopenLogs, Order::Reload], move |order| match order {
        Order::ReopenLogs => locked(&live).iter().for_each(Live::reopen_logs),
        // One that waits already will see all that has been written by now.
        Order::Reload => drop(ask.try_send(())),
    })
}

fn reload_once(live: &mut Live) {
    match live.reload_and_tell() {
        Ok(Reloaded { generation, earlier, at_next_start }) => {
            let earlier = match earlier {
                0 => String::new(),
                count => format!(", {count} earlier with connections"),
            };
            let later = match at_next_start.is_empty() {
                true => String::new(),
                false => format!("; what has changed of {} counts from the next start on", at_next_start.join(", ")),
            };
            log::say(&format!("reloaded: configuration {generation}{earlier}{later}"));
        }
        Err(refusal) => log::say(&format!("not reloaded: {} wrong, see the error log", refusal.lines().len())),
    }
}

fn locked(live: &Mutex<Option<Live>>) -> MutexGuard<'_, Option<Live>> {
    // A reload that panicked has changed nothing, or all.
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One site with one access log, or none, and the error log.
fn log_plan(options: &Serve) -> LogPlan {
    let to = |path: &Option<PathBuf>, otherwise| path.as_ref().map_or(otherwise, Destination::file);
    let access = match &options.log {
        AccessLog::Off => vec![],
        AccessLog::In(format) => vec![AccessPlan {
            destination: to(&options.access_log, Destination::StandardOutput),
            format: format.clone(),
        }],
    };
    let site = SitePlan { name: String::new(), access: (0..access.len()).collect(), error: None };
    let destination = to(&options.error_log, Destination::StandardError);
    let error = ErrorPlan { destination, form: ErrorForm::Text, level: Level::Info };
    LogPlan { access, sites: vec![site], error, site_errors: Vec::new() }
}

/// What is wrong with an address, and what was probably meant.
fn cannot_listen(address: &str, error: &io::Error) -> String {
    let hint = match address.trim_start_matches(':').parse::<u16>() {
        Ok(port) => format!("; an address is needed too, as in 127.0.0.1:{port}"),
        Err(_) => String::new(),
    };
    format!("cannot listen on {address}: {error}{hint}")
}
