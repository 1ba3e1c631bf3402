//! The program `selvedge`.

#![forbid(unsafe_code)]

mod cli;
mod log;
mod process;
mod run;
mod site;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match cli::Cli::parse().command {
        cli::Command::Serve(options) => run::serve(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log::say(&format!("selvedge: {problem}"));
            ExitCode::FAILURE
        }
    }
}
