//! `selvedge reload`, `stop`, `upgrade`, `reopen-logs` and `status`, from top to bottom.

use crate::cli::ControlArgs;
use crate::config;
use crate::log::print_line;
use crate::preflight::Disk;
use crate::process::{ControlCommand, ControlReply, call};
use std::io::{self, Write};
use std::process::ExitCode;

/// Sends a command to a running server, and prints the reply.
pub(crate) fn run(options: &ControlArgs, command: ControlCommand) -> ExitCode {
    // The configuration is read for its control socket only; the server judges it at a reload.
    let control = options.control.clone().unwrap_or_else(|| config::control_path(&options.config, &Disk));
    match call(&control, command) {
        Ok(ControlReply::Done(text)) => {
            // If the reader has closed the pipe, it has read enough.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Ok(ControlReply::Refused(text)) => refuse(&text),
        Err(text) if options.control.is_none() && config::read(&options.config, &Disk).is_err() => {
            let file = options.config.display();
            refuse(&format!(
                "{text} ({file} has problems, so the server may be elsewhere: `selvedge check`, --control)"
            ))
        }
        Err(text) => refuse(&text),
    }
}

fn refuse(text: &str) -> ExitCode {
    print_line(&format!("selvedge: {}", text.trim_end()));
    ExitCode::FAILURE
}
