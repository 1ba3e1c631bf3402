//! The configuration as an operator meets it: golden files, odd texts, and what holds for
//! every text.

mod golden;
mod nasty;
mod speed;
mod table;
mod texts;

use super::{Configuration, Problems, Sources, read};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Files and variables that are nowhere but here.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) files: BTreeMap<PathBuf, String>,
    pub(super) variables: BTreeMap<String, String>,
}

impl Memory {
    pub(super) fn of(text: &str) -> Self {
        Self { files: BTreeMap::from([("selvedge.kdl".into(), text.to_owned())]), ..Self::default() }
    }

    pub(super) fn read(&self) -> Result<Configuration, Problems> {
        read(Path::new("selvedge.kdl"), self)
    }
}

impl Sources for Memory {
    fn text(&self, file: &Path) -> Result<String, String> {
        self.files.get(file).cloned().ok_or_else(|| "it does not exist".to_owned())
    }

    fn matches(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let mut whole = PathBuf::new();
        for component in folder.join(pattern).components() {
            match component {
                // Above everything there is nothing, which is an answer: configurations may say anything.
                Component::ParentDir if !whole.pop() => return Ok(Vec::new()),
                Component::ParentDir => {}
                component => whole.push(component),
            }
        }
        let pattern = glob::Pattern::new(whole.to_str().unwrap()).map_err(|error| error.to_string())?;
        Ok(self.files.keys().filter(|file| pattern.matches_path(file)).cloned().collect())
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }
}

/// The problems of a text, as they are printed.
pub(super) fn problems(text: &str) -> String {
    match Memory::of(text).read() {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    }
}
