//! `selvedge explain`, from top to bottom.

use crate::check::{print_refusal, read};
use crate::cli::ExplainArgs;
use crate::config_path;
use crate::control_client;
use crate::explanation::{ExplainRequest, Explainable, explain};
use crate::log::print_line;
use crate::process::{self, ControlCommand, StatusFormat};
use crate::snapshot::Refusal;
use std::io::{self, Write};
use std::process::ExitCode;

/// Explains a request by a configuration, or by that of a running server.
pub(crate) fn run(options: &ExplainArgs) -> ExitCode {
    let request = ExplainRequest {
        method: options.method.clone(),
        url: options.url.clone(),
        fields: options.fields.clone(),
        client: Some(options.client),
        server_name: options.server_name.clone(),
    };
    let format = if options.json { StatusFormat::Json } else { StatusFormat::Text };
    if options.running || options.control.is_some() {
        return match ControlCommand::explain(format, &request) {
            Ok(command) => control_client::run_for(&options.config, options.control.as_deref(), command),
            Err(problem) => refuse(&problem),
        };
    }
    // The server raises the limit too, so the limits are those in force.
    process::raise_descriptor_limit();
    let file = match config_path::find(&options.config) {
        Ok(file) => file,
        Err(problem) => return print_refusal(&Refusal::Plain(problem)),
    };
    let (configuration, compiled) = match read(&file) {
        Ok(read) => read,
        Err(refusal) => return print_refusal(&refusal),
    };
    let explainable = Explainable::of_file(&configuration, &compiled);
    match explain(&explainable, &request) {
        Ok(explanation) => {
            let text = explanation.format(format, &file.display().to_string(), file.parent());
            // If the reader has closed the pipe, it has read enough.
            let _ = writeln!(io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(problem) => refuse(&problem),
    }
}

fn refuse(problem: &str) -> ExitCode {
    print_line(&format!("selvedge: {problem}"));
    ExitCode::FAILURE
}
