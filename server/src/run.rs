//! `selvedge serve`, from top to bottom.

use crate::cli::{AccessLog, Serve};
use crate::log::plan::{AccessPlan, Destination, ErrorForm, ErrorPlan, Level, LogPlan, SitePlan};
use crate::log::{self, LogObserver, Logs};
use crate::process;
use crate::site::{Options, Root, Site};
use selvedge::{Limits, Server};
use std::path::PathBuf;
use std::sync::Arc;
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
    process::obey_signals(running.handle(), logs.reopener())
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    for address in running.addresses() {
        log::say(&format!("serving {} on http://{address}/", options.dir.display()));
    }
    running.join();
    logs.finish();
    Ok(())
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
    let site = SitePlan { name: String::new(), access: (0..access.len()).collect() };
    let destination = to(&options.error_log, Destination::StandardError);
    LogPlan { access, sites: vec![site], error: ErrorPlan { destination, form: ErrorForm::Text, level: Level::Info } }
}

/// What is wrong with an address, and what was probably meant.
fn cannot_listen(address: &str, error: &std::io::Error) -> String {
    let hint = match address.trim_start_matches(':').parse::<u16>() {
        Ok(port) => format!("; an address is needed too, as in 127.0.0.1:{port}"),
        Err(_) => String::new(),
    };
    format!("cannot listen on {address}: {error}{hint}")
}
