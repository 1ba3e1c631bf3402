//! The program `selvedge`.

#![forbid(unsafe_code)]

mod cli;
mod log;
mod process;
mod run;
#[allow(dead_code, unused_imports, reason = "what serves from a configuration is made by the room that compiles one")]
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
