//! `selvedge fmt`, from top to bottom.

use crate::cli::{ConfigArgs, FmtArgs};
use crate::config::format;
use crate::config_path;
use crate::log::print_line;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Formats files in place, or checks that they are formatted.
pub(crate) fn run(options: &FmtArgs) -> ExitCode {
    let files = match options.files.as_slice() {
        [] => match config_path::find(&ConfigArgs { file: None, config: None }) {
            Ok(file) => vec![file],
            Err(problem) => return fail(&problem),
        },
        files => files.to_vec(),
    };
    let mode = if options.check { FmtMode::Check } else { FmtMode::Replace };
    let mut code = ExitCode::SUCCESS;
    for file in &files {
        let result = if file == Path::new("-") { format_input(mode) } else { format_file(file, mode) };
        match result {
            Ok(FmtOutcome::Formatted) => {}
            Ok(FmtOutcome::Different) => {
                print_line(&format!("{}: not formatted", file.display()));
                code = ExitCode::FAILURE;
            }
            Err(problem) => code = fail(&problem),
        }
    }
    code
}

/// What happens to a text that is not formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FmtMode {
    /// It is reported.
    Check,
    /// It is replaced.
    Replace,
}

/// Whether a text is as it should be.
#[derive(Debug, PartialEq, Eq)]
enum FmtOutcome {
    Formatted,
    /// It is not, and was not changed.
    Different,
}

fn format_input(mode: FmtMode) -> Result<FmtOutcome, String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(|error| format!("cannot read standard input: {error}"))?;
    let formatted = formatted(&text, Path::new("standard input"))?;
    if mode == FmtMode::Check {
        return Ok(if text == formatted { FmtOutcome::Formatted } else { FmtOutcome::Different });
    }
    let mut out = io::stdout().lock();
    out.write_all(formatted.as_bytes()).and_then(|()| out.flush()).map_err(|error| format!("cannot print: {error}"))?;
    Ok(FmtOutcome::Formatted)
}

fn format_file(file: &Path, mode: FmtMode) -> Result<FmtOutcome, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let formatted = formatted(&text, file)?;
    if text == formatted {
        return Ok(FmtOutcome::Formatted);
    }
    if mode == FmtMode::Check {
        return Ok(FmtOutcome::Different);
    }
    replace(file, &formatted).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(FmtOutcome::Formatted)
}

fn formatted(text: &str, file: &Path) -> Result<String, String> {
    format::format(text)
        .ok_or_else(|| format!("{}: it has problems, so it is not formatted: `selvedge check`", file.display()))
}

/// Replaces a file at once, with its mode, so that a reload never reads a half of it.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A link stays a link.
    let file = fs::canonicalize(file)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".fmt");
    let new: PathBuf = file.with_file_name(name);
    fs::write(&new, text)?;
    let replaced = fs::set_permissions(&new, fs::metadata(&file)?.permissions()).and_then(|()| fs::rename(&new, &file));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced
}

fn fail(problem: &str) -> ExitCode {
    print_line(&format!("selvedge: {problem}"));
    ExitCode::FAILURE
}
