//! The program `selvedge`, by its command line.

use crate::process::{Form, Order};
use crate::{check, cli, log, order, run};
use clap::Parser;
use std::process::ExitCode;

/// Does what the command line says: the program `selvedge`.
pub fn program() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => run::serve(&options),
        cli::Command::Run(options) => return run::run(&options),
        cli::Command::Check(options) => return check::check(&options),
        cli::Command::Settings(options) => return check::settings(&options),
        cli::Command::Reload(options) => return order::give(&options, Order::Reload),
        cli::Command::Stop(options) => return order::give(&options, Order::Stop),
        cli::Command::Upgrade(options) => return order::give(&options, Order::Upgrade),
        cli::Command::Reopen(options) => return order::give(&options, Order::Reopen),
        cli::Command::Status(options) => {
            let form = if options.json { Form::Json } else { Form::Text };
            return order::give(&options.control, Order::Status(form));
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log::say(&format!("selvedge: {problem}"));
            ExitCode::FAILURE
        }
    }
}
