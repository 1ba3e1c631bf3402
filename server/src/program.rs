//! The command line of the program `selvedge`.

use crate::process;
use crate::process::{ControlCommand, StatusFormat};
use crate::trust::{self, TrustCommand};
use crate::{
    check, cli, control_client, explain, fmt, hash_password, log, manual_pages, proxy, run, selftest, serve,
    shell_completions,
};
use clap::FromArgMatches;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program `selvedge` with its command line.
pub fn run_program() -> ExitCode {
    if process::is_program_runner() {
        return process::run_programs();
    }
    if process::is_cgi_runner() {
        return process::run_cgi_programs();
    }
    if process::is_file_opener() {
        return process::open_files();
    }
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let command = cli::command_for(&arguments);
    let parsed = command.try_get_matches_from(&arguments).and_then(|matches| cli::Cli::from_arg_matches(&matches));
    let words = arguments.iter().skip(1).map(OsString::as_os_str);
    let parsed = parsed.unwrap_or_else(|error| cli::with_tips(error, words).exit());
    let result = match parsed.command {
        cli::Command::Serve(options) => match options.domains.is_empty() {
            true => serve::serve(&options),
            false => match serve::configuration_of_domains(&options) {
                Ok(options) => return run::run(&options),
                Err(problem) => Err(problem),
            },
        },
        cli::Command::Proxy(options) => match proxy::is_for_names(&options) {
            false => proxy::proxy(&options),
            true => match proxy::configuration_of_names(&options) {
                Ok(options) => return run::run(&options),
                Err(problem) => Err(problem),
            },
        },
        cli::Command::Run(options) => return run::run(&options),
        cli::Command::Check(options) => return check::check(&options),
        cli::Command::Explain(options) => return explain::run(&options),
        cli::Command::Fmt(options) => return fmt::run(&options),
        cli::Command::Settings(options) => return check::settings(&options),
        cli::Command::Reload(options) => return control_client::run(&options, ControlCommand::Reload),
        cli::Command::Stop(options) => return control_client::run(&options, ControlCommand::Stop),
        cli::Command::Upgrade(options) => return control_client::run(&options, ControlCommand::Upgrade),
        cli::Command::ReopenLogs(options) => return control_client::run(&options, ControlCommand::ReopenLogs),
        cli::Command::Status(options) => {
            let format = if options.json { StatusFormat::Json } else { StatusFormat::Text };
            return control_client::run(&options.control, ControlCommand::Status(format));
        }
        cli::Command::Last(options) => return control_client::last(&options),
        cli::Command::Selftest(options) => return selftest::run(&options),
        cli::Command::Trust(options) => return trust::run(&options.config, TrustCommand::Trust),
        cli::Command::HashPassword(options) => hash_password::run(&options),
        cli::Command::Completions(options) => shell_completions::print(options.shell),
        cli::Command::ManualPages(options) => manual_pages::write(&options.folder),
        cli::Command::Untrust(options) => return trust::run(&options.config, TrustCommand::Untrust),
        cli::Command::Certificates(options) => {
            let format = if options.json { StatusFormat::Json } else { StatusFormat::Text };
            return control_client::run(&options.control, ControlCommand::Certificates(format));
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            log::print_line(&format!("selvedge: {problem}"));
            ExitCode::FAILURE
        }
    }
}
