//! The executable of serving processes. It stays open from its first start, so a restart runs the executable that
//! became ready before, even if its file was replaced or removed.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::dup;
use rustix::param::linux_execfn;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The running executable, by a name that stays valid if its file is moved.
const RUNNING: &str = "/proc/self/exe";

/// The executable of a serving process.
#[derive(Clone, Debug)]
pub(super) struct Executable {
    /// Path of the file when it was opened.
    pub(super) path: PathBuf,
    file: Arc<OwnedFd>,
}

/// A path that starts an executable while this value lives.
#[derive(Debug)]
pub(super) struct ExecHandle<'a> {
    pub(super) path: PathBuf,
    _inherited: Option<OwnedFd>,
    _executable: &'a OwnedFd,
}

impl Executable {
    /// Opens the executable of this process, whose file was at `path` at the start.
    pub(super) fn running(path: PathBuf) -> io::Result<Self> {
        Self::open(Path::new(RUNNING)).map(|own| Self { path, ..own })
    }

    /// Opens the executable that is at a path now.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Opened without read access, which may be forbidden.
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }

    /// Returns a path to execute this file by.
    pub(super) fn exec_handle(&self) -> io::Result<ExecHandle<'_>> {
        let by_number = |file: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // The system opens an executable itself, but the interpreter of a script opens it by path, so the descriptor
        // has to be inherited. No other process starts meanwhile.
        let inherited = if is_script(&by_number(&self.file)) { Some(dup(&self.file)?) } else { None };
        let path = by_number(inherited.as_ref().unwrap_or(&self.file));
        Ok(ExecHandle { path, _inherited: inherited, _executable: &self.file })
    }
}

fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    // A FIFO at the path must not block.
    let Ok(file) = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) else { return false };
    File::from(file).read_exact(&mut start).is_ok() && start == *b"#!"
}

/// Returns the path of the executable, where an upgrade looks for a new one. Call it early: the system's own name
/// follows the file when it is moved.
pub(super) fn started_from() -> io::Result<PathBuf> {
    match path_from_environment() {
        Some(path) => Ok(path),
        None => env::current_exe(),
    }
}

/// Returns the path by which the program was started. It may be a symbolic link, and changing the link installs a new
/// binary.
fn path_from_environment() -> Option<PathBuf> {
    let path = std::path::absolute(Path::new(OsStr::from_bytes(linux_execfn().to_bytes()))).ok()?;
    // A path that names a descriptor belongs to another process at the next start.
    if ["/proc", "/dev"].iter().any(|system| path.starts_with(system)) {
        return None;
    }
    let [started, running] = [path.as_path(), Path::new(RUNNING)].map(|path| fs::metadata(path).ok());
    let (started, running) = (started?, running?);
    ((started.dev(), started.ino()) == (running.dev(), running.ino())).then_some(path)
}
