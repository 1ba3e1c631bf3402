//! `selvedge reload`, `stop`, `upgrade`, `reopen` and `status`, from top to bottom.

use crate::cli::Control;
use crate::config;
use crate::log::say;
use crate::process::{Answer, Order, ask};
use crate::world::Disk;
use std::io::{self, Write};
use std::process::ExitCode;

/// Gives an order to a running server, and prints what became of it.
pub(crate) fn give(options: &Control, order: Order) -> ExitCode {
    // The server is the one to judge its configuration: it is where a reload is refused.
    let control = options.control.clone().unwrap_or_else(|| config::control(&options.config, &Disk));
    match ask(&control, order) {
        Ok(Answer::Done(text)) => {
            // Whoever stops to read has what it wanted.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Answer::Refused(text)) => refuse(&text),
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
    say(&format!("selvedge: {}", text.trim_end()));
    ExitCode::FAILURE
}
