//! A file as it was loaded from the disk, in a form that is `Send`.

use selvedge::proto::encoding::Coding;
use selvedge::service::FileStamp;
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

/// The known stamps of a resource: of the file and of each precompressed variant.
pub(super) type KnownStamps = Vec<(Option<Coding>, FileStamp)>;
