//! What tells a file or a folder from another that has come to its path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// Which one it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// The number of one that was removed is soon another's. Where the file system does not tell,
    /// it has to do.
    created: Option<SystemTime>,
}

impl From<&Metadata> for Identity {
    fn from(facts: &Metadata) -> Self {
        Self { device: facts.dev(), inode: facts.ino(), created: facts.created().ok() }
    }
}
