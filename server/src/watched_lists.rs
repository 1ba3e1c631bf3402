//! Notices changes of included lists: files of networks and users that other programs write.
//!
//! A new list is put into force with the configuration that is running, so that neither a mistake nor an unfinished change
//! in another file delays it or is put into force with it.

use crate::config::{Configuration, Sources, has_wildcard};
use selvedge::service::FileStamp;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The files of a configuration, as they were when it was read.
#[derive(Debug)]
pub(crate) struct WatchedLists {
    lists: BTreeMap<PathBuf, WatchedList>,
    /// The texts of all files. That of a list is used if it does not exist any more and its name is written out.
    texts: HashMap<PathBuf, Arc<str>>,
    /// The files that patterns named, by folder and pattern.
    matches: HashMap<(PathBuf, String), Vec<PathBuf>>,
}

/// A list when it was last looked at.
#[derive(Debug)]
struct WatchedList {
    stamp: Option<FileStamp>,
    /// The number of looks in a row at which it did not exist.
    absences: u32,
}

/// A list that has changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListChange {
    /// It has new content.
    Changed(PathBuf),
    /// It does not exist any more.
    Removed(PathBuf),
}

/// Looks without a list before it counts as removed. A program may replace a file by removing it first.
const ABSENCES_MAX: u32 = 2;

impl WatchedLists {
    /// Begins to watch the lists of a configuration. A list that has changed just now counts as changed at the next look,
    /// because it may have changed after it was read. Of those that were watched before, a removal that was noticed is not
    /// noticed again.
    pub(crate) fn of(configuration: &Configuration, before: Option<&Self>) -> Self {
        let now = SystemTime::now();
        let stamp = |list: &PathBuf| stamp_of(list).filter(|stamp| !stamp.changed_recently(now));
        let absences =
            |list: &PathBuf| before.and_then(|before| before.lists.get(list)).map_or(0, |list| list.absences);
        let watched = |list: &PathBuf| (list.clone(), WatchedList { stamp: stamp(list), absences: absences(list) });
        let texts = configuration.texts.contents();
        Self {
            lists: configuration.lists.iter().map(watched).collect(),
            texts: texts.map(|(path, text)| (path.to_owned(), text.clone())).collect(),
            matches: configuration.matches.clone(),
        }
    }

    /// Returns the lists that have changed since the last call. A list that is being written counts once it is at rest.
    pub(crate) fn take_changes(&mut self) -> Vec<ListChange> {
        let now = SystemTime::now();
        let mut changes = Vec::new();
        for (path, list) in &mut self.lists {
            match stamp_of(path) {
                Some(stamp) if list.stamp != Some(stamp) && !stamp.changed_recently(now) => {
                    *list = WatchedList { stamp: Some(stamp), absences: 0 };
                    changes.push(ListChange::Changed(path.clone()));
                }
                Some(_) => list.absences = 0,
                None => {
                    list.absences = list.absences.saturating_add(1);
                    if list.absences == ABSENCES_MAX {
                        list.stamp = None;
                        changes.push(ListChange::Removed(path.clone()));
                    }
                }
            }
        }
        changes
    }

    /// Returns the files of the running configuration, with its lists as they are now.
    pub(crate) fn running<'a>(&'a self, now: &'a dyn Sources) -> RunningFiles<'a> {
        RunningFiles { lists: self, now }
    }
}

/// The files of the running configuration, with its lists as they are now.
pub(crate) struct RunningFiles<'a> {
    lists: &'a WatchedLists,
    now: &'a dyn Sources,
}

impl Sources for RunningFiles<'_> {
    fn text(&self, file: &Path) -> Result<String, String> {
        let known = self.lists.texts.get(file).filter(|_| !self.lists.lists.contains_key(file) || !file.exists());
        known.map_or_else(|| self.now.text(file), |text| Ok(text.as_ref().to_owned()))
    }

    fn matching_files(&self, folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
        match self.lists.matches.get(&(folder.to_owned(), pattern.to_owned())) {
            // A list that was removed keeps its entries if its name is written out.
            Some(known) => {
                let is_needed =
                    |file: &&PathBuf| !has_wildcard(pattern) || !self.lists.lists.contains_key(*file) || file.exists();
                Ok(known.iter().filter(is_needed).cloned().collect())
            }
            None => self.now.matching_files(folder, pattern),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.now.variable(name)
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    // Not opened, because the file may be a FIFO.
    let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
    is_file.then(|| FileStamp::of(fs::File::open(path).ok()?).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::preflight::Disk;

    #[test]
    fn a_reload_hides_no_removal_and_repeats_none() {
        let folder = std::env::temp_dir().join(format!("selvedge-lists-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, list) = (folder.join("selvedge.kdl"), folder.join("list.kdl"));
        let text = "listen \"127.0.0.1:80\"\nsite \"*\" { ip-access { include \"list.kdl\"; }; route \"/*\" { deny status=403; }; }";
        fs::write(&file, text).unwrap();
        fs::write(&list, "deny \"127.0.0.1\"\n").unwrap();
        let configuration = config::read(&file, &Disk).unwrap();
        let mut lists = WatchedLists::of(&configuration, None);
        fs::remove_file(&list).unwrap();
        assert_eq!(lists.take_changes(), []);
        // Another list has changed.
        let mut lists = WatchedLists::of(&configuration, Some(&lists));
        assert_eq!(lists.take_changes(), [ListChange::Removed(list)]);
        let mut lists = WatchedLists::of(&configuration, Some(&lists));
        assert_eq!(lists.take_changes(), []);
        fs::remove_dir_all(&folder).unwrap();
    }
}
