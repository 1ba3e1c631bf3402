//! A file as it was loaded from the disk, in a form that is `Send`.

use super::content_hash::ContentHash;
use selvedge::proto::encoding::Coding;
use selvedge::service::FileStamp;
use std::fs::File;

/// The maximum size of a file that is cached in memory. Larger ones stay open and are sent by the kernel, which
/// is then cheaper because it copies nothing.
pub(super) const MEMORY_FILE_BYTES_MAX: u64 = 32 * 1024;

/// The first modification time that means something: 1990-01-01, before the first web server. Earlier ones are fixed by
/// tools: 0, 1, 1980-01-01, where the times of archives begin, and 1985-10-26, which packages of npm have.
pub(super) const MEANINGFUL_FROM: i64 = 631_152_000;

/// Later times that mean nothing, either: those that Bazel gives to files of archives (2000-01-01) and of output folders
/// (2010-01-01).
pub(super) const FIXED_TIMES: [i64; 2] = [946_684_800, 1_262_304_000];

/// A file and its precompressed variants.
pub(super) struct LoadedFile {
    /// The last segment of the path, which determines the media type.
    pub(super) name: String,
    pub(super) identity: LoadedVariant,
    pub(super) precompressed: Vec<(Coding, LoadedVariant)>,
    /// The codings of precompressed files that are older than the file, and are reported for the first time.
    pub(super) outdated: Vec<Coding>,
}

/// A variant of a file: its stamp, and its bytes or descriptor.
pub(super) struct LoadedVariant {
    pub(super) stamp: FileStamp,
    pub(super) content: LoadedContent,
    pub(super) identity: ContentIdentity,
}

/// What an entity tag of a variant is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentIdentity {
    Hash(ContentHash),
    /// The time of the last modification and the length.
    Time,
    /// Not known yet: a large file is being hashed.
    Pending,
}

pub(super) enum LoadedContent {
    Memory(Vec<u8>),
    Open(File),
}

/// The known state of a resource.
pub(super) struct KnownStamps {
    /// The stamps of the file and of each precompressed variant.
    pub(super) stamps: Vec<(Option<Coding>, FileStamp)>,
    /// Whether a hash is not known yet.
    pub(super) is_pending: bool,
}
