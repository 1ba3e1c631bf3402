//! Files in the codings that they were asked for in, each made once and sent often.
//!
//! Whoever asks first has a file coded on a thread that may wait and compute, with little effort;
//! whoever asks meanwhile waits for the same. Afterwards a thread that only runs when nobody
//! else wants the processor makes it as small as it gets. What is kept is kept under the state of
//! the file, so a file that changed is another. Never reads or codes on the caller's thread.

use crate::service::SharedFile;
use crate::tower::compression::encoder::{Effort, Encoder};
use crate::tower::send_file::FileFacts;
use bytes::Bytes;
use selvedge_proto::encoding::Coding;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// What is kept in all, unless the builder says otherwise.
pub(super) const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest file that is kept, before it is coded. A larger one is coded as it is sent.
pub(super) const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Files coded at once with others waiting for them; more are coded as they are sent.
const MAKING_MAX: usize = 4;
/// Files that wait to be made as small as they get. Each is open. More stay as they are.
const IMPROVING_MAX: usize = 64;
/// What keeping anything costs, beside its bytes.
const ENTRY_BYTES: usize = 256;
/// Read and coded at once.
const PIECE_BYTES: usize = 64 * 1024;
/// A file changed less than this ago may change again without its times showing it.
const SETTLED: Duration = Duration::from_millis(100);

/// Which file, in which state, in which coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    /// Also when its name or its times were set, which `modified` does not show.
    changed: (i64, i64),
    coding: Coding,
}

impl Key {
    fn of(file: &File, coding: Coding) -> io::Result<Self> {
        let facts = file.metadata()?;
        Ok(Self {
            device: facts.dev(),
            inode: facts.ino(),
            length: facts.len(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
            coding,
        })
    }

    /// Whether the next change of the file will show in its times.
    fn is_settled(&self) -> bool {
        let since = |(seconds, nanos): (i64, i64)| {
            let at = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
            SystemTime::now().duration_since(UNIX_EPOCH + at)
        };
        [self.modified, self.changed].into_iter().all(|time| since(time).is_ok_and(|since| since >= SETTLED))
    }
}

/// What came of coding a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// It got smaller.
    Smaller(Bytes),
    /// It did not, and is best sent as it is.
    NoSmaller,
}

impl Made {
    fn bytes(&self) -> usize {
        match self {
            Self::Smaller(bytes) => bytes.len(),
            Self::NoSmaller => 0,
        }
    }
}

/// A file that is being coded: what comes of it, or nothing when it could not be.
pub(super) type Making = Pin<Box<dyn Future<Output = Option<Made>> + Send>>;

/// What there is of a file.
pub(super) enum Found {
    /// It is kept.
    Made(Made),
    /// It will be.
    Making(Making),
    /// It is not for keeping.
    Nothing,
}

/// Whether a file that nobody has asked for yet is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Otherwise {
    Make,
    Leave,
}

/// The bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes_max: usize,
    pub(super) file_bytes_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes_max: KEPT_BYTES_MAX, file_bytes_max: FILE_BYTES_MAX }
    }
}

/// What is kept, by all clones of a layer.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    room: Arc<Room>,
}

#[derive(Debug)]
struct Room {
    bounds: Bounds,
    // Held for a look or a change of the maps and never while anything is read or coded.
    shelf: Mutex<Shelf>,
    /// The improving thread has ended.
    rested: Condvar,
}

#[derive(Debug, Default)]
struct Shelf {
    entries: HashMap<Key, Entry>,
    /// The keys by when they were last used.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
    making: HashMap<Key, watch::Receiver<Option<Made>>>,
    improving: VecDeque<(Arc<SharedFile>, Key)>,
    improver: Improver,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Improver {
    #[default]
    Away,
    Working,
}

#[derive(Debug)]
struct Entry {
    made: Made,
    used: u64,
}

impl Shelf {
    fn get(&mut self, key: &Key) -> Option<Made> {
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.by_use.insert(entry.used, *key);
        Some(entry.made.clone())
    }

    fn put(&mut self, key: Key, made: Made, bytes_max: usize) {
        self.remove(&key);
        let bytes = ENTRY_BYTES + made.bytes();
        if bytes > bytes_max {
            return;
        }
        while self.bytes + bytes > bytes_max
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, Entry { made, used: self.uses });
        self.bytes += bytes;
    }

    fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.remove(key) {
            self.by_use.remove(&entry.used);
            self.bytes -= ENTRY_BYTES + entry.made.bytes();
        }
    }
}

impl Kept {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { room: Arc::new(Room { bounds, shelf: Mutex::default(), rested: Condvar::new() }) }
    }

    pub(super) fn bounds(&self) -> Bounds {
        self.room.bounds
    }

    /// What there is of a file in this coding.
    pub(super) fn find(&self, file: &FileFacts, coding: Coding, otherwise: Otherwise) -> Found {
        let is_whole = file.at == 0 && file.left == file.state.length;
        if !is_whole || file.left > self.room.bounds.file_bytes_max || self.room.bounds.bytes_max == 0 {
            return Found::Nothing;
        }
        let Ok(key) = Key::of(&file.file, coding) else { return Found::Nothing };
        // The answer's fields speak of the state in which it was opened.
        if (key.length, key.modified) != (file.state.length, file.state.modified) {
            return Found::Nothing;
        }
        let mut shelf = self.room.shelf();
        if let Some(made) = shelf.get(&key) {
            return Found::Made(made);
        }
        if otherwise == Otherwise::Leave {
            return Found::Nothing;
        }
        if let Some(making) = shelf.making.get(&key) {
            return Found::Making(wait(making.clone()));
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Found::Nothing };
        if shelf.making.len() >= MAKING_MAX {
            return Found::Nothing;
        }
        let (to, made) = watch::channel(None);
        shelf.making.insert(key, made.clone());
        drop(shelf);
        let (room, file) = (self.room.clone(), file.file.clone());
        runtime.spawn_blocking(move || room.make(file, key, to));
        Found::Making(wait(made))
    }

    /// Waits until everything kept is as small as it gets.
    #[cfg(test)]
    fn rest(&self) {
        let shelf = self.room.shelf();
        let resting = self.room.rested.wait_while(shelf, |shelf| shelf.improver == Improver::Working);
        drop(resting.unwrap_or_else(PoisonError::into_inner));
    }
}

fn wait(mut made: watch::Receiver<Option<Made>>) -> Making {
    // An error when who makes it has panicked.
    Box::pin(async move { made.wait_for(Option::is_some).await.ok().and_then(|made| made.clone()) })
}

/// Takes a file off the list of those being made, however that ends.
struct Leaving<'a>(&'a Room, Key);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.shelf().making.remove(&self.1);
    }
}

impl Room {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Codes a file for those who wait for it.
    fn make(self: Arc<Self>, file: Arc<SharedFile>, key: Key, to: watch::Sender<Option<Made>>) {
        let leaving = Leaving(&self, key);
        let is_settled = key.is_settled();
        let Ok(made) = code(&file, &key, Effort::Content) else { return };
        if is_settled {
            self.shelf().put(key, made.clone(), self.bounds.bytes_max);
        }
        // Kept first, so that nobody comes in between and makes it again.
        drop(leaving);
        if is_settled && made != Made::NoSmaller {
            self.improve_later(file, key);
        }
        to.send_replace(Some(made));
    }

    /// Has a file made as small as it gets when nobody else wants the processor.
    fn improve_later(self: &Arc<Self>, file: Arc<SharedFile>, key: Key) {
        let mut shelf = self.shelf();
        if shelf.improving.len() >= IMPROVING_MAX {
            return;
        }
        shelf.improving.push_back((file, key));
        if shelf.improver == Improver::Working {
            return;
        }
        let room = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("compression".into());
        match thread.spawn(move || improve(&room)) {
            Ok(_) => shelf.improver = Improver::Working,
            // The next file tries again.
            Err(_) => shelf.improving.clear(),
        }
    }

    /// The next file to improve that is still kept; `None` ends the thread.
    fn next_to_improve(&self) -> Option<(Arc<SharedFile>, Key)> {
        let mut shelf = self.shelf();
        while let Some((file, key)) = shelf.improving.pop_front() {
            if shelf.entries.contains_key(&key) {
                return Some((file, key));
            }
        }
        shelf.improver = Improver::Away;
        self.rested.notify_all();
        None
    }

    /// Puts a smaller form in the place of the one that is kept.
    fn improved(&self, key: Key, made: Made) {
        let mut shelf = self.shelf();
        let before = shelf.entries.get(&key).map_or(0, |entry| entry.made.bytes());
        if (1..before).contains(&made.bytes()) {
            shelf.put(key, made, self.bounds.bytes_max);
        }
    }
}

/// What the improving thread does until there is nothing to improve, or nobody to keep it.
fn improve(room: &Weak<Room>) {
    // Of this thread alone, on Linux: it runs when nobody else wants to.
    let _ = rustix::process::nice(19);
    while let Some((file, key)) = room.upgrade().and_then(|room| room.next_to_improve()) {
        // A coder that panics on one file is no reason to leave the others.
        let made = catch_unwind(AssertUnwindSafe(|| code(&file, &key, Effort::Best)));
        if let (Ok(Ok(made)), Some(room)) = (made, room.upgrade()) {
            room.improved(key, made);
        }
    }
}

/// Codes a file that is in this state, and is so afterwards.
fn code(file: &File, key: &Key, effort: Effort) -> io::Result<Made> {
    let mut encoder = Encoder::new(key.coding, effort, Some(key.length))?;
    let mut coded = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < key.length {
        let piece = &mut piece[..(key.length - at).min(PIECE_BYTES as u64) as usize];
        file.read_exact_at(piece, at)?;
        encoder.write(piece)?;
        coded.append(&mut encoder.take());
        at += piece.len() as u64;
    }
    coded.append(&mut encoder.finish()?);
    if Key::of(file, key.coding)? != *key {
        return Err(io::Error::other("the file changed while it was read"));
    }
    if coded.len() as u64 >= key.length {
        return Ok(Made::NoSmaller);
    }
    coded.shrink_to_fit();
    Ok(Made::Smaller(coded.into()))
}

#[cfg(test)]
mod tests;
