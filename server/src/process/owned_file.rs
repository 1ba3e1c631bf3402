//! Files owned by one running program: its control socket and pid file. They are removed at the end, unless another
//! program has replaced them.

use super::file_id::FileId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Retries if the file is removed between opening and locking.
const TRIES: usize = 100;

/// A file owned by this process; removed when the value is dropped.
#[derive(Debug)]
pub(super) struct OwnedFile {
    path: PathBuf,
    /// Identifies the file, because another may be at the path later.
    id: FileId,
    /// Locked while the owner lives.
    _lock: Option<File>,
}

impl OwnedFile {
    /// Takes ownership of a socket file that this process has just created.
    pub(super) fn socket(path: &Path) -> io::Result<Self> {
        let id = FileId::from(&fs::metadata(path)?);
        Ok(Self { path: path.to_owned(), id, _lock: None })
    }

    /// Writes the process ID to a file and locks it. A file that another process has locked is not touched.
    pub(super) fn pid_file(path: &Path) -> Result<Self, String> {
        let cannot_write = |error: io::Error| format!("cannot write {}: {error}", path.display());
        for _ in 0..TRIES {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(cannot_write)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(format!("another server has the pid file {}", path.display())),
                locked => locked.map_err(|error| cannot_write(error.into()))?,
            }
            let id = FileId::from(&file.metadata().map_err(cannot_write)?);
            // The previous owner may have removed it before unlocking.
            if fs::metadata(path).is_ok_and(|there| FileId::from(&there) == id) {
                let text = format!("{}\n", std::process::id());
                file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(cannot_write)?;
                return Ok(Self { path: path.to_owned(), id, _lock: Some(file) });
            }
        }
        Err(cannot_write(io::Error::other("another program keeps removing it")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if it is still this one.
    pub(super) fn remove(&self) {
        if fs::metadata(&self.path).is_ok_and(|there| FileId::from(&there) == self.id) {
            // After dropping privileges the removal may be forbidden.
            let _ = fs::remove_file(&self.path);
        }
    }
}
