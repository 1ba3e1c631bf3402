//! The program `selvedge`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    selvedge_server::run_program()
}
