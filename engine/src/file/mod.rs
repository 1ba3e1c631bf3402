//! Open files: their stamps, their copies in memory, and ranges of them.
//!
//! This module never names a socket, a runtime or HTTP.

mod content;
mod memory_limit;
mod open_file;
mod sealed_copy;
mod stamp;

pub use content::FileContent;
pub(crate) use content::FileRange;
pub use open_file::OpenFile;
pub(crate) use open_file::SharedFile;
pub(crate) use sealed_copy::{SWEEP_INTERVAL, SealedCopy, SendSource, SweeperGuard, sweep};
pub use stamp::FileStamp;
