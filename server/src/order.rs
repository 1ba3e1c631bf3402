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
    let (control, doubt) = match &options.control {
        Some(control) => (control.clone(), String::new()),
        None => match config::read(&options.config, &Disk) {
            Ok(configuration) => (configuration.settings.process.control, String::new()),
            // The server is the one to judge it: it is where a reload is refused.
            Err(_) => (
                options.config.with_file_name(USUAL),
                format!(" ({} cannot be read, or it would say where the server is)", options.config.display()),
            ),
        },
    };
    match ask(&control, order) {
        Ok(Answer::Done(text)) => {
            // Whoever stops to read has what it wanted.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Answer::Refused(text)) => refuse(&text),
        Err(text) => refuse(&(text + &doubt)),
    }
}

fn refuse(text: &str) -> ExitCode {
    say(&format!("selvedge: {}", text.trim_end()));
    ExitCode::FAILURE
}
