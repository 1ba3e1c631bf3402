//! The program `selvedge`.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod config;
mod log;
mod memory;
#[allow(dead_code, unused_imports, reason = "what runs a configuration is made by the room that compiles one")]
mod process;
mod run;
#[allow(dead_code, unused_imports, reason = "what serves from a configuration is made by the room that compiles one")]
mod site;
mod world;

use clap::Parser;
use process::{Form, Order};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => run::serve(&options),
        cli::Command::Check(options) => return check::check(&options),
        cli::Command::Settings(options) => return check::settings(&options),
        cli::Command::Reload(options) => return process::command(&options.control, Order::Reload),
        cli::Command::Stop(options) => return process::command(&options.control, Order::Stop),
        cli::Command::Upgrade(options) => return process::command(&options.control, Order::Upgrade),
        cli::Command::Reopen(options) => return process::command(&options.control, Order::Reopen),
        cli::Command::Status(options) => {
            let form = if options.json { Form::Json } else { Form::Text };
            return process::command(&options.control.control, Order::Status(form));
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
