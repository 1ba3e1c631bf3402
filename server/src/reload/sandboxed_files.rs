//! The files of a reload, which a sandbox may deny.

use crate::config::Sources;
use crate::preflight::{self, Disk};
use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Reads files within the sandbox, and records whether any was denied.
#[derive(Default)]
pub(super) struct SandboxedFiles<'a> {
    pub(super) is_denied: Cell<bool>,
    /// The text of a file, instead of its content.
    pub(super) replaced: Option<(&'a Path, String)>,
}

impl SandboxedFiles<'_> {
    fn record_denial<T>(&self, result: io::Result<T>) {
        if result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            self.is_denied.set(true);
        }
    }
}

impl Sources for SandboxedFiles<'_> {
    fn text(&self, file: &Path) -> Result<String, String> {
        if let Some((_, text)) = self.replaced.as_ref().filter(|(replaced, _)| *replaced == file) {
            return Ok(text.clone());
        }
        Disk.text(file).inspect_err(|_| self.record_denial(preflight::read_regular(file)))
    }

    fn matching_files(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let folder_of = |pattern: PathBuf| pattern.parent().map(Path::to_owned).unwrap_or(pattern);
        Disk.matching_files(folder, pattern)
            .inspect_err(|_| self.record_denial(fs::read_dir(folder_of(folder.join(pattern)))))
    }

    fn variable(&self, name: &str) -> Option<String> {
        Disk.variable(name)
    }
}
