//! The program `selvedge`.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod config;
mod log;
mod memory;
mod process;
mod run;
#[allow(dead_code, unused_imports, reason = "what serves from a configuration is made by the room that compiles one")]
mod site;
mod world;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => run::serve(&options),
        cli::Command::Check(options) => return check::check(&options),
        cli::Command::Settings(options) => return check::settings(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log::say(&format!("selvedge: {problem}"));
            ExitCode::FAILURE
        }
    }
}
