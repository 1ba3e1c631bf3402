//! The sandbox that a process is in, and whether it still holds for what it was made for.

use super::identity::Identity;
use super::sandbox::{Coverage, Sandbox};
use std::path::{Path, PathBuf};

/// A sandbox that a process is in. It holds for the folders that there were when the process
/// entered it: one that was put in the place of another is out of reach.
#[derive(Clone, Debug)]
pub(crate) struct Enclosure {
    sandbox: Sandbox,
    folders: Vec<(PathBuf, Option<Identity>)>,
}

impl Enclosure {
    /// What the folders of a sandbox are at the moment.
    pub(crate) fn of(sandbox: Sandbox) -> Self {
        let folders = sandbox.folders().map(|folder| (folder.to_owned(), identity(folder))).collect();
        Self { sandbox, folders }
    }

    /// Whether it is enough for what a sandbox made now would be for.
    pub(crate) fn covers(&self, wanted: &Sandbox) -> Coverage {
        match self.successors().is_empty() {
            true => self.sandbox.covers(wanted),
            false => Coverage::TooNarrow,
        }
    }

    /// What stands in the place of folders of it now, and is out of reach.
    pub(crate) fn successors(&self) -> Vec<Identity> {
        let now = self.folders.iter().map(|(folder, before)| (before, identity(folder)));
        now.filter_map(|(before, now)| now.filter(|_| now != *before)).collect()
    }
}

fn identity(folder: &Path) -> Option<Identity> {
    std::fs::metadata(folder).ok().as_ref().map(Identity::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_that_is_made_anew_is_another_even_by_the_number_of_the_first() {
        let folder = std::env::temp_dir().join(format!("selvedge-enclosure-{}", std::process::id()));
        let created = || fs::metadata(&folder).and_then(|facts| facts.created());
        fs::create_dir_all(&folder).unwrap();
        let mut sandbox = Sandbox::default();
        sandbox.write_file(&folder.join("log"));
        let (enclosure, before) = (Enclosure::of(sandbox.clone()), created());
        assert_eq!((enclosure.successors(), enclosure.covers(&sandbox)), (vec![], Coverage::Enough));
        fs::remove_dir(&folder).unwrap();
        assert_eq!(enclosure.successors(), [], "nothing took its place");
        fs::create_dir(&folder).unwrap();
        // The file system's clock goes in steps.
        while before.is_ok() && created().ok() == before.as_ref().ok().copied() {
            fs::remove_dir(&folder).unwrap();
            fs::create_dir(&folder).unwrap();
        }
        assert_eq!((enclosure.successors().len(), enclosure.covers(&sandbox)), (1, Coverage::TooNarrow));
        fs::remove_dir(&folder).unwrap();
    }
}
