//! `selvedge reload`, `stop`, `upgrade`, `reopen-logs`, `status` and `last`, from top to bottom, and the status for
//! `selftest`.

use crate::cli::{ConfigArgs, ControlArgs, LastArgs};
use crate::config::{self, ControlSettings};
use crate::config_path;
use crate::last_requests;
use crate::log::print_line;
use crate::preflight::Disk;
use crate::process::{ControlCommand, ControlReply, StatusFormat, call, stop};
use crate::recorder::{LastQuery, StatusRange, read_dump};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long `selvedge stop` waits beyond the shutdown timeout. A server that hangs is killed within this time.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// Sends a command to a running server, and prints the reply.
pub(crate) fn run(options: &ControlArgs, command: ControlCommand) -> ExitCode {
    run_for(&options.config, options.control.as_deref(), command)
}

/// Sends a command to the server of a configuration, or to that behind a control socket, and prints the reply.
pub(crate) fn run_for(config: &ConfigArgs, control: Option<&Path>, command: ControlCommand) -> ExitCode {
    match reply(config, control, command) {
        Ok(text) => {
            // JSON of no request is an empty text. If the reader has closed the pipe, it has read enough.
            let end = if text.is_empty() { "" } else { "\n" };
            let _ = write!(io::stdout(), "{}{end}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(text) => refuse(&text),
    }
}

/// Sends a command to the server of a configuration, or to that behind a control socket. Returns the text of the reply.
///
/// # Errors
/// Why the server refuses it, or why no server replies.
pub(crate) fn reply(config: &ConfigArgs, control: Option<&Path>, command: ControlCommand) -> Result<String, String> {
    // The configuration is read for its control socket only; the server judges it at a reload.
    let (control, shutdown_timeout, file) = match (control, config_path::find(config)) {
        (Some(control), file) => {
            let settings = file.map(|file| config::control_settings(&file, &Disk));
            let default = selvedge::Limits::default().shutdown_timeout;
            (control.to_owned(), settings.map_or(default, |settings| settings.shutdown_timeout), None)
        }
        (None, Ok(file)) => {
            let ControlSettings { socket, shutdown_timeout } = config::control_settings(&file, &Disk);
            (socket, shutdown_timeout, Some(file))
        }
        (None, Err(problem)) => return Err(problem),
    };
    let replied = match command {
        ControlCommand::Stop => stop(&control, shutdown_timeout + STOP_GRACE),
        command => call(&control, command),
    };
    match (replied, file) {
        (Ok(ControlReply::Done(text)), _) => Ok(text),
        (Ok(ControlReply::Refused(text)), _) => Err(text),
        (Err(text), Some(file)) if config::read(&file, &Disk).is_err() => {
            let file = file.display();
            Err(format!(
                "{text} ({file} has problems, so the server may be elsewhere: `selvedge check`, --control PATH)"
            ))
        }
        (Err(text), Some(file)) => Err(format!(
            "{text} (the control socket of {}; if `control` has changed since the start of the server, name the earlier \
             socket: --control PATH)",
            file.display()
        )),
        (Err(text), None) => Err(text),
    }
}

/// Prints the last requests of a running server, or of a dump.
pub(crate) fn last(options: &LastArgs) -> ExitCode {
    let LastArgs { control, dump, count, status, slower, client, site, route, reason, dry_run, json } = options;
    let query = LastQuery {
        json: *json,
        count_max: (*count).into(),
        status: *status,
        slower: *slower,
        client: client.as_ref().map(ToString::to_string),
        site: site.clone(),
        route: route.clone(),
        reason: reason.clone(),
        dry_run: *dry_run,
        ..LastQuery::default()
    };
    if let Some(text) = mistaken_status(&control.config) {
        return refuse(&text);
    }
    let Some(dump) = dump else { return run(control, ControlCommand::Last(query)) };
    match read_dump(dump) {
        Ok(memory) => {
            // If the reader has closed the pipe, it has read enough.
            let _ = write!(io::stdout(), "{}", last_requests::report(&memory, &query));
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&format!("cannot read {}: {error}", dump.display())),
    }
}

/// Returns what to write in place of a status that stands where a configuration is expected.
fn mistaken_status(config: &ConfigArgs) -> Option<String> {
    let file = config.file.as_deref().filter(|file| !file.exists())?;
    let text = file.to_str().filter(|text| text.parse::<StatusRange>().is_ok())?;
    Some(format!("{text} is taken for a configuration, and is no file; `--status {text}` selects by status"))
}

/// Returns the status of a running server as JSON.
///
/// # Errors
/// If no configuration is found, no server has its control socket, or the server refuses.
pub(crate) fn status_json(options: &ControlArgs) -> Result<String, String> {
    let control = match &options.control {
        Some(control) => control.clone(),
        None => config::control_settings(&config_path::find(&options.config)?, &Disk).socket,
    };
    match call(&control, ControlCommand::Status(StatusFormat::Json))? {
        ControlReply::Done(text) => Ok(text),
        ControlReply::Refused(text) => Err(text),
    }
}

fn refuse(text: &str) -> ExitCode {
    print_line(&format!("selvedge: {}", text.trim_end()));
    ExitCode::FAILURE
}
