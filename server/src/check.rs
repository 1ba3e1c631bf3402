//! `selvedge check` and `selvedge settings`, from top to bottom.

use crate::cli::{CheckArgs, SettingsArgs};
use crate::compile::{self, CarriedState, Compiled};
use crate::config::settings::{reference, schema};
use crate::config::{
    self, ColouredProblems, Configuration, MachineRequirement, MachineRequirementKind, Problem, Problems, Sources, Span,
};
use crate::config_path;
use crate::explanation::Explainable;
use crate::memory_budget::MemoryBudget;
use crate::preflight::{CheckScope, Disk};
use crate::process::{ControlCommand, Sandbox, UnreadableFiles};
use crate::snapshot::Refusal;
use crate::{
    certificate_warnings, config_diff, control_client, expectations, log, preflight, process, reload, root_warnings,
};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints all problems, or that none exist.
pub(crate) fn check(options: &CheckArgs) -> ExitCode {
    // The server raises the limit too, so derived limits are those in force.
    process::raise_descriptor_limit();
    let file = match config_path::find(&options.config) {
        Ok(file) => file,
        Err(problem) => return print_refusal(&Refusal::Plain(problem)),
    };
    let (configuration, compiled) = match read_as_expected(&file) {
        Ok(read) => read,
        Err(refusal) if options.json => {
            let printed = print(&refusal.json(&file));
            return if printed.is_ok() { ExitCode::FAILURE } else { exit_code(printed) };
        }
        Err(refusal) => return print_refusal(&refusal),
    };
    let mut warnings = preflight::warnings(&configuration.requirements, &compiled.carried);
    warnings.extend(root_warnings::warnings(&configuration));
    warnings.extend(certificate_warnings::warnings(&configuration));
    warnings.extend(unreadable_warning(&configuration));
    if configuration.settings.sites.is_empty() {
        let suggestion = "write, for example, `site \"*\" { root \"/srv/www\"; }`".to_owned();
        let message = "warning: no site, so every request gets 421".to_owned();
        warnings.push(Problem::with_suggestion(Span::default(), message, suggestion));
    }
    if options.diff {
        return match running_differences(options, &configuration) {
            Ok(text) => exit_code(print(&text)),
            Err(problem) => print_refusal(&Refusal::Plain(problem)),
        };
    }
    if options.json {
        return exit_code(print(&Problems::new(warnings, configuration.texts).json()));
    }
    let Configuration { settings, .. } = &configuration;
    let text = if options.effective {
        format!("{settings}\n{}\n{}", MemoryBudget::of(settings, &compiled), Sandbox::of(&configuration))
    } else {
        let routes = count(stated_routes(&configuration.requirements), "route");
        let sites = count(settings.sites.len(), "site");
        let file = file.display();
        match warnings.len() {
            0 => format!("{file}: {sites}, {routes}, no problems\n"),
            some => format!("{file}: {sites}, {routes}, no problems, {}\n", count(some, "warning")),
        }
    };
    if !warnings.is_empty() {
        log::print_line(in_colours(&Problems::new(warnings, configuration.texts)).trim_end());
    }
    exit_code(print(&text))
}

/// Warns if the user of the server may not read the configuration. Only root can find out.
fn unreadable_warning(configuration: &Configuration) -> Option<Problem> {
    let unreadable = UnreadableFiles::find(&configuration.settings.process, configuration.texts.files())?;
    let is_account = |requirement: &&MachineRequirement| {
        matches!(requirement.kind, MachineRequirementKind::User(_) | MachineRequirementKind::Group(_))
    };
    let at = configuration.requirements.iter().find(is_account).map(|requirement| requirement.at).unwrap_or_default();
    let message = format!("warning: {}", unreadable.consequence());
    Some(Problem::with_suggestion(at, message, format!("`{}` permits it", unreadable.command())))
}

/// Returns how a configuration differs from that of the running server, in words.
fn running_differences(options: &CheckArgs, configuration: &Configuration) -> Result<String, String> {
    let settings = &configuration.settings;
    let text = control_client::reply(&options.config, options.control.as_deref(), ControlCommand::Settings)?;
    let running = config::read(Path::new(RUNNING), &RunningSettings(text));
    let running =
        running.map_err(|problems| format!("the settings of the server cannot be read:\n{problems}"))?.settings;
    let mut lines = config_diff::between(&running, settings);
    lines.extend(config_diff::details(&running, settings).iter().map(|line| format!("  {line}")));
    let at_next_start = config_diff::at_next_start(&running, settings);
    if !at_next_start.is_empty() {
        lines.push(format!("changes to {} take effect after a restart", at_next_start.join(", ")));
    }
    if lines.is_empty() {
        lines.push("the running server has these settings".to_owned());
    }
    Ok(lines.join("\n") + "\n")
}

/// The name of the settings of the running server. They have absolute paths.
const RUNNING: &str = "/running.kdl";

/// The settings of the running server, which include no files and have no variables.
struct RunningSettings(String);

impl Sources for RunningSettings {
    fn text(&self, _: &Path) -> Result<String, String> {
        Ok(self.0.clone())
    }

    fn matching_files(&self, _: &Path, _: &str) -> Result<Vec<PathBuf>, String> {
        Ok(Vec::new())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }
}

/// Counts the routes that the configuration states. The last route that a site gets for its `root` is none of them.
fn stated_routes(requirements: &[MachineRequirement]) -> usize {
    requirements.iter().filter(|requirement| matches!(requirement.kind, MachineRequirementKind::Route(..))).count()
}

/// Reads a configuration, checks its requirements, and compiles it.
pub(crate) fn read(file: &Path) -> Result<(Configuration, Compiled), Refusal> {
    let mut configuration = reload::read(file, CheckScope::All)?;
    match compile::compile(&configuration, &CarriedState::of_command(), &Disk) {
        Ok(compiled) => Ok((configuration, compiled)),
        Err(problems) => Err(Refusal::of(problems, &mut configuration)),
    }
}

/// Returns the text of problems, with colours if standard error shows them.
fn in_colours(problems: &Problems) -> String {
    if log::has_colours() { ColouredProblems(problems).to_string() } else { problems.to_string() }
}

/// Reads and compiles a configuration, and tries its expectations.
fn read_as_expected(file: &Path) -> Result<(Configuration, Compiled), Refusal> {
    let (mut configuration, compiled) = read(file)?;
    match expectations::problems(&configuration, &Explainable::of_file(&configuration, &compiled)) {
        problems if problems.is_empty() => Ok((configuration, compiled)),
        problems => Err(Refusal::of(problems, &mut configuration)),
    }
}

/// Prints why a configuration is refused.
pub(crate) fn print_refusal(refusal: &Refusal) -> ExitCode {
    let count = match refusal {
        Refusal::Problems(problems) => count(problems.count(), "problem"),
        Refusal::Plain(_) => String::new(),
    };
    let text = match refusal {
        Refusal::Problems(problems) => in_colours(problems),
        Refusal::Plain(_) => refusal.to_string(),
    };
    log::print_line(format!("{text}{count}").trim_end());
    ExitCode::FAILURE
}

/// Prints the table of settings.
pub(crate) fn settings(options: &SettingsArgs) -> ExitCode {
    exit_code(print(&match options {
        SettingsArgs { json: true, .. } => reference::json(),
        SettingsArgs { markdown: true, .. } => reference::markdown(),
        SettingsArgs { schema: true, .. } => schema::kdl_schema(),
        _ => reference::text(),
    }))
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// If the reader has closed the pipe, it has read enough.
fn exit_code(printed: io::Result<()>) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            log::print_line(&format!("selvedge: cannot print: {error}"));
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}
