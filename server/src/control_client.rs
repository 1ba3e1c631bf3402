//! `selvedge reload`, `stop`, `upgrade`, `reopen-logs` and `status`, from top to bottom, and the status for `selftest`.

use crate::cli::ControlArgs;
use crate::config::{self, ControlSettings};
use crate::config_path;
use crate::log::print_line;
use crate::preflight::Disk;
use crate::process::{ControlCommand, ControlReply, StatusFormat, call, stop};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long `selvedge stop` waits beyond the shutdown timeout. A server that hangs is killed within this time.
const STOP_GRACE: Duration = Duration::from_secs(15);

/// Sends a command to a running server, and prints the reply.
pub(crate) fn run(options: &ControlArgs, command: ControlCommand) -> ExitCode {
    // The configuration is read for its control socket only; the server judges it at a reload.
    let (control, shutdown_timeout, file) = match (&options.control, config_path::find(&options.config)) {
        (Some(control), file) => {
            let settings = file.map(|file| config::control_settings(&file, &Disk));
            let default = selvedge::Limits::default().shutdown_timeout;
            (control.clone(), settings.map_or(default, |settings| settings.shutdown_timeout), None)
        }
        (None, Ok(file)) => {
            let ControlSettings { socket, shutdown_timeout } = config::control_settings(&file, &Disk);
            (socket, shutdown_timeout, Some(file))
        }
        (None, Err(problem)) => return refuse(&problem),
    };
    let replied = match command {
        ControlCommand::Stop => stop(&control, shutdown_timeout + STOP_GRACE),
        command => call(&control, command),
    };
    match (replied, file) {
        (Ok(ControlReply::Done(text)), _) => {
            // If the reader has closed the pipe, it has read enough.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        (Ok(ControlReply::Refused(text)), _) => refuse(&text),
        (Err(text), Some(file)) if config::read(&file, &Disk).is_err() => {
            let file = file.display();
            refuse(&format!(
                "{text} ({file} has problems, so the server may be elsewhere: `selvedge check`, --control PATH)"
            ))
        }
        (Err(text), Some(file)) => refuse(&format!(
            "{text} (the control socket of {}; if `control` has changed since the start of the server, name the earlier \
             socket: --control PATH)",
            file.display()
        )),
        (Err(text), None) => refuse(&text),
    }
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
