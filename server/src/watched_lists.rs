//! Notices changes of included lists: files of networks and users that other programs write.

use crate::config::Configuration;
use selvedge::service::FileStamp;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The lists of a configuration, as they were when it was read.
#[derive(Debug)]
pub(crate) struct WatchedLists(Vec<(PathBuf, Option<FileStamp>)>);

impl WatchedLists {
    /// Begins to watch the lists of a configuration. A list that has changed just now counts as changed at the next look,
    /// because it may have changed after it was read.
    pub(crate) fn of(configuration: &Configuration) -> Self {
        let now = SystemTime::now();
        let stamp = |list: &PathBuf| stamp_of(list).filter(|stamp| !stamp.changed_recently(now));
        Self(configuration.lists.iter().map(|list| (list.clone(), stamp(list))).collect())
    }

    /// Returns a list that has changed since the last call. A list that is being written counts once it is at rest, and a
    /// list that does not exist has not changed.
    pub(crate) fn take_changed(&mut self) -> Option<PathBuf> {
        let now = SystemTime::now();
        let mut changed = None;
        for (list, known) in &mut self.0 {
            match stamp_of(list) {
                Some(stamp) if *known != Some(stamp) && !stamp.changed_recently(now) => {
                    *known = Some(stamp);
                    changed = Some(list.clone());
                }
                _ => {}
            }
        }
        changed
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    // Not opened, because the file may be a FIFO.
    let is_file = fs::metadata(path).is_ok_and(|facts| facts.is_file());
    is_file.then(|| FileStamp::of(fs::File::open(path).ok()?).ok()).flatten()
}
