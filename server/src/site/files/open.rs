//! Opens a path beneath an open folder, and never outside of it.

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// Whether the caller may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) enum DiskAccess {
    /// It must not. If a path or file is not in memory, the result is `EAGAIN`.
    CachedOnly,
    /// It may wait.
    MayBlock,
}

/// The maximum number of attempts to open a file while the system returns a temporary error; 0.2 seconds
/// together with [`OPEN_RETRY_PAUSE`].
const OPEN_TRIES_MAX: u32 = 100;
/// The pause between two attempts to open a file.
const OPEN_RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Opens a path beneath a folder. The kernel follows links that are relative and stay there.
pub(super) fn open_in(
    folder: impl AsFd,
    path: &[u8],
    flags: OFlags,
    disk_access: DiskAccess,
) -> rustix::io::Result<OwnedFd> {
    let mut beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if disk_access == DiskAccess::CachedOnly {
        beneath |= ResolveFlags::CACHED;
    }
    let mut tries = 0;
    loop {
        match openat2(&folder, path, flags, Mode::empty(), beneath) {
            Err(Errno::INTR) => {}
            // A concurrent rename made the path resolution uncertain, or another process has a lease on the
            // file and was notified. In both cases, another attempt may succeed.
            Err(Errno::AGAIN) if disk_access == DiskAccess::MayBlock && tries < OPEN_TRIES_MAX => {
                tries += 1;
                thread::sleep(OPEN_RETRY_PAUSE);
            }
            result => return result,
        }
    }
}
