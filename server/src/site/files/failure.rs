//! Why a path leads to no file.

use rustix::io::Errno;
use selvedge::{Response, Status};

/// Why a path leads to no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) enum Failure {
    /// Nothing of that name, or nothing that is served.
    NotFound,
    /// It is there and may not be read.
    Forbidden,
    /// Too many files are open.
    OutOfDescriptors,
    /// It needs the disk, and this caller does not wait for it; or whoever waits has waited long enough.
    WouldWait,
    /// The system failed.
    System(Errno),
    /// The server is ending.
    Ended,
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::WouldWait,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE => Self::OutOfDescriptors,
            // XDEV is what leaving the root comes to; NXIO and NODEV are special files.
            Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::LOOP | Errno::XDEV => Self::NotFound,
            Errno::NXIO | Errno::NODEV | Errno::ISDIR | Errno::INVAL => Self::NotFound,
            other => Self::System(other),
        }
    }
}

impl From<Failure> for Response {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotFound => Self::error(Status::NOT_FOUND),
            Failure::Forbidden => Self::error(Status::FORBIDDEN).because("the file may not be read by the server"),
            Failure::OutOfDescriptors => {
                let busy = Self::error(Status::SERVICE_UNAVAILABLE).because("too many files are open");
                busy.field("retry-after", "1")
            }
            Failure::System(Errno::IO) => {
                Self::error(Status::INTERNAL_SERVER_ERROR).because("the file could not be read: input/output error")
            }
            Failure::WouldWait => {
                let busy = Self::error(Status::SERVICE_UNAVAILABLE).because("another process holds the file");
                busy.field("retry-after", "1")
            }
            Failure::System(_) => {
                Self::error(Status::INTERNAL_SERVER_ERROR).because("the file could not be opened or read")
            }
            Failure::Ended => Self::error(Status::SERVICE_UNAVAILABLE).because("reading the file was given up"),
        }
    }
}
