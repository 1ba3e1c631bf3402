//! Files that are one running program's: its control socket, and the file with its number. They
//! are removed at the end, unless they are another's by then.

use super::identity::Identity;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How often the file may be removed between its opening and its lock: by one that ends each time.
const TRIES: usize = 100;

/// A file that is this program's, until the value is removed.
#[derive(Debug)]
pub(super) struct OwnFile {
    path: PathBuf,
    /// Which file it is, whatever is at the path later.
    identity: Identity,
    /// Locked, where others have to see that the one who made it lives.
    _lock: Option<File>,
}

impl OwnFile {
    /// One that this program has just made.
    pub(super) fn made(path: &Path) -> io::Result<Self> {
        let identity = Identity::from(&fs::metadata(path)?);
        Ok(Self { path: path.to_owned(), identity, _lock: None })
    }

    /// Writes the number of this process to a file, and holds that for as long as it lives. One
    /// that another process holds is not touched.
    pub(super) fn with_process_number(path: &Path) -> Result<Self, String> {
        let cannot_write = |error: io::Error| format!("cannot write {}: {error}", path.display());
        for _ in 0..TRIES {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(cannot_write)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(format!("another server has the pid file {}", path.display())),
                locked => locked.map_err(|error| cannot_write(error.into()))?,
            }
            let identity = Identity::from(&file.metadata().map_err(cannot_write)?);
            // Its owner may have removed it before it let go.
            if fs::metadata(path).is_ok_and(|there| Identity::from(&there) == identity) {
                let text = format!("{}\n", std::process::id());
                file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(cannot_write)?;
                return Ok(Self { path: path.to_owned(), identity, _lock: Some(file) });
            }
        }
        Err(cannot_write(io::Error::other("others remove it again and again")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, where it still is.
    pub(super) fn remove(&self) {
        if fs::metadata(&self.path).is_ok_and(|there| Identity::from(&there) == self.identity) {
            // Whoever has become another user may not be allowed to.
            let _ = fs::remove_file(&self.path);
        }
    }
}
