//! Configurations as an operator writes them: golden files, odd texts, and properties of every text.

mod golden;
mod malformed;
mod places;
mod speed;
mod table;
mod texts;

use super::{Configuration, Problems, Sources, read};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// Files and variables in memory.
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

    fn matching_files(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let mut whole = PathBuf::new();
        for component in folder.join(pattern).components() {
            match component {
                // Above the root is nothing, which is a valid result for a pattern.
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

/// Returns the problems of a text as printed.
pub(super) fn problems(text: &str) -> String {
    match Memory::of(text).read() {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    }
}
