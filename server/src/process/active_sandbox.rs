//! The sandbox in force, and whether it still covers the directories that it was created for.

use super::file_id::FileId;
use super::sandbox::{Coverage, Sandbox};
use std::path::{Path, PathBuf};

/// A sandbox in force. It covers the directories that existed when it was entered; a directory that replaced one of
/// them is out of reach.
#[derive(Clone, Debug)]
pub(crate) struct ActiveSandbox {
    sandbox: Sandbox,
    folders: Vec<(PathBuf, Option<FileId>)>,
}

impl ActiveSandbox {
    /// Records the file IDs of the sandbox's directories.
    pub(crate) fn of(sandbox: Sandbox) -> Self {
        let folders = sandbox.folders().map(|folder| (folder.to_owned(), id_of(folder))).collect();
        Self { sandbox, folders }
    }

    /// Whether it covers everything in `wanted`.
    pub(crate) fn covers(&self, wanted: &Sandbox) -> Coverage {
        match self.replaced_directories().is_empty() {
            true => self.sandbox.covers(wanted),
            false => Coverage::TooNarrow,
        }
    }

    /// Returns directories that replaced those of the sandbox and are out of reach.
    pub(crate) fn replaced_directories(&self) -> Vec<FileId> {
        let now = self.folders.iter().map(|(folder, before)| (before, id_of(folder)));
        let replaced = now.filter_map(|(before, now)| now.filter(|_| now != *before));
        replaced.chain(self.sandbox.folders_outside().filter_map(id_of)).collect()
    }
}

fn id_of(folder: &Path) -> Option<FileId> {
    std::fs::metadata(folder).ok().as_ref().map(FileId::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn recreated_directory_differs_even_with_its_old_inode_number() {
        let folder = std::env::temp_dir().join(format!("selvedge-active-sandbox-{}", std::process::id()));
        let created = || fs::metadata(&folder).and_then(|facts| facts.created());
        fs::create_dir_all(&folder).unwrap();
        let mut sandbox = Sandbox::default();
        sandbox.allow_writing_file(&folder.join("log"));
        let (active, before) = (ActiveSandbox::of(sandbox.clone()), created());
        assert_eq!((active.replaced_directories(), active.covers(&sandbox)), (vec![], Coverage::Enough));
        fs::remove_dir(&folder).unwrap();
        assert_eq!(active.replaced_directories(), [], "no directory replaced it");
        fs::create_dir(&folder).unwrap();
        // The file system's clock is coarse.
        while before.is_ok() && created().ok() == before.as_ref().ok().copied() {
            fs::remove_dir(&folder).unwrap();
            fs::create_dir(&folder).unwrap();
        }
        assert_eq!((active.replaced_directories().len(), active.covers(&sandbox)), (1, Coverage::TooNarrow));
        fs::remove_dir(&folder).unwrap();
    }
}
