//! `selvedge reload`, `stop`, `upgrade`, `reopen-logs` and `status`, from top to bottom.

use crate::cli::ControlArgs;
use crate::config;
use crate::config_path;
use crate::log::print_line;
use crate::preflight::Disk;
use crate::process::{ControlCommand, ControlReply, call};
use std::io::{self, Write};
use std::process::ExitCode;

/// Sends a command to a running server, and prints the reply.
pub(crate) fn run(options: &ControlArgs, command: ControlCommand) -> ExitCode {
    // The configuration is read for its control socket only; the server judges it at a reload.
    let (control, file) = match (&options.control, config_path::find(&options.config)) {
        (Some(control), _) => (control.clone(), None),
        (None, Ok(file)) => (config::control_path(&file, &Disk), Some(file)),
        (None, Err(problem)) => return refuse(&problem),
    };
    match (call(&control, command), file) {
        (Ok(ControlReply::Done(text)), _) => {
            // If the reader has closed the pipe, it has read enough.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        (Ok(ControlReply::Refused(text)), _) => refuse(&text),
        (Err(text), Some(file)) if config::read(&file, &Disk).is_err() => {
            let file = file.display();
            refuse(&format!(
                "{text} ({file} has problems, so the server may be elsewhere: `selvedge check`, --control)"
            ))
        }
        (Err(text), Some(file)) => refuse(&format!("{text} (the control socket of {})", file.display())),
        (Err(text), None) => refuse(&text),
    }
}

fn refuse(text: &str) -> ExitCode {
    print_line(&format!("selvedge: {}", text.trim_end()));
    ExitCode::FAILURE
}
