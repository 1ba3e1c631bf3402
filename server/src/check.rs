//! `selvedge check` and `selvedge settings`, from top to bottom.

use crate::cli::{Check, Settings};
use crate::config::settings::reference;
use crate::config::{self, Configuration, Problems};
use crate::memory::Memory;
use crate::process::Sandbox;
use crate::world::{self, Disk};
use crate::{log, process};
use std::io::{self, Write};
use std::process::ExitCode;

/// Says everything that is wrong, or that nothing is.
pub(crate) fn check(options: &Check) -> ExitCode {
    // As the server will, so that the bounds which follow from it are those in force.
    process::raise_descriptor_limit();
    let configuration = match read(options) {
        Ok(configuration) => configuration,
        Err(problems) => return refuse(&problems),
    };
    let Configuration { settings, .. } = &configuration;
    let said = if options.effective {
        print(&format!("{settings}\n{}\n{}", Memory::of(settings), Sandbox::of(&configuration)))
    } else {
        let routes = settings.sites.iter().map(|site| site.routes.len()).sum();
        print(&format!(
            "{}: {}, {}, no problems\n",
            options.config.display(),
            count(settings.sites.len(), "site"),
            count(routes, "route")
        ))
    };
    ended(said)
}

/// Reads a configuration, and holds what it needs to the world.
fn read(options: &Check) -> Result<Configuration, Problems> {
    let mut configuration = config::read(&options.config, &Disk)?;
    let problems = world::problems(&configuration.claims);
    if problems.is_empty() {
        Ok(configuration)
    } else {
        Err(Problems::new(problems, std::mem::take(&mut configuration.texts)))
    }
}

fn refuse(problems: &Problems) -> ExitCode {
    log::say(&format!("{problems}{}", count(problems.count(), "problem")));
    ExitCode::FAILURE
}

/// Prints the table of settings.
pub(crate) fn settings(options: &Settings) -> ExitCode {
    ended(print(&match options {
        Settings { json: true, .. } => reference::json(),
        Settings { markdown: true, .. } => reference::markdown(),
        _ => reference::text(),
    }))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whoever stops to read has what it wanted.
fn ended(printed: io::Result<()>) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            log::say(&format!("selvedge: cannot print: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
