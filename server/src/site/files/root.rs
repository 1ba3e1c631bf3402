//! The root directory of a site. The only way to open a file is beneath it.

use super::links;
pub(in crate::site) use super::open::DiskAccess;
use super::open::open_in;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, open, openat, stat};
use rustix::io::Errno;
use selvedge::proto::path::{SafePath, file_path};
use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How paths are opened so that they stay beneath the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenMethod {
    /// With `openat2`: the kernel resolves the path and follows links that stay beneath the root.
    Openat2,
    /// Segment by segment, without following links. Used if `openat2` is missing: before Linux 5.6, and in
    /// sandboxes that do not allow it.
    BySegment,
}

/// A directory that a site is served from.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    directory: OwnedFd,
    /// The device and inode numbers, which identify the directory while it is open.
    file_id: (u64, u64),
    method: OpenMethod,
    /// The folders that symbolic links may lead to, besides the root.
    link_targets: Arc<[PathBuf]>,
    /// The directory that was last opened at this path in place of this one.
    replacement: Mutex<Weak<Self>>,
}

// NONBLOCK: opening a FIFO does not wait. It is rejected by its type afterwards.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
const DIRECTORY: OFlags = READ.union(OFlags::DIRECTORY);

impl Root {
    /// Opens a directory.
    ///
    /// # Errors
    /// If the path is not a directory or cannot be read.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        Self::open_with_links(path, Arc::default())
    }

    /// Opens a directory whose links may also lead to these folders.
    ///
    /// # Errors
    /// If the path is not a directory or cannot be read.
    pub(crate) fn open_with_links(path: &Path, link_targets: Arc<[PathBuf]>) -> std::io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let file_id = file_id(&fstat(&directory)?);
        let mut root = Self {
            path: path.to_owned(),
            directory,
            file_id,
            method: OpenMethod::Openat2,
            link_targets,
            replacement: Mutex::default(),
        };
        match root.open_relative(".", READ, DiskAccess::MayBlock) {
            Err(Errno::NOSYS | Errno::PERM) => root.method = OpenMethod::BySegment,
            result => drop(result?),
        }
        Ok(root)
    }

    /// Returns the root that the path names now. This may be another directory, since sites are often deployed
    /// by swapping a link or a directory. All callers share one new root.
    ///
    /// # Errors
    /// If the path leads nowhere. The caller should keep the directory it has.
    pub(crate) fn current(self: &Arc<Self>) -> std::io::Result<Arc<Self>> {
        let now = file_id(&stat(&self.path)?);
        if now == self.file_id {
            return Ok(self.clone());
        }
        let mut replacement = self.replacement.lock().unwrap_or_else(PoisonError::into_inner);
        match replacement.upgrade() {
            Some(root) if root.file_id == now => Ok(root),
            _ => {
                let opened = Arc::new(Self::open_with_links(&self.path, self.link_targets.clone())?);
                *replacement = Arc::downgrade(&opened);
                Ok(opened)
            }
        }
    }

    /// Whether symbolic links that stay beneath the root are followed.
    pub(crate) fn follows_links(&self) -> bool {
        self.method == OpenMethod::Openat2
    }

    /// Whether a file that is in memory can be opened without a thread that may wait for the disk.
    pub(super) fn knows_what_is_in_memory(&self) -> bool {
        self.method == OpenMethod::Openat2
    }

    /// Opens a path for reading, never outside the root: neither by `..`, nor by a symbolic link, nor by a link
    /// that is swapped in meanwhile.
    pub(in crate::site) fn open_beneath(
        &self,
        path: &SafePath,
        disk_access: DiskAccess,
    ) -> rustix::io::Result<OwnedFd> {
        match self.method {
            OpenMethod::Openat2 => self.open_relative(path.as_str(), READ, disk_access),
            // The system cannot report beforehand whether this would wait.
            OpenMethod::BySegment if disk_access == DiskAccess::CachedOnly => Err(Errno::AGAIN),
            OpenMethod::BySegment => self.open_by_segment(path),
        }
    }

    /// Opens a path beneath the root if it is a directory.
    pub(in crate::site) fn open_directory(&self, path: &str, disk_access: DiskAccess) -> rustix::io::Result<OwnedFd> {
        match self.method {
            OpenMethod::Openat2 => self.open_relative(path, DIRECTORY, disk_access),
            OpenMethod::BySegment => Err(Errno::NOTDIR),
        }
    }

    /// Checks that a path leads to a readable file or, with a trailing slash, to a directory.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn check_readable(&self, path: &SafePath) -> std::io::Result<()> {
        let opened = self.open_beneath(path, DiskAccess::MayBlock)?;
        match FileType::from_raw_mode(fstat(&opened)?.st_mode) {
            FileType::RegularFile => Ok(()),
            FileType::Directory if path.names_directory() => Ok(()),
            _ => Err(std::io::Error::other("not a regular file")),
        }
    }

    /// Returns the metadata of a path beneath the root. Follows links.
    ///
    /// # Errors
    /// If the path leads nowhere or outside the root, or if links are not followed.
    pub(in crate::site) fn stat_beneath(&self, path: &SafePath) -> rustix::io::Result<Stat> {
        if self.method == OpenMethod::BySegment {
            return Err(Errno::LOOP);
        }
        fstat(&self.open_relative(path.as_str(), OFlags::PATH | OFlags::CLOEXEC, DiskAccess::MayBlock)?)
    }

    /// Returns what a path beneath the root is. Follows links. Reads nothing, so it needs no permission to read the file.
    ///
    /// # Errors
    /// If the path leads nowhere or outside the root.
    pub(in crate::site) fn type_beneath(
        &self,
        path: &SafePath,
        disk_access: DiskAccess,
    ) -> rustix::io::Result<FileType> {
        let opened = match self.method {
            OpenMethod::Openat2 => self.open_relative(path.as_str(), OFlags::PATH | OFlags::CLOEXEC, disk_access)?,
            OpenMethod::BySegment => self.open_beneath(path, disk_access)?,
        };
        Ok(FileType::from_raw_mode(fstat(&opened)?.st_mode))
    }

    /// Returns the path that the directory was opened at.
    pub(in crate::site) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a decoded path. A link that the kernel does not follow, because it is absolute or leads out of the root, is
    /// followed segment by segment.
    fn open_relative(&self, path: &str, flags: OFlags, disk_access: DiskAccess) -> rustix::io::Result<OwnedFd> {
        let path = match file_path(path).ok_or(Errno::NOENT)? {
            path if path.is_empty() => Cow::Borrowed(&b"."[..]),
            path => path,
        };
        match open_in(&self.directory, &path, flags, disk_access) {
            // Reads links one by one, which may wait for the disk.
            Err(Errno::XDEV) if disk_access == DiskAccess::CachedOnly => Err(Errno::AGAIN),
            Err(Errno::XDEV) => links::open(&self.directory, &self.path, &self.link_targets, (&path, flags)),
            result => result,
        }
    }

    fn open_by_segment(&self, path: &SafePath) -> rustix::io::Result<OwnedFd> {
        let file = path.file_path().ok_or(Errno::NOENT)?;
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut at = openat(&self.directory, ".", step, Mode::empty())?;
        let mut segments = file.split(|&b| b == b'/').filter(|segment| !segment.is_empty()).peekable();
        while let Some(segment) = segments.next() {
            if segments.peek().is_none() {
                return openat(&at, segment, READ | OFlags::NOFOLLOW, Mode::empty());
            }
            at = openat(&at, segment, step, Mode::empty())?;
        }
        openat(&at, ".", READ, Mode::empty())
    }
}

fn file_id(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_by_segment_follows_no_link() {
        let dir = std::env::temp_dir().join(format!("selvedge-root-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/b/file"), "x").unwrap();
        let _ = std::os::unix::fs::symlink("b", dir.join("a/link"));
        let root = Root { method: OpenMethod::BySegment, ..Root::open(&dir).unwrap() };
        let open =
            |path: &str| root.open_beneath(&SafePath::decode(path.as_bytes()).unwrap(), DiskAccess::MayBlock).map(drop);
        assert_eq!(open("/"), Ok(()));
        assert_eq!(open("/a/b/file"), Ok(()));
        assert_eq!(open("/a/b/"), Ok(()));
        assert_eq!(open("/a/none"), Err(Errno::NOENT));
        assert_eq!(open("/a/link"), Err(Errno::LOOP));
        assert_eq!(open("/a/link/file"), Err(Errno::NOTDIR));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
