//! The configuration: text in, settings or problems out.
//!
//! ```text
//! text ─► nodes ─► items of the table with defaults ─► the model, with requirements on the machine
//!  text/   reader, include, variable: all problems at once      build/ ─► model/
//! ```
//!
//! Never touches disk, network or clock. Files and variables are provided by [`Sources`]. What only the machine can
//! show (a root exists, a name resolves) is a [`MachineRequirement`] with its position. What only a lower module can check
//! (a log format) is a [`RawValue`].

mod build;
mod environment_variable;
mod foreign_format;
mod foreign_words;
#[cfg(feature = "program")]
pub(crate) mod format;
mod include;
pub(crate) mod model;
mod places;
mod position;
mod problem;
mod reader;
mod requirement;
pub(crate) mod settings;
mod snippet;
mod sources;
mod suggest;
mod text;
mod tree;
mod use_snippet;
pub(crate) mod value;

#[cfg(feature = "program")]
pub(crate) use include::has_wildcard;
pub(crate) use places::{PlacedSetting, Places, SettingLine};
pub(crate) use position::{Span, Texts};
#[cfg(feature = "program")]
pub(crate) use problem::ColouredProblems;
pub(crate) use problem::{Problem, Problems};
pub(crate) use reader::RawValue;
pub(crate) use requirement::{MachineRequirement, MachineRequirementKind, PageUse};
pub(crate) use sources::Sources;

use reader::Reader;
use settings::BlockKind;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tree::Block;

/// A configuration without problems in its text.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: model::Settings,
    /// What the machine has to provide for the settings.
    pub(crate) requirements: Vec<MachineRequirement>,
    /// Values that other modules have to check.
    pub(crate) raw_values: Vec<RawValue>,
    /// The texts, for positions.
    pub(crate) texts: Texts,
    /// Where settings are written.
    pub(crate) places: Arc<Places>,
    /// The included files that are lists of networks or users.
    pub(crate) lists: BTreeSet<PathBuf>,
    /// The files that patterns named, by folder and pattern.
    pub(crate) matches: HashMap<(PathBuf, String), Vec<PathBuf>>,
}

/// Reads a configuration.
///
/// # Errors
/// All problems at once.
pub(crate) fn read(file: &Path, sources: &dyn Sources) -> Result<Configuration, Problems> {
    let mut reader = Reader::new(sources);
    let (settings, requirements, top) = read_settings(file, &mut reader);
    if reader.problems.is_empty() {
        Ok(Configuration {
            settings,
            requirements,
            raw_values: reader.raw_values,
            places: Arc::new(Places::of(&top, &reader.texts)),
            texts: reader.texts,
            lists: reader.lists,
            matches: reader.matches,
        })
    } else {
        let problems = replace_foreign_files(reader.problems, &reader.texts);
        Err(Problems::new(problems, reader.texts).with_requirements(requirements))
    }
}

/// Replaces the problems of each file that is written for another server, or in another format, by one.
fn replace_foreign_files(mut problems: Vec<Problem>, texts: &Texts) -> Vec<Problem> {
    let mut files: Vec<u32> = problems.iter().map(|problem| problem.at.file).collect();
    files.sort_unstable();
    files.dedup();
    for file in files {
        if let Some(format) = foreign_format::recognize(texts.text(file)) {
            problems.retain(|problem| problem.at.file != file);
            let start = format.at as u32;
            let at = Span { file, start, end: start + 1 };
            let problem = Problem::new(at, format!("this is {}", format.name));
            problems.push(problem.suggest(format!("Selvedge reads KDL: see {}", format.page)));
        }
    }
    problems
}

fn read_settings(file: &Path, reader: &mut Reader<'_>) -> (model::Settings, Vec<MachineRequirement>, Block) {
    let nodes = reader.read_file(file, None).unwrap_or_default();
    reader.include_stack.push(file.to_owned());
    reader.collect_snippets(&nodes);
    let top = reader.block(BlockKind::Top, &nodes, Span::default());
    reader.problems.extend(reader.snippets.unused());
    let (settings, requirements) = build::build(&top, reader);
    (settings, requirements, top)
}

/// What a command needs of the configuration of a running server.
#[derive(Debug)]
pub(crate) struct ControlSettings {
    /// Path of the control socket.
    pub(crate) socket: PathBuf,
    pub(crate) shutdown_timeout: Duration,
}

/// Returns what a command needs, as far as it can be read from a configuration that may be invalid.
pub(crate) fn control_settings(file: &Path, sources: &dyn Sources) -> ControlSettings {
    let mut reader = Reader::new(sources);
    let settings = read_settings(file, &mut reader).0;
    ControlSettings { socket: settings.process.control, shutdown_timeout: settings.limits.shutdown_timeout }
}

/// Returns the folder of certificates, as far as it can be read from a configuration that may be invalid.
#[cfg(feature = "program")]
pub(crate) fn certificate_folder(file: &Path, sources: &dyn Sources) -> PathBuf {
    let mut reader = Reader::new(sources);
    read_settings(file, &mut reader).0.certificate_folder
}

#[cfg(test)]
mod tests;
