//! The state of a file, and the detection of changes to it.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file changed less than this ago may change again without a change of its times, which
/// have a granularity of a few milliseconds.
const MTIME_GRANULARITY: Duration = Duration::from_millis(100);

/// Length and modification time of a file, which identify one state of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Length in bytes.
    pub length: u64,
    /// Time of the last modification: Unix seconds and nanoseconds.
    pub modified: (i64, i64),
}

impl FileState {
    /// Reads the current state of a file.
    ///
    /// # Errors
    /// If `fstat` fails.
    pub fn of(file: &File) -> std::io::Result<Self> {
        file.metadata().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileState {
    fn from(metadata: &Metadata) -> Self {
        Self { length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

/// Identity of a file (device, inode) and of its state (length, mtime, ctime).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    pub(crate) state: FileState,
    ctime: (i64, i64),
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            state: FileState::from(metadata),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl FileStamp {
    /// Returns whether the next change of the file will change its times.
    pub(crate) fn is_stable(&self) -> bool {
        self.is_older_than(MTIME_GRANULARITY)
    }

    /// Returns whether the file was last changed at least `time` ago.
    pub(crate) fn is_older_than(&self, time: Duration) -> bool {
        let (seconds, nanoseconds) = self.ctime;
        let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(changed) >= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_changed_file_is_not_stable() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let changed = |at: Duration| {
            let at = (at.as_secs() as i64, i64::from(at.subsec_nanos()));
            FileStamp { device: 1, inode: 1, state: FileState { length: 0, modified: at }, ctime: at }
        };
        assert!(changed(now - MTIME_GRANULARITY).is_stable());
        // A clock that is ahead of ours also counts as recent.
        assert!(!changed(now + Duration::from_secs(60)).is_stable());
    }
}
