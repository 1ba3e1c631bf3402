//! Follows the symbolic links that the kernel does not follow beneath a root: absolute ones, and those that lead to another
//! folder that is allowed.
//!
//! Invariant: what is opened is beneath the root or an allowed folder. The links are read one by one and give a folder
//! and a path in it. That path is opened beneath the folder by the kernel, so a link that is swapped in meanwhile leads
//! nowhere else.

use super::open::{DiskAccess, open_in};
use rustix::fs::{FileType, Mode, OFlags, fstat, open as open_path, readlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The maximum number of links in a path. The kernel has the limit 40.
const LINKS_MAX: usize = 16;

/// The folder that a path is resolved in.
enum Folder {
    Root,
    Target { directory: OwnedFd, path: PathBuf },
}

/// Opens a path of a root, following links within the root and to the allowed folders.
///
/// # Errors
/// `XDEV` if a link leads elsewhere, `LOOP` for too many links.
pub(super) fn open(
    root: &OwnedFd,
    root_path: &Path,
    targets: &[PathBuf],
    (path, flags): (&[u8], OFlags),
) -> rustix::io::Result<OwnedFd> {
    let root_path = std::path::absolute(root_path).map_err(|_| Errno::NOENT)?;
    let real_root = fs::canonicalize(&root_path).unwrap_or_else(|_| root_path.clone());
    let mut folder = Folder::Root;
    let mut done = PathBuf::new();
    let mut rest: VecDeque<OsString> = segments(Path::new(OsStr::from_bytes(path)));
    let mut links = 0;
    while let Some(segment) = rest.pop_front() {
        let at = done.join(&segment);
        let (directory, folder_path) = folder.parts(root, &real_root);
        let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = open_in(directory, at.as_os_str().as_bytes(), look, DiskAccess::MayBlock)?;
        if FileType::from_raw_mode(fstat(&entry)?.st_mode) != FileType::Symlink {
            done = at;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = readlinkat(&entry, "", Vec::new())?;
        let target = without_dots(&folder_path.join(&done).join(OsStr::from_bytes(target.as_bytes())));
        let roots = [&root_path, &real_root];
        let (next, beneath) = folder_of(&target, &roots, targets)
            .or_else(|| folder_of(&fs::canonicalize(&target).ok()?, &roots, targets))
            .ok_or(Errno::XDEV)?;
        folder = match next {
            None => Folder::Root,
            Some(path) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Folder::Target { directory: open_path(&path, flags, Mode::empty())?, path }
            }
        };
        done = PathBuf::new();
        let mut linked = segments(&beneath);
        linked.append(&mut rest);
        rest = linked;
    }
    let path = if done.as_os_str().is_empty() { Path::new(".") } else { &done };
    open_in(folder.parts(root, &real_root).0, path.as_os_str().as_bytes(), flags, DiskAccess::MayBlock)
}

impl Folder {
    /// Returns the open folder and its path.
    fn parts<'a>(&'a self, root: &'a OwnedFd, root_path: &'a Path) -> (BorrowedFd<'a>, &'a Path) {
        match self {
            Self::Root => (root.as_fd(), root_path),
            Self::Target { directory, path } => (directory.as_fd(), path),
        }
    }
}

/// Returns the allowed folder of an absolute path (`None` for the root), and the path beneath it.
fn folder_of(path: &Path, roots: &[&PathBuf], targets: &[PathBuf]) -> Option<(Option<PathBuf>, PathBuf)> {
    if let Some(beneath) = roots.iter().find_map(|root| path.strip_prefix(root).ok()) {
        return Some((None, beneath.to_owned()));
    }
    targets.iter().find_map(|target| {
        let target = std::path::absolute(target).ok()?;
        let real = fs::canonicalize(&target).ok()?;
        let beneath = path.strip_prefix(&target).or_else(|_| path.strip_prefix(&real)).ok()?;
        Some((Some(real), beneath.to_owned()))
    })
}

/// Returns the names in a path.
fn segments(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    });
    names.collect()
}

/// Removes `.` and `..` from an absolute path whose folders are no links.
fn without_dots(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(clean.pop()),
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::super::root::Root;
    use super::*;
    use selvedge::proto::path::SafePath;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    #[test]
    fn links_lead_to_the_root_and_to_allowed_folders_only() {
        let folder = std::env::temp_dir().join(format!("selvedge-links-{}", std::process::id()));
        let (root, shared) = (folder.join("www"), folder.join("shared"));
        for made in [root.join("sub"), shared.join("deep"), folder.join("secret")] {
            fs::create_dir_all(made).unwrap();
        }
        for (file, text) in [("www/a", "inside"), ("shared/deep/b", "shared"), ("secret/c", "secret")] {
            fs::write(folder.join(file), text).unwrap();
        }
        for (link, target) in [
            ("absolute", root.join("a")),
            ("sub/up", "../a".into()),
            ("uploads", shared.clone()),
            ("relative", "../shared".into()),
            ("out", folder.join("secret")),
            ("out-relative", "../secret/c".into()),
            ("loop", root.join("loop")),
            ("twice", root.join("uploads/deep")),
            ("dots", shared.join("../secret/c")),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(folder.join("secret"), shared.join("leak")).unwrap();
        symlink(root.join("a"), shared.join("back")).unwrap();
        let read = |root: &Root, path: &str| {
            let opened = root.open_beneath(&SafePath::decode(path.as_bytes()).unwrap(), DiskAccess::MayBlock)?;
            let mut text = String::new();
            fs::File::from(opened).read_to_string(&mut text).map_err(|_| Errno::IO)?;
            Ok(text)
        };
        let (plain, open) = (Root::open(&root).unwrap(), [shared.clone()]);
        let allowed = Root::open_with_links(&root, Arc::from(open)).unwrap();
        for path in ["/absolute", "/sub/up"] {
            assert_eq!(read(&plain, path).as_deref(), Ok("inside"), "{path}");
        }
        for path in ["/uploads/deep/b", "/relative/deep/b", "/twice/b"] {
            assert_eq!(read(&plain, path), Err(Errno::XDEV), "{path}");
            assert_eq!(read(&allowed, path).as_deref(), Ok("shared"), "{path}");
        }
        assert_eq!(read(&allowed, "/uploads/back").as_deref(), Ok("inside"));
        for path in ["/out/c", "/out-relative", "/dots", "/uploads/leak/c"] {
            assert_eq!(read(&allowed, path), Err(Errno::XDEV), "{path}");
        }
        assert_eq!(read(&allowed, "/loop"), Err(Errno::LOOP));
        fs::remove_dir_all(folder).unwrap();
    }
}
