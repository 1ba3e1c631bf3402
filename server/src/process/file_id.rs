//! Identifies a file or directory, independent of its path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// Identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
    /// Creation time, because inode numbers are reused. `None` if the file system does not report it.
    created: Option<SystemTime>,
}

impl From<&Metadata> for FileId {
    fn from(facts: &Metadata) -> Self {
        Self { device: facts.dev(), inode: facts.ino(), created: facts.created().ok() }
    }
}
