//! The program that a serving process runs. It is held open from when it is first started, so
//! that what has become ready is what is started again, whatever becomes of its file.

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

/// What this process runs, by the name that the system has for it whatever becomes of its file.
const RUNNING: &str = "/proc/self/exe";

/// The program that a serving process runs.
#[derive(Clone, Debug)]
pub(super) struct Binary {
    /// Where its file was when it was opened.
    pub(super) path: PathBuf,
    file: Arc<OwnedFd>,
}

/// A way to start a program, which leads there for as long as the value is held.
#[derive(Debug)]
pub(super) struct Startable<'a> {
    pub(super) path: PathBuf,
    _inherited: Option<OwnedFd>,
    _held: &'a OwnedFd,
}

impl Binary {
    /// The one that this process runs, whose file was there when it began.
    pub(super) fn own(path: PathBuf) -> io::Result<Self> {
        Self::open(Path::new(RUNNING)).map(|own| Self { path, ..own })
    }

    /// Whatever is at a path now.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        // Not for reading, which need not be allowed.
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }

    pub(super) fn startable(&self) -> io::Result<Startable<'_>> {
        let by_number = |file: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        // The system opens a program itself, but the interpreter of a script has to find it still
        // open. No other process is started meanwhile, which would have it, too.
        let inherited = if is_script(&by_number(&self.file)) { Some(dup(&self.file)?) } else { None };
        let path = by_number(inherited.as_ref().unwrap_or(&self.file));
        Ok(Startable { path, _inherited: inherited, _held: &self.file })
    }
}

fn is_script(path: &Path) -> bool {
    let mut begins = [0; 2];
    // Whatever is there instead of a file must not be waited for.
    let Ok(file) = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) else { return false };
    File::from(file).read_exact(&mut begins).is_ok() && begins == *b"#!"
}

/// Where the program's file is, which is where a new one is looked for later. To be asked at
/// once: the system's own word for it follows the file to wherever it is moved.
pub(super) fn begun_at() -> io::Result<PathBuf> {
    match as_begun() {
        Some(path) => Ok(path),
        None => env::current_exe(),
    }
}

/// The path that the program was begun by, which may be a link: to turn that to another file is
/// to put a new one in place.
fn as_begun() -> Option<PathBuf> {
    let path = std::path::absolute(Path::new(OsStr::from_bytes(linux_execfn().to_bytes()))).ok()?;
    // Begun by a descriptor, it has a path that is another process's next time.
    if ["/proc", "/dev"].iter().any(|system| path.starts_with(system)) {
        return None;
    }
    let [begun, running] = [path.as_path(), Path::new(RUNNING)].map(|path| fs::metadata(path).ok());
    let (begun, running) = (begun?, running?);
    ((begun.dev(), begun.ino()) == (running.dev(), running.ino())).then_some(path)
}
