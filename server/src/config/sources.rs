//! Where the configuration gets files and variables from.

use std::path::{Path, PathBuf};

/// Provides files and variables.
pub(crate) trait Sources {
    /// Returns the text of a file.
    ///
    /// # Errors
    /// Why the file cannot be read, for the operator.
    fn text(&self, file: &Path) -> Result<String, String>;

    /// Returns the files that a pattern names, in the order of reading. A relative pattern starts at `folder`.
    ///
    /// # Errors
    /// Why the pattern is invalid.
    fn matching_files(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String>;

    /// Returns an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
}
