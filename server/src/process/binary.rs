//! The program that a serving process runs: where its file is.

use rustix::param::linux_execfn;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What this process runs, by the name that the system has for it whatever becomes of its file.
const RUNNING: &str = "/proc/self/exe";

/// The program that a serving process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    /// The one that the supervisor runs, even when its file was replaced.
    Own,
    /// Whatever is at that path.
    At(PathBuf),
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
