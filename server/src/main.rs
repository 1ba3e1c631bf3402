//! The program `selvedge`.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod compile;
mod config;
mod listeners;
mod log;
mod memory;
mod process;
mod reload;
mod run;
mod site;
mod snapshot;
mod world;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => run::serve(&options),
        cli::Command::Run(options) => return run::run(&options),
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
