//! The configuration: text in, settings or problems out.
//!
//! ```text
//! text ─► nodes ─► items of the table, defaults filled in ─► the model, with claims on the world
//!  text/   reader, include, variable: all problems at once         build/ ─► model/
//! ```
//!
//! Never touches disk, network or clock: files and variables come through [`Sources`], and
//! what only the world can tell (whether a root exists, a name resolves) is handed on as a
//! [`Claim`] with its place, and what only a room below can (whether a format of the log is
//! one) as a [`Passage`].

mod build;
mod include;
pub(crate) mod model;
mod nearest;
mod place;
mod problem;
mod reader;
pub(crate) mod settings;
mod text;
mod tree;
pub(crate) mod value;
mod variable;

pub(crate) use build::{Claim, Claimed};
pub(crate) use place::{Span, Texts};
pub(crate) use problem::{Problem, Problems};
pub(crate) use reader::Passage;

use reader::Reader;
use settings::Place;
use std::path::{Path, PathBuf};

/// Where files and variables come from.
pub(crate) trait Sources {
    /// The text of a file.
    ///
    /// # Errors
    /// Why it cannot be had, for the operator.
    fn text(&self, file: &Path) -> Result<String, String>;

    /// The files that a pattern names, in the order in which they are to be read. A relative
    /// pattern begins at the folder.
    ///
    /// # Errors
    /// Why the pattern is none.
    fn matches(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String>;

    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
}

/// A configuration that can be used, as far as its text can tell.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) settings: model::Settings,
    /// What the world has to hold for the settings to work.
    pub(crate) claims: Vec<Claim>,
    /// What rooms below have yet to judge.
    pub(crate) passages: Vec<Passage>,
    /// What it was read from, for naming places.
    pub(crate) texts: Texts,
}

/// Reads a configuration.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub(crate) fn read(file: &Path, sources: &dyn Sources) -> Result<Configuration, Problems> {
    let mut reader = Reader::new(sources);
    let (settings, claims) = read_settings(file, &mut reader);
    if reader.problems.is_empty() {
        Ok(Configuration { settings, claims, passages: reader.passages, texts: reader.texts })
    } else {
        Err(Problems::new(reader.problems, reader.texts))
    }
}

fn read_settings(file: &Path, reader: &mut Reader<'_>) -> (model::Settings, Vec<Claim>) {
    let nodes = reader.read_file(file, None).unwrap_or_default();
    reader.stack.push(file.to_owned());
    let top = reader.block(Place::Top, &nodes, Span::default());
    build::build(&top, reader)
}

/// Where the control socket is, as far as it can be told of a configuration that may be wrong.
pub(crate) fn control(file: &Path, sources: &dyn Sources) -> PathBuf {
    let mut reader = Reader::new(sources);
    read_settings(file, &mut reader).0.process.control
}

#[cfg(test)]
mod tests;
