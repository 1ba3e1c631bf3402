//! The root of a site, and the only way to open something: beneath it.

use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use rustix::io::Errno;
use selvedge::proto::path::SafePath;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Whether the caller may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) enum Patience {
    /// It does not: what is not in memory is reported as such.
    None,
    /// It does.
    Waits,
}

/// A directory that a site is served from.
#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
}

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    /// When it is no directory, cannot be read, or the kernel cannot open beneath it.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = Self { directory: open(path, flags, Mode::empty())? };
        match root.open_relative(".", Patience::Waits) {
            Err(Errno::NOSYS | Errno::PERM) => Err(std::io::Error::new(
                std::io::ErrorKind::Unsupported,
                "the kernel has no openat2 (Linux 5.6), or a sandbox forbids it; without it no path can be held beneath the root",
            )),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(root),
        }
    }

    /// Opens what a path names, for reading, never outside the root: not by `..`, not by a
    /// symbolic link, not by a link that is swapped in between.
    pub(in crate::site) fn open_beneath(&self, path: &SafePath, patience: Patience) -> rustix::io::Result<OwnedFd> {
        self.open_relative(if path.as_str().is_empty() { "." } else { path.as_str() }, patience)
    }

    fn open_relative(&self, path: &str, patience: Patience) -> rustix::io::Result<OwnedFd> {
        // NONBLOCK: opening a FIFO returns at once, and is then seen to be one.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if patience == Patience::None {
            beneath |= ResolveFlags::CACHED;
        }
        loop {
            match openat2(&self.directory, path, flags, Mode::empty(), beneath) {
                Err(Errno::INTR) => {}
                // A rename somewhere made the walk uncertain; another try decides.
                Err(Errno::AGAIN) if patience == Patience::Waits => {}
                done => return done,
            }
        }
    }
}
