//! `selvedge serve` and `selvedge run`, from top to bottom.

use crate::check;
use crate::cli::{AccessLog, Run, Serve};
use crate::log::plan::{AccessPlan, Destination, ErrorForm, ErrorPlan, Level, LogPlan, SitePlan};
use crate::log::{self, LogObserver, Logs};
use crate::process::{self, Answer, Begun, CannotBegin, Form, Orders, Pace};
use crate::reload::{self, Live};
use crate::site::{Listing, Root, SiteRules, SiteTable, Sites};
use crate::snapshot::Refusal;
use selvedge::{Ending, Endpoint, Handle, Limits, Server};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often it is seen to that what this process may reach is still what it was. A look at 10,000
/// folders takes 17 ms, so 0.9 % of a core.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What is said to whoever gives an order too late.
const STOPPED: &str = "the server has stopped";

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
    let listing = if options.listing { Listing::On } else { Listing::Off };
    let table = SiteTable::new(vec![SiteRules::of_directory(Arc::new(root), listing)]).map_err(|_| "no site")?;
    let table = Arc::new(table);
    let running = server
        .observe(LogObserver::new(&logs, &limits))
        .limits(limits)
        .driver(options.driver)
        .serve_each(move || Sites::new(table.clone(), workers))
        .map_err(|error| format!("cannot start: {error}"))?;

    // Before the line that says it is ready, which is when somebody may want to end it.
    let reopener = logs.reopener();
    process::obey_signals(running.handle(), move || reopener.reopen())
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    for address in running.addresses() {
        log::say(&format!("serving {} on http://{address}/", options.dir.display()));
    }
    running.join();
    logs.finish();
    Ok(())
}

/// Serves what a configuration says until somebody ends it: as the supervisor of a process that
/// does, or as that process.
pub(crate) fn run(options: &Run) -> ExitCode {
    process::raise_descriptor_limit();
    let mut configuration = match reload::read(&options.config) {
        Ok(configuration) => configuration,
        Err(refusal) => return refuse(&refusal),
    };
    let workers = reload::workers(&configuration.settings);
    let driver = options.driver.unwrap_or_else(|| reload::driver(&configuration.settings));
    let post = match process::begin(&configuration.settings, workers) {
        Ok(Begun::Serve(post)) => Arc::new(*post),
        Ok(Begun::Ended(code)) => return code,
        Err(CannotBegin::Listen(problems)) => return refuse(&reload::cannot_listen(problems, &mut configuration)),
        Err(CannotBegin::Other(problem)) => return refuse(&Refusal::Plain(problem)),
    };
    let (live, running) = match reload::begin(&options.config, configuration, driver, &post, process::connect) {
        Ok(begun) => begun,
        Err(refusal) => {
            let code = refuse(&refusal);
            post.finish();
            return code;
        }
    };
    let endpoints: Vec<String> = live.places().endpoints().map(endpoint_text).collect();
    let master = Arc::new(Master { live: Mutex::new(Some(live)), handle: running.handle() });
    if let Err(problem) = post.obey(master.clone()) {
        return refuse(&Refusal::Plain(problem));
    }
    let looking = master.clone();
    let looks = thread::Builder::new().name("selvedge-look".to_owned()).spawn(move || looking.look_around());
    if let Err(error) = looks {
        return refuse(&Refusal::Plain(format!("cannot start: {error}")));
    }
    post.ready();
    master.live().iter().for_each(Live::leave_other_places);
    for endpoint in endpoints {
        log::say(&format!("serving {} on {endpoint}", options.config.display()));
    }
    let ending = running.join();
    post.has_drained();
    if let Some(live) = master.live().take() {
        live.finish();
    }
    post.finish();
    match ending {
        Ending::Stopped => ExitCode::SUCCESS,
        Ending::WorkerLost => ExitCode::FAILURE,
    }
}

fn refuse(refusal: &Refusal) -> ExitCode {
    process::say_last(&refusal.lines().join("\n"));
    check::refuse(refusal)
}

fn endpoint_text(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Inet(address) => format!("http://{address}/"),
        unix @ Endpoint::Unix(_) => unix.to_string(),
    }
}

/// Whoever has what serves, for whoever gives orders.
struct Master {
    /// Nothing once the server has stopped.
    live: Mutex<Option<Live>>,
    handle: Handle,
}

impl Master {
    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        // A reload that panicked has changed nothing, or all.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the world now and then, until the server has stopped.
    fn look_around(&self) {
        loop {
            thread::sleep(LOOK_EVERY);
            match &mut *self.live() {
                Some(live) => live.look_around(),
                None => return,
            }
        }
    }
}

impl Orders for Master {
    fn reload(&self) -> Answer {
        let Some(live) = &mut *self.live() else { return Answer::Refused(STOPPED.to_owned()) };
        match live.reload_and_tell() {
            Ok(reloaded) => {
                let lines = reloaded.lines();
                log::say(&format!("reloaded: {}", lines.join("; ")));
                Answer::Done(lines.join("\n"))
            }
            Err(refusal) => {
                log::say(&format!("not reloaded: {}", refusal.lines().join("; ")));
                Answer::Refused(format!("not reloaded, so all is as it was:\n{refusal}"))
            }
        }
    }

    fn status(&self, form: Form) -> String {
        match &*self.live() {
            Some(live) => live.status().write(form),
            None => STOPPED.to_owned(),
        }
    }

    fn leave(&self) {
        self.live().iter().for_each(Live::leave);
    }

    fn reopen(&self) {
        self.live().iter_mut().for_each(Live::reopen_logs);
    }

    fn stop(&self, pace: Pace) {
        match pace {
            Pace::Graceful => self.handle.stop(),
            Pace::AtOnce => self.handle.stop_now(),
        }
    }
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
