//! A file as it was loaded from the disk, in a form that is `Send`.

use rustix::fs::Stat;
use selvedge::proto::encoding::Coding;
use selvedge::service::FileState;
use std::fs::File;

/// The maximum size of a file that is cached in memory. Larger ones stay open and are sent by the kernel, which
/// is then cheaper because it copies nothing.
pub(super) const MEMORY_FILE_BYTES_MAX: u64 = 32 * 1024;

/// A file and its precompressed variants.
pub(super) struct LoadedFile {
    /// The last segment of the path, which determines the media type.
    pub(super) name: String,
    pub(super) identity: LoadedVariant,
    pub(super) precompressed: Vec<(Coding, LoadedVariant)>,
}

/// A variant of a file: its stamp, and its bytes or descriptor.
pub(super) struct LoadedVariant {
    pub(super) stamp: FileStamp,
    pub(super) content: LoadedContent,
}

pub(super) enum LoadedContent {
    Memory(Vec<u8>),
    Open(File),
}

/// Identifies a file and a state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) length: u64,
    pub(super) modified: (i64, u32),
    pub(super) changed: (i64, u32),
}

impl FileStamp {
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            length: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }

    /// Returns the part of the stamp that changes with the content.
    pub(super) fn file_state(&self) -> FileState {
        FileState { length: self.length, modified: (self.modified.0, i64::from(self.modified.1)) }
    }

    /// Whether the content is equal in both states. Deleting or replacing a file changes its stamp, but not the
    /// content of its open descriptor.
    pub(super) fn has_content_of(&self, other: &Self) -> bool {
        (self.length, self.modified) == (other.length, other.modified)
    }
}

fn nanoseconds(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The known stamps of a resource: of the file and of each precompressed variant.
pub(super) type KnownStamps = Vec<(Option<Coding>, FileStamp)>;
