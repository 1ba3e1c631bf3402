//! `selvedge serve` and `selvedge run`, from top to bottom.

use crate::certificates::{AcmeSettings, AutomaticCertificates, folder_of_user, unix_now};
use crate::cli::{AccessLogArg, RunArgs, ServeArgs};
use crate::config_path;
use crate::log::config::{AccessLogConfig, Destination, ErrorFormat, ErrorLogConfig, Level, LogConfig, SiteLogConfig};
use crate::log::{self, LogObserver, Logs};
use crate::process::{self, ControlHandler, ControlReply, RunMode, StartError, StatusFormat, StopMode};
use crate::reload::{self, LiveServer};
use crate::site::{Listing, Root, RouteTable, SiteRules, SiteService};
use crate::snapshot::Refusal;
use crate::syntax::{HostName, NameReach};
use crate::{certificate_status, check};
use selvedge::tls::{Tls, TlsHost};
use selvedge::{ExitCause, Handle, Limits, Server};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Interval at which the sandboxed directories and the files of certificates are checked for changes. A check of 10,000
/// folders takes about 1 % of a core.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which expiring certificates are logged.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// Reply to commands after the end.
const STOPPED: &str = "the server has stopped";

/// Serves a directory until a signal ends it.
pub(crate) fn serve(options: &ServeArgs) -> Result<(), String> {
    process::raise_descriptor_limit();
    let root = Root::open(&options.dir).map_err(|error| format!("cannot serve {}: {error}", options.dir.display()))?;
    if !root.follows_links() {
        log::print_line("selvedge: this kernel has no openat2 (Linux 5.6), so symbolic links are not followed");
    }
    let workers = match options.workers {
        Some(workers) => usize::from(workers),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let limits = Limits::default();
    let server =
        Server::bind_with_workers(&options.listen, workers).map_err(|error| cannot_listen(&options.listen, &error))?;

    let logs = Logs::start(&log_config(options), process::connect).map_err(|problem| problem.to_string())?;
    let listing = if options.listing { Listing::On } else { Listing::Off };
    let table = RouteTable::new(vec![SiteRules::for_directory(Arc::new(root), listing)]).map_err(|_| "no site")?;
    let table = Arc::new(table);
    let server = match options.tls {
        true => server_with_tls(server, &options.listen)?,
        false => server,
    };
    let running = server
        .observe(LogObserver::new(&logs, &limits))
        .limits(limits)
        .driver(options.driver)
        .serve_each(move || SiteService::new(table.clone(), workers))
        .map_err(|error| format!("cannot start: {error}"))?;

    // Before the line that reports readiness, because a client may act on that line.
    let reopener = logs.reopener();
    process::obey_signals(running.handle(), move || reopener.reopen())
        .map_err(|error| format!("cannot watch signals: {error}"))?;
    for address in running.addresses() {
        let scheme = if options.tls { "https" } else { "http" };
        log::print_line(&format!("serving {} on {scheme}://{address}/", options.dir.display()));
    }
    running.join();
    logs.flush_and_join();
    Ok(())
}

/// Gives a server certificates of the own authority, for the names and addresses by which this machine is reached.
fn server_with_tls(server: Server, listen: &str) -> Result<Server, String> {
    let folder = folder_of_user().ok_or("certificates need a folder: set HOME")?;
    let automatic = Arc::new(AutomaticCertificates::default());
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']).to_ascii_lowercase();
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let is_internal = host.parse::<HostName>().is_ok_and(|name| name.reach() == NameReach::Internal);
    if is_internal && !names.contains(&host) && host != "0.0.0.0" {
        names.insert(0, host);
    }
    let set = |name: &String| Ok((name.clone(), automatic.certificates(&folder, (name, NameReach::Internal))?));
    let sets = names.iter().map(set).collect::<Result<Vec<_>, String>>()?;
    automatic.apply(AcmeSettings::default(), &names);
    thread::spawn(move || automatic.run());
    let host = TlsHost::builder().certificates_by_name(sets).build().map_err(|error| error.to_string())?;
    Ok(server.tls(Tls::new(host)))
}

/// Runs a configuration: as the supervisor, or as the serving process.
pub(crate) fn run(options: &RunArgs) -> ExitCode {
    process::raise_descriptor_limit();
    let file = match config_path::find(&options.config) {
        Ok(file) => file,
        Err(problem) => return print_refusal(&Refusal::Plain(problem)),
    };
    let mut configuration = match reload::read(&file) {
        Ok(configuration) => configuration,
        Err(refusal) => return print_refusal(&refusal),
    };
    let workers = reload::workers(&configuration.settings);
    let driver = options.driver.unwrap_or_else(|| reload::driver(&configuration.settings));
    let serving = match process::start(&configuration.settings, workers) {
        Ok(RunMode::Serve(serving)) => Arc::new(*serving),
        Ok(RunMode::Ended(code)) => return code,
        Err(StartError::Listen(problems)) => {
            return print_refusal(&reload::cannot_listen(problems, &mut configuration));
        }
        Err(StartError::Other(problem)) => return print_refusal(&Refusal::Plain(problem)),
    };
    let automatic = Arc::new(AutomaticCertificates::default());
    let started = reload::start(&file, configuration, driver, &serving, (process::connect, &automatic));
    let (live, running) = match started {
        Ok(started) => started,
        Err(refusal) => {
            let code = print_refusal(&refusal);
            serving.finish();
            return code;
        }
    };
    let endpoints = live.endpoint_texts();
    let commands = Arc::new(ServerCommands { live: Mutex::new(Some(live)), handle: running.handle() });
    if let Err(problem) = serving.start_commands(commands.clone()) {
        return print_refusal(&Refusal::Plain(problem));
    }
    let checker = commands.clone();
    let started = thread::Builder::new().name("selvedge-look".to_owned()).spawn(move || checker.check_files());
    if let Err(error) = started {
        return print_refusal(&Refusal::Plain(format!("cannot start: {error}")));
    }
    let started = thread::Builder::new().name("selvedge-acme".to_owned()).spawn(move || automatic.run());
    if let Err(error) = started {
        return print_refusal(&Refusal::Plain(format!("cannot start: {error}")));
    }
    serving.ready();
    commands.live().iter().for_each(LiveServer::remove_unlisted_listeners);
    for endpoint in endpoints {
        log::print_line(&format!("serving {} on {endpoint}", file.display()));
    }
    let exit_cause = running.join();
    serving.mark_drained();
    if let Some(live) = commands.live().take() {
        live.finish();
    }
    serving.finish();
    match exit_cause {
        ExitCause::Stopped => ExitCode::SUCCESS,
        ExitCause::WorkerPanicked => ExitCode::FAILURE,
    }
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
}

impl ServerCommands {
    fn live(&self) -> MutexGuard<'_, Option<LiveServer>> {
        // A panic during a reload leaves either configuration in force.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the sandboxed directories and the files of certificates periodically until the server has stopped.
    fn check_files(&self) {
        let mut expiry_checked: Option<Instant> = None;
        loop {
            match &mut *self.live() {
                Some(live) => {
                    live.check_roots();
                    live.refresh_certificates();
                    live.log_certificate_events();
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

impl ControlHandler for ServerCommands {
    fn reload(&self) -> ControlReply {
        let Some(live) = &mut *self.live() else { return ControlReply::Refused(STOPPED.to_owned()) };
        match live.reload_and_log() {
            Ok(reloaded) => {
                let lines = reloaded.lines();
                log::print_line(&format!("reloaded: {}", lines.join("; ")));
                ControlReply::Done(lines.join("\n"))
            }
            Err(refusal) => {
                log::print_line(&format!("not reloaded: {}", refusal.lines().join("; ")));
                ControlReply::Refused(format!("not reloaded, so all is as it was:\n{refusal}"))
            }
        }
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

    fn stop_listening(&self) {
        self.live().iter().for_each(LiveServer::stop_listening);
    }

    fn reopen_logs(&self) {
        self.live().iter_mut().for_each(LiveServer::reopen_logs);
    }

    fn stop(&self, mode: StopMode) {
        match mode {
            StopMode::Graceful => self.handle.stop(),
            StopMode::Immediate => self.handle.stop_now(),
        }
    }
}

/// Returns a log configuration with one site, at most one access log, and an error log.
fn log_config(options: &ServeArgs) -> LogConfig {
    let to = |path: &Option<PathBuf>, otherwise| path.as_ref().map_or(otherwise, Destination::file);
    let access = match &options.log {
        AccessLogArg::Off => vec![],
        AccessLogArg::In(format) => vec![AccessLogConfig {
            destination: to(&options.access_log, Destination::StandardOutput),
            format: format.clone(),
        }],
    };
    let site = SiteLogConfig { name: String::new(), access: (0..access.len()).collect(), error: None };
    let destination = to(&options.error_log, Destination::StandardError);
    let error = ErrorLogConfig { destination, format: ErrorFormat::Text, level: Level::Info };
    LogConfig { access, sites: vec![site], error, site_errors: Vec::new() }
}

/// Explains why an address is invalid and suggests another.
fn cannot_listen(address: &str, error: &io::Error) -> String {
    let hint = match address.trim_start_matches(':').parse::<u16>() {
        Ok(port) => format!("; an address is needed too, as in 127.0.0.1:{port}"),
        Err(_) => String::new(),
    };
    format!("cannot listen on {address}: {error}{hint}")
}
