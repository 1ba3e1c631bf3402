//! `selvedge reload`, `stop`, `upgrade`, `reopen` and `status`, from top to bottom.

use crate::cli::Control;
use crate::config;
use crate::log::say;
use crate::process::{Answer, Order, ask};
use crate::world::Disk;
use std::io::{self, Write};
use std::process::ExitCode;

/// Where the control socket is when the configuration does not say: beside it.
const USUAL: &str = "selvedge.sock";

/// Gives an order to a running server, and prints what became of it.
pub(crate) fn give(options: &Control, order: Order) -> ExitCode {
    let (control, unread) = match &options.control {
        Some(control) => (control.clone(), None),
        None => match config::read(&options.config, &Disk) {
            Ok(configuration) => (configuration.settings.process.control, None),
            // The server is the one to judge it: it is where a reload is refused.
            Err(problems) => (options.config.with_file_name(USUAL), Some(problems)),
        },
    };
    match (ask(&control, order), unread) {
        (Ok(Answer::Done(text)), _) => {
            // Whoever stops to read has what it wanted.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        (Ok(Answer::Refused(text)), _) => refuse(&text),
        (Err(text), None) => refuse(&text),
        (Err(text), Some(problems)) => {
            say(problems.to_string().trim_end());
            refuse(&format!("{text}; the configuration cannot be read to see where it is, and --control says it, too"))
        }
    }
}

fn refuse(text: &str) -> ExitCode {
    say(&format!("selvedge: {}", text.trim_end()));
    ExitCode::FAILURE
}
