//! The root of a site, and the only way to open something: beneath it.

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, stat};
use rustix::io::Errno;
use selvedge::proto::path::SafePath;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

/// Whether the caller may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) enum Patience {
    /// It does not: what is not in memory is reported as such.
    None,
    /// It does.
    Waits,
}

/// How paths are held beneath the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// By `openat2`: the kernel walks the path and follows links that stay beneath.
    Kernel,
    /// Segment by segment, following no link, where there is no `openat2`: kernels before
    /// Linux 5.6, and sandboxes that do not know it.
    Stepwise,
}

/// A directory that a site is served from.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    directory: OwnedFd,
    /// Device and number of the directory, which tell it from any other while it is open.
    identity: (u64, u64),
    opening: Opening,
    /// What was last opened in its place.
    successor: Mutex<Weak<Self>>,
}

// NONBLOCK: opening a FIFO returns at once, and is then seen to be one.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const DIRECTORY: OFlags = READ.union(OFlags::DIRECTORY);

/// How often opening is tried while the system says that another try may help, and the time between two:
/// a fifth of a second in all.
const TRIES_MAX: u32 = 100;
/// See [`TRIES_MAX`].
const PAUSE: Duration = Duration::from_millis(2);

impl Root {
    /// Opens the directory.
    ///
    /// # Errors
    /// When it is no directory or cannot be read.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let identity = identity(&fstat(&directory)?);
        let mut root =
            Self { path: path.to_owned(), directory, identity, opening: Opening::Kernel, successor: Mutex::default() };
        match root.open_relative(".", READ, Patience::Waits) {
            Err(Errno::NOSYS | Errno::PERM) => root.opening = Opening::Stepwise,
            done => drop(done?),
        }
        Ok(root)
    }

    /// The root that its path leads to by now, which may be another directory: a site is often
    /// put in place by swapping a link or a directory. That is opened once for all who ask.
    ///
    /// # Errors
    /// When the path leads nowhere; whoever serves goes on with the directory it has.
    pub(crate) fn of_now(self: &Arc<Self>) -> std::io::Result<Arc<Self>> {
        let now = identity(&stat(&self.path)?);
        if now == self.identity {
            return Ok(self.clone());
        }
        let mut successor = self.successor.lock().unwrap_or_else(PoisonError::into_inner);
        match successor.upgrade() {
            Some(known) if known.identity == now => Ok(known),
            _ => {
                let opened = Arc::new(Self::open(&self.path)?);
                *successor = Arc::downgrade(&opened);
                Ok(opened)
            }
        }
    }

    /// Whether symbolic links that stay beneath the root are followed.
    pub(crate) fn follows_links(&self) -> bool {
        self.opening == Opening::Kernel
    }

    /// Opens what a path names, for reading, never outside the root: not by `..`, not by a
    /// symbolic link, not by a link that is swapped in between.
    pub(in crate::site) fn open_beneath(&self, path: &SafePath, patience: Patience) -> rustix::io::Result<OwnedFd> {
        match self.opening {
            Opening::Kernel if path.as_str().is_empty() => self.open_relative(".", READ, patience),
            Opening::Kernel => self.open_relative(path.as_str(), READ, patience),
            // Whether it would wait cannot be told beforehand.
            Opening::Stepwise if patience == Patience::None => Err(Errno::AGAIN),
            Opening::Stepwise => self.open_stepwise(path),
        }
    }

    /// Opens a directory beneath the root by its path there, and nothing else.
    pub(in crate::site) fn open_directory(&self, path: &str, patience: Patience) -> rustix::io::Result<OwnedFd> {
        match self.opening {
            Opening::Kernel if path.is_empty() => self.open_relative(".", DIRECTORY, patience),
            Opening::Kernel => self.open_relative(path, DIRECTORY, patience),
            Opening::Stepwise => Err(Errno::NOTDIR),
        }
    }

    /// Looks whether a path leads to a file that can be read, or to a directory that may have one.
    ///
    /// # Errors
    /// When it does not.
    pub(crate) fn look(&self, path: &SafePath) -> std::io::Result<()> {
        let opened = self.open_beneath(path, Patience::Waits)?;
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::RegularFile => Ok(()),
            FileType::Directory if path.names_directory() => Ok(()),
            _ => Err(std::io::Error::other("it is no regular file")),
        }
    }

    /// What is known of what a path leads to beneath the root, links followed.
    ///
    /// # Errors
    /// When it leads nowhere, or elsewhere, or links are not followed.
    pub(in crate::site) fn facts(&self, path: &SafePath) -> rustix::io::Result<Stat> {
        if self.opening == Opening::Stepwise {
            return Err(Errno::LOOP);
        }
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        fstat(&openat2(&self.directory, path.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), beneath)?)
    }

    fn open_relative(&self, path: &str, flags: OFlags, patience: Patience) -> rustix::io::Result<OwnedFd> {
        let mut beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if patience == Patience::None {
            beneath |= ResolveFlags::CACHED;
        }
        let mut tries = 0;
        loop {
            match openat2(&self.directory, path, flags, Mode::empty(), beneath) {
                Err(Errno::INTR) => {}
                // A rename somewhere made the walk uncertain, and another try decides; or somebody has a
                // lease on the file and was told to let it go.
                Err(Errno::AGAIN) if patience == Patience::Waits && tries < TRIES_MAX => {
                    tries += 1;
                    thread::sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    fn open_stepwise(&self, path: &SafePath) -> rustix::io::Result<OwnedFd> {
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = openat(&self.directory, ".", step, Mode::empty())?;
        let mut segments = path.segments().peekable();
        while let Some(segment) = segments.next() {
            if segments.peek().is_none() {
                return openat(&at, segment, READ | OFlags::NOFOLLOW, Mode::empty());
            }
            at = openat(&at, segment, step, Mode::empty())?;
        }
        openat(&at, ".", READ, Mode::empty())
    }
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stepwise_opens_what_is_beneath_and_follows_no_link() {
        let dir = std::env::temp_dir().join(format!("selvedge-root-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/b/file"), "x").unwrap();
        let _ = std::os::unix::fs::symlink("b", dir.join("a/link"));
        let root = Root { opening: Opening::Stepwise, ..Root::open(&dir).unwrap() };
        let open =
            |path: &str| root.open_beneath(&SafePath::decode(path.as_bytes()).unwrap(), Patience::Waits).map(drop);
        assert_eq!(open("/"), Ok(()));
        assert_eq!(open("/a/b/file"), Ok(()));
        assert_eq!(open("/a/b/"), Ok(()));
        assert_eq!(open("/a/none"), Err(Errno::NOENT));
        assert_eq!(open("/a/link"), Err(Errno::LOOP));
        assert_eq!(open("/a/link/file"), Err(Errno::NOTDIR));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
