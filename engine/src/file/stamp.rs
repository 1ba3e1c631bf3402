//! The identity and state of a file, and how long a new state is not trusted.

use rustix::fs::Stat;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The steps of timestamps, rounded up.
const STEP: Duration = Duration::from_millis(100);
/// The steps of timestamps on file systems that store no fractions of a second, rounded up from two seconds.
const COARSE_STEP: Duration = Duration::from_secs(3);

/// Identity of a file (device, inode) and of its state (length, times).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileStamp {
    /// Number of the device that contains the file.
    pub device: u64,
    /// Number of the file on its device.
    pub inode: u64,
    /// Length in bytes.
    pub length: u64,
    /// Time of the last modification of the content: Unix seconds and nanoseconds.
    pub modified: (i64, u32),
    /// Time of the last change of content, name, times, owner or mode: Unix seconds and nanoseconds.
    pub changed: (i64, u32),
}

impl FileStamp {
    /// Reads the current stamp of an open file or directory.
    ///
    /// # Errors
    /// If `fstat` fails.
    pub fn of(file: impl AsFd) -> std::io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    /// Converts the result of a `stat` call.
    #[doc(hidden)]
    pub fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)),
            changed: (stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        }
    }

    /// Returns whether the content of an open file is equal in both states. Deleting or renaming a file changes its
    /// stamp, but not the content of its open descriptor.
    pub fn has_content_of(&self, other: &Self) -> bool {
        (self.length, self.modified) == (other.length, other.modified)
    }

    /// Returns whether the file changed so recently that another change may give it an equal stamp. Times ahead of
    /// `now` count as recent, because the clock of a file server may be ahead.
    pub fn changed_recently(&self, now: SystemTime) -> bool {
        let step = if self.changed.1 == 0 { COARSE_STEP } else { STEP };
        !self.is_unchanged_for(step, now)
    }

    /// Returns whether the file last changed at least `time` ago.
    pub(crate) fn is_unchanged_for(&self, time: Duration, now: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanoseconds));
        now.duration_since(UNIX_EPOCH).is_ok_and(|now| now.saturating_sub(changed) >= time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_trusted_after_the_steps_of_its_file_system() {
        let changed = |seconds, nanoseconds| FileStamp {
            device: 1,
            inode: 1,
            length: 0,
            modified: (0, 0),
            changed: (seconds, nanoseconds),
        };
        for (stamp, millis, expected) in [
            (changed(100, 500_000_000), 100_599, true),
            (changed(100, 500_000_000), 100_600, false),
            (changed(100, 0), 102_999, true),
            (changed(100, 0), 103_000, false),
            // A clock that is ahead of ours.
            (changed(160, 1), 100_000, true),
            (changed(-1, 1), 100_000, false),
        ] {
            let now = UNIX_EPOCH + Duration::from_millis(millis);
            assert_eq!(stamp.changed_recently(now), expected, "{stamp:?} {millis}");
        }
    }
}
