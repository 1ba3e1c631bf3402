//! Request content that is stored until its length is known: up to 64 KiB in memory, longer content in a file without a
//! name.

use bytes::Bytes;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use selvedge::service::{ContentError, IncomingBody};
use selvedge::spawn_blocking;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest content in memory.
const MEMORY_BYTES_MAX: usize = 64 << 10;
/// Bytes that are written to the file, or read from it, at once.
const PIECE_BYTES: usize = 256 << 10;

/// Stored content.
#[derive(Debug)]
pub(super) enum Spool {
    Memory(Bytes),
    File(SpoolFile),
}

/// Content in a file, which is read from its start.
#[derive(Clone, Debug)]
pub(super) struct SpoolFile {
    file: Arc<File>,
    length: u64,
    at: u64,
}

/// Why content cannot be stored.
#[derive(Debug)]
pub(super) enum SpoolError {
    Content(ContentError),
    /// The temporary file cannot be created or written.
    File(io::Error),
}

impl Spool {
    /// Reads all content, at most `bytes_max`.
    pub(super) async fn read(content: &mut IncomingBody, bytes_max: u64) -> Result<Self, SpoolError> {
        let (mut pending, mut file, mut length) = (Vec::new(), None, 0);
        while let Some(chunk) = content.chunk().await {
            let chunk = chunk.map_err(SpoolError::Content)?;
            length += chunk.len() as u64;
            if length > bytes_max {
                return Err(SpoolError::Content(ContentError::TooLarge));
            }
            pending.extend_from_slice(&chunk);
            let is_full = pending.len() > if file.is_some() { PIECE_BYTES } else { MEMORY_BYTES_MAX };
            if is_full {
                let piece = std::mem::replace(&mut pending, Vec::with_capacity(PIECE_BYTES));
                file = Some(write(file, piece).await.map_err(SpoolError::File)?);
            }
        }
        match file {
            None => Ok(Self::Memory(pending.into())),
            Some(file) => {
                let file = write(Some(file), pending).await.map_err(SpoolError::File)?;
                Ok(Self::File(SpoolFile { file: file.0, length, at: 0 }))
            }
        }
    }

    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(file) => file.length,
        }
    }
}

impl SpoolFile {
    /// Reads the next piece; empty at the end.
    pub(super) async fn read(mut self) -> (Self, io::Result<Bytes>) {
        let count = usize::try_from(self.length - self.at).map_or(PIECE_BYTES, |rest| rest.min(PIECE_BYTES));
        let (file, at) = (self.file.clone(), self.at);
        let read = spawn_blocking(move || {
            let mut piece = vec![0; count];
            file.read_exact_at(&mut piece, at).map(|()| Bytes::from(piece))
        });
        let piece = read.await.unwrap_or_else(|| Err(io::Error::other("the server is stopping")));
        self.at += count as u64;
        (self, piece)
    }
}

/// Appends a piece to the file, which is created for the first one. Also keeps where the next piece begins.
async fn write(file: Option<(Arc<File>, u64)>, piece: Vec<u8>) -> io::Result<(Arc<File>, u64)> {
    let write = move || {
        let (file, at) = match file {
            Some(file) => file,
            None => (Arc::new(create(&env::temp_dir())?), 0),
        };
        file.write_all_at(&piece, at)?;
        Ok((file, at + piece.len() as u64))
    };
    spawn_blocking(write).await.unwrap_or_else(|| Err(io::Error::other("the server is stopping")))
}

/// Creates a file without a name.
fn create(folder: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    match open(folder, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => Ok(file.into()),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => create_and_unlink(folder),
        Err(error) => Err(error.into()),
    }
}

/// Creates a file and removes its name at once, on a file system that has no files without one.
fn create_and_unlink(folder: &Path) -> io::Result<File> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("selvedge-{}-{number}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            file => {
                let file = file?;
                fs::remove_file(&path)?;
                return Ok(file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_have_no_name() {
        let folder = env::temp_dir().join(format!("selvedge-spool-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for file in [create(&folder).unwrap(), create_and_unlink(&folder).unwrap()] {
            file.write_all_at(b"content", 0).unwrap();
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_is_written_and_read_in_pieces() {
        let content: Vec<u8> = (0..2 * PIECE_BYTES + 7).map(|index| (index % 251) as u8).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(async {
            let mut file = None;
            for piece in content.chunks(PIECE_BYTES) {
                file = Some(write(file, piece.to_vec()).await.unwrap());
            }
            let (file, length) = file.unwrap();
            let (mut spool, mut read) = (SpoolFile { file, length, at: 0 }, Vec::new());
            loop {
                let (next, piece) = spool.read().await;
                let piece = piece.unwrap();
                if piece.is_empty() {
                    return read;
                }
                read.extend_from_slice(&piece);
                spool = next;
            }
        });
        assert!(read == content);
    }
}
