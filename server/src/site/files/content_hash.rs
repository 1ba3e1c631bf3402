//! Hashes of content, for entity tags of files whose modification time does not identify their content.
//!
//! Builds that can be reproduced give all files one time, and copies keep the times of their originals. So two files at one
//! path, of one length and time, can have different content. A hash is equal on several machines and after a restart.
//!
//! A small file is hashed when it is read. A larger one is hashed only if its time does not identify it, on a thread that
//! may wait for the disk, and the hash is kept until the file changes. The largest are hashed by one thread at a time, and
//! sent without an entity tag until then.

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use selvedge::service::FileStamp;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::SystemTime;

/// The maximum size of a file that a request waits for.
pub(super) const WAIT_BYTES_MAX: u64 = 16 << 20;
/// The maximum number of hashes that are kept: 2 MiB of memory.
const KEPT_MAX: usize = 16 * 1024;
/// The maximum number of large files that wait. Another one is hashed at a later request.
const WAITING_MAX: usize = 64;
/// The number of bytes that are read at once.
const READ_BYTES: usize = 256 * 1024;

/// The first part of a BLAKE2b hash, which no two contents share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentHash([u8; 16]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is known of the files of this process.
#[derive(Default)]
struct Hashes {
    known: HashMap<FileStamp, ContentHash>,
    waiting: VecDeque<(File, FileStamp)>,
    /// The file that the thread hashes.
    in_progress: Option<FileStamp>,
}

static HASHES: LazyLock<Mutex<Hashes>> = LazyLock::new(Mutex::default);

fn hashes() -> MutexGuard<'static, Hashes> {
    HASHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hashes content in memory.
pub(super) fn hash_of(bytes: &[u8]) -> ContentHash {
    ContentHash(Blake2b::<U16>::digest(bytes).into())
}

/// Returns the hash of a file in this state, if it is known.
pub(super) fn known_hash(stamp: &FileStamp) -> Option<ContentHash> {
    hashes().known.get(stamp).copied()
}

/// Reads and hashes a file. `None` if it changes meanwhile.
///
/// # Errors
/// If it cannot be read.
pub(super) fn hash_file(file: &File, stamp: &FileStamp) -> std::io::Result<Option<ContentHash>> {
    let mut hasher = Blake2b::<U16>::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut at = 0;
    while at < stamp.length {
        match file.read_at(&mut buffer, at)? {
            0 => return Ok(None),
            count => {
                hasher.update(&buffer[..count]);
                at += count as u64;
            }
        }
    }
    let after = FileStamp::of(file)?;
    if !after.has_content_of(stamp) {
        return Ok(None);
    }
    let hash = ContentHash(hasher.finalize().into());
    // A file that has changed just now may change again and keep its stamp.
    if after == *stamp && !stamp.changed_recently(SystemTime::now()) {
        keep(*stamp, hash);
    }
    Ok(Some(hash))
}

fn keep(stamp: FileStamp, hash: ContentHash) {
    let mut all = hashes();
    if all.known.len() >= KEPT_MAX {
        all.known.clear();
    }
    all.known.insert(stamp, hash);
}

/// Hashes a large file on a thread for all of them.
pub(super) fn hash_later(file: &File, stamp: &FileStamp) {
    let mut all = hashes();
    let is_waiting = all.in_progress == Some(*stamp) || all.waiting.iter().any(|(_, waiting)| waiting == stamp);
    if is_waiting || all.waiting.len() >= WAITING_MAX {
        return;
    }
    let Ok(file) = file.try_clone() else { return };
    all.waiting.push_back((file, *stamp));
    if all.in_progress.is_none() {
        all.in_progress = Some(*stamp);
        drop(all);
        if thread::Builder::new().name("content-hash".to_owned()).spawn(hash_waiting).is_err() {
            hashes().in_progress = None;
        }
    }
}

/// Hashes the files that wait, and ends.
fn hash_waiting() {
    loop {
        let next = {
            let mut all = hashes();
            let next = all.waiting.pop_front();
            all.in_progress = next.as_ref().map(|(_, stamp)| *stamp);
            next
        };
        let Some((file, stamp)) = next else { return };
        // A file that cannot be read has no entity tag, and its response fails.
        let _ = hash_file(&file, &stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_has_one_hash_however_it_is_read() {
        let path = std::env::temp_dir().join(format!("selvedge-hash-{}", std::process::id()));
        let content: Vec<u8> = (0..READ_BYTES * 2 + 7).map(|n| n as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        let stamp = FileStamp::of(&file).unwrap();
        assert_eq!(hash_file(&file, &stamp).unwrap(), Some(hash_of(&content)));
        assert_ne!(hash_of(&content[1..]), hash_of(&content));
        assert_eq!(hash_of(b"").to_string(), "cae66941d9efbd404e4d88758ea67670");
        let other = FileStamp { length: stamp.length + 1, ..stamp };
        assert_eq!(hash_file(&file, &other).unwrap(), None, "a shorter file has changed");
        hash_later(&file, &stamp);
        while known_hash(&stamp).is_none() {
            hash_later(&file, &stamp);
            thread::yield_now();
        }
        assert_eq!(known_hash(&stamp), Some(hash_of(&content)));
        std::fs::remove_file(path).unwrap();
    }
}
