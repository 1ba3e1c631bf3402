//! `selvedge check` and `selvedge settings`, from top to bottom.

use crate::cli::{Check, Settings};
use crate::compile::{self, Compiled, Kept};
use crate::config::settings::reference;
use crate::config::{Configuration, Problems};
use crate::memory::Memory;
use crate::process::Sandbox;
use crate::snapshot::Refusal;
use crate::world::Disk;
use crate::{log, process, reload, world};
use std::io::{self, Write};
use std::process::ExitCode;

/// Says everything that is wrong, or that nothing is.
pub(crate) fn check(options: &Check) -> ExitCode {
    // As the server will, so that the bounds which follow from it are those in force.
    process::raise_descriptor_limit();
    let (configuration, compiled) = match read(options) {
        Ok(read) => read,
        Err(refusal) => return refuse(&refusal),
    };
    let warnings = world::warnings(&configuration.claims, &compiled.kept);
    let Configuration { settings, .. } = &configuration;
    let text = if options.effective {
        format!("{settings}\n{}\n{}", Memory::of(settings, &compiled), Sandbox::of(&configuration))
    } else {
        let routes = settings.sites.iter().map(|site| site.routes.len()).sum();
        let (sites, routes) = (count(settings.sites.len(), "site"), count(routes, "route"));
        let file = options.config.display();
        match warnings.len() {
            0 => format!("{file}: {sites}, {routes}, no problems\n"),
            some => format!("{file}: {sites}, {routes}, no problems, {}\n", count(some, "warning")),
        }
    };
    if !warnings.is_empty() {
        log::say(Problems::new(warnings, configuration.texts).to_string().trim_end());
    }
    ended(print(&text))
}

/// Reads a configuration, holds what it needs to the world, and sees whether it goes together.
fn read(options: &Check) -> Result<(Configuration, Compiled), Refusal> {
    let mut configuration = reload::read(&options.config)?;
    match compile::compile(&configuration, &Kept::default(), &Disk) {
        Ok(compiled) => Ok((configuration, compiled)),
        Err(problems) => Err(Refusal::of(problems, &mut configuration)),
    }
}

/// Says why a configuration cannot be served.
pub(crate) fn refuse(refusal: &Refusal) -> ExitCode {
    let count = match refusal {
        Refusal::Problems(problems) => count(problems.count(), "problem"),
        Refusal::Plain(_) => String::new(),
    };
    log::say(format!("{refusal}{count}").trim_end());
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
