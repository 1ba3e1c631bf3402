//! The errors of resolving and reading files, and their responses.

use crate::reasons::{LINK_OUT, NO_INDEX};
use rustix::io::Errno;
use selvedge::{Response, StatusCode};

/// Why a path leads to no file that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) enum FileError {
    /// Nothing has this name, or it is not served.
    NotFound,
    /// A symbolic link of the path leads out of the root, to no folder that links may lead to.
    LinkOut,
    /// A directory without an index, and listings are off.
    NoIndex,
    /// The server has no permission to read it.
    Forbidden,
    /// The process or the system has no free file descriptor.
    OutOfDescriptors,
    /// The disk is needed and the caller must not wait, or the wait took too long.
    WouldBlock,
    /// Another error of the system.
    System(Errno),
    /// The server is shutting down.
    ShuttingDown,
}

impl FileError {
    /// Whether the path leads to nothing that is served, so that another path may be tried.
    pub(in crate::site) fn is_missing(self) -> bool {
        matches!(self, Self::NotFound | Self::LinkOut | Self::NoIndex)
    }
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::WouldBlock,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE => Self::OutOfDescriptors,
            Errno::XDEV => Self::LinkOut,
            // NXIO, NODEV: a special file.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP => Self::NotFound,
            Errno::NXIO | Errno::NODEV | Errno::ISDIR | Errno::INVAL => Self::NotFound,
            other => Self::System(other),
        }
    }
}

impl From<FileError> for Response {
    fn from(error: FileError) -> Self {
        match error {
            FileError::NotFound => Self::error(StatusCode::NOT_FOUND),
            FileError::LinkOut => Self::error(StatusCode::NOT_FOUND).log_reason(LINK_OUT),
            FileError::NoIndex => Self::error(StatusCode::NOT_FOUND).log_reason(NO_INDEX),
            FileError::Forbidden => {
                Self::error(StatusCode::FORBIDDEN).log_reason("the server has no permission to read the file")
            }
            FileError::OutOfDescriptors => {
                let busy = Self::error(StatusCode::SERVICE_UNAVAILABLE).log_reason("too many files are open");
                busy.field("retry-after", "1")
            }
            FileError::System(Errno::IO) => {
                Self::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("cannot read the file: input/output error")
            }
            FileError::WouldBlock => {
                let busy =
                    Self::error(StatusCode::SERVICE_UNAVAILABLE).log_reason("another process has a lease on the file");
                busy.field("retry-after", "1")
            }
            FileError::System(_) => {
                Self::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("cannot open or read the file")
            }
            FileError::ShuttingDown => {
                Self::error(StatusCode::SERVICE_UNAVAILABLE).log_reason("the server is shutting down")
            }
        }
    }
}
