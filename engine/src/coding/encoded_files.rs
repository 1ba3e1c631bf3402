//! A cache of encoded files: each file is encoded once per coding and state, and sent often.
//!
//! On a miss, a blocking thread encodes the file at a low level; concurrent requests wait for that
//! result. Then a low-priority thread recompresses the file at the highest level. The cache key
//! includes the state of the file, so a changed file is a miss. Never reads or encodes on the
//! caller's thread.

use crate::cache::Cache;
use crate::coding::encoder::{CompressionLevel, Encoder};
use crate::file::{FileRange, FileStamp, SharedFile};
use bytes::Bytes;
use selvedge_proto::encoding::Coding;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;
use tokio::sync::watch;

/// Default maximum size of the cache.
pub(crate) const CACHE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Default maximum size of a cached file before encoding. Larger files are encoded while they are sent.
pub(crate) const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Maximum number of files that are encoded at once while requests wait; more are encoded while sent.
const ENCODINGS_IN_FLIGHT_MAX: usize = 4;
/// Maximum number of files waiting for recompression. Each stays open. More are not recompressed.
const RECOMPRESS_QUEUE_MAX: usize = 64;
/// Overhead of a cache entry, in addition to its bytes.
const ENTRY_BYTES: usize = 256;
/// Memory of an encoder for content that a request waits for.
const ENCODER_BYTES_MAX: u64 = 1_200 << 10;
/// Memory of an encoder at the highest level.
const BEST_ENCODER_BYTES_MAX: u64 = 70 << 20;
/// Bytes that are read and encoded at once.
const READ_BYTES: usize = 64 * 1024;

/// A state of a file, and the coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct CacheKey {
    /// With all times: renaming a file or setting its times also changes it.
    stamp: FileStamp,
    coding: Coding,
}

/// The result of encoding a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EncodedFile {
    /// The encoded content, which is smaller than the file. The cache owns it: keep it weakly, so that its memory is
    /// free when the cache drops it.
    Smaller(Arc<Bytes>),
    /// Encoding did not make it smaller, so the file is sent unencoded.
    NotSmaller,
}

/// A whole file that is encoded.
#[derive(Clone, Debug)]
pub(crate) enum WholeFile {
    Open(Arc<SharedFile>),
    /// Its bytes, in the state of the stamp.
    Memory(Bytes),
}

impl EncodedFile {
    /// Returns the memory of a cache entry.
    fn entry_bytes(&self) -> usize {
        match self {
            Self::Smaller(bytes) => ENTRY_BYTES + bytes.len(),
            Self::NotSmaller => ENTRY_BYTES,
        }
    }
}

/// A file that is being encoded. Resolves to `None` if that failed.
pub(crate) type PendingEncoding = Pin<Box<dyn Future<Output = Option<EncodedFile>> + Send>>;

/// The result of a cache lookup.
pub(crate) enum CacheLookup {
    /// The file is cached.
    Hit(EncodedFile),
    /// The file is being encoded.
    Pending(PendingEncoding),
    /// The cache does not serve this file.
    Bypass,
}

/// What to do on a cache miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnMiss {
    Encode,
    Skip,
}

/// The limits of the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheBounds {
    pub(crate) bytes_max: usize,
    pub(crate) file_bytes_max: u64,
}

impl Default for CacheBounds {
    fn default() -> Self {
        Self { bytes_max: CACHE_BYTES_MAX, file_bytes_max: FILE_BYTES_MAX }
    }
}

/// The cache of encoded files, which threads share.
#[derive(Clone, Debug)]
pub(crate) struct EncodedFiles {
    inner: Arc<CacheInner>,
}

#[derive(Debug)]
struct CacheInner {
    bounds: CacheBounds,
    // Locked only to access the maps, never while a file is read or encoded.
    state: Mutex<CacheState>,
    /// Notified when the recompression thread has ended.
    recompress_ended: Condvar,
}

#[derive(Debug)]
struct CacheState {
    entries: Cache<CacheKey, EncodedFile>,
    in_flight: HashMap<CacheKey, watch::Receiver<Option<EncodedFile>>>,
    recompress_queue: VecDeque<(WholeFile, CacheKey)>,
    recompress_thread: RecompressThread,
}

#[derive(Debug, PartialEq, Eq)]
enum RecompressThread {
    Stopped,
    Running,
}

impl EncodedFiles {
    pub(crate) fn new(bounds: CacheBounds) -> Self {
        let state = CacheState {
            entries: Cache::new(bounds.bytes_max),
            in_flight: HashMap::new(),
            recompress_queue: VecDeque::new(),
            recompress_thread: RecompressThread::Stopped,
        };
        Self { inner: Arc::new(CacheInner { bounds, state: Mutex::new(state), recompress_ended: Condvar::new() }) }
    }

    /// Returns the most memory in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        let CacheBounds { bytes_max, file_bytes_max } = self.inner.bounds;
        // Each encoding has its result, which is shorter than the file, and its encoder.
        bytes_max as u64
            + ENCODINGS_IN_FLIGHT_MAX as u64 * (file_bytes_max + ENCODER_BYTES_MAX)
            + file_bytes_max
            + BEST_ENCODER_BYTES_MAX
    }

    pub(crate) fn bounds(&self) -> CacheBounds {
        self.inner.bounds
    }

    /// Looks up a file in this coding. On a miss, starts to encode it if `on_miss` requires it.
    pub(crate) fn find(&self, file: &FileRange, coding: Coding, on_miss: OnMiss) -> CacheLookup {
        let is_whole = file.offset == 0 && file.length == file.stamp.length;
        let Ok(stamp) = FileStamp::of(&**file.file) else { return CacheLookup::Bypass };
        // The response's fields describe the state in which the file was opened.
        if !is_whole || !stamp.has_content_of(&file.stamp) {
            return CacheLookup::Bypass;
        }
        self.find_whole(|| WholeFile::Open(file.file.clone()), CacheKey { stamp, coding }, on_miss)
    }

    /// Looks up a file that is in memory, in the state of this stamp.
    pub(crate) fn find_in_memory(
        &self,
        (stamp, bytes): (&FileStamp, &Bytes),
        coding: Coding,
        on_miss: OnMiss,
    ) -> CacheLookup {
        self.find_whole(|| WholeFile::Memory(bytes.clone()), CacheKey { stamp: *stamp, coding }, on_miss)
    }

    /// Returns the encoded file in this state, if it is cached.
    pub(crate) fn stored(&self, stamp: &FileStamp, coding: Coding) -> Option<EncodedFile> {
        self.inner.lock_state().entries.get(&CacheKey { stamp: *stamp, coding }).cloned()
    }

    fn find_whole(&self, file: impl FnOnce() -> WholeFile, key: CacheKey, on_miss: OnMiss) -> CacheLookup {
        if key.stamp.length > self.inner.bounds.file_bytes_max || self.inner.bounds.bytes_max == 0 {
            return CacheLookup::Bypass;
        }
        let mut state = self.inner.lock_state();
        if let Some(encoded) = state.entries.get(&key) {
            return CacheLookup::Hit(encoded.clone());
        }
        if on_miss == OnMiss::Skip {
            return CacheLookup::Bypass;
        }
        if let Some(pending) = state.in_flight.get(&key) {
            return CacheLookup::Pending(wait(pending.clone()));
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return CacheLookup::Bypass };
        if state.in_flight.len() >= ENCODINGS_IN_FLIGHT_MAX {
            return CacheLookup::Bypass;
        }
        let (sender, receiver) = watch::channel(None);
        state.in_flight.insert(key, receiver.clone());
        drop(state);
        let (inner, file) = (self.inner.clone(), file());
        runtime.spawn_blocking(move || inner.encode_for_waiters(file, key, sender));
        CacheLookup::Pending(wait(receiver))
    }

    /// Waits until no recompression is pending.
    #[cfg(test)]
    fn wait_for_recompression(&self) {
        let state = self.inner.lock_state();
        let ended =
            self.inner.recompress_ended.wait_while(state, |state| state.recompress_thread == RecompressThread::Running);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

fn wait(mut receiver: watch::Receiver<Option<EncodedFile>>) -> PendingEncoding {
    // `wait_for` fails if the encoding thread has panicked.
    Box::pin(async move { receiver.wait_for(Option::is_some).await.ok().and_then(|encoded| encoded.clone()) })
}

/// Removes a file from `in_flight` on drop, also if encoding fails or panics.
struct RemoveInFlight<'a>(&'a CacheInner, CacheKey);

impl Drop for RemoveInFlight<'_> {
    fn drop(&mut self) {
        self.0.lock_state().in_flight.remove(&self.1);
    }
}

impl CacheInner {
    fn lock_state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a file and sends the result to the waiting requests.
    fn encode_for_waiters(self: Arc<Self>, file: WholeFile, key: CacheKey, sender: watch::Sender<Option<EncodedFile>>) {
        let in_flight = RemoveInFlight(&self, key);
        let is_stable = !key.stamp.changed_recently(SystemTime::now());
        let Ok(encoded) = encode_file(&file, &key, CompressionLevel::WhileSending) else { return };
        if is_stable {
            self.lock_state().entries.insert(key, encoded.clone(), encoded.entry_bytes());
        }
        // Insert first, so that no concurrent request misses and encodes the file again.
        drop(in_flight);
        if is_stable && encoded != EncodedFile::NotSmaller {
            self.queue_recompression(file, key);
        }
        sender.send_replace(Some(encoded));
    }

    /// Queues a file for recompression by the low-priority thread, and starts the thread if necessary.
    fn queue_recompression(self: &Arc<Self>, file: WholeFile, key: CacheKey) {
        let mut state = self.lock_state();
        if state.recompress_queue.len() >= RECOMPRESS_QUEUE_MAX {
            return;
        }
        state.recompress_queue.push_back((file, key));
        if state.recompress_thread == RecompressThread::Running {
            return;
        }
        let inner = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("compression".into());
        match thread.spawn(move || run_recompress_thread(&inner)) {
            Ok(_) => state.recompress_thread = RecompressThread::Running,
            // The next file tries again to start the thread.
            Err(_) => state.recompress_queue.clear(),
        }
    }

    /// Returns the next queued file that is still cached, or `None`, which ends the thread.
    fn next_recompress_job(&self) -> Option<(WholeFile, CacheKey)> {
        let mut state = self.lock_state();
        while let Some((file, key)) = state.recompress_queue.pop_front() {
            if state.entries.peek(&key).is_some() {
                return Some((file, key));
            }
        }
        state.recompress_thread = RecompressThread::Stopped;
        self.recompress_ended.notify_all();
        None
    }

    /// Replaces the cached result if the recompressed one is smaller.
    fn store_recompressed(&self, key: CacheKey, encoded: EncodedFile) {
        let mut state = self.lock_state();
        let is_smaller = state.entries.peek(&key).is_some_and(|known| encoded.entry_bytes() < known.entry_bytes());
        if is_smaller && encoded != EncodedFile::NotSmaller {
            let bytes = encoded.entry_bytes();
            state.entries.insert(key, encoded, bytes);
        }
    }
}

/// Recompresses queued files until the queue is empty or the cache is dropped.
fn run_recompress_thread(inner: &Weak<CacheInner>) {
    // On Linux this applies to the calling thread only.
    let _ = rustix::process::nice(19);
    while let Some((file, key)) = inner.upgrade().and_then(|inner| inner.next_recompress_job()) {
        // A panic of an encoder on one file must not prevent recompression of others.
        let encoded = catch_unwind(AssertUnwindSafe(|| encode_file(&file, &key, CompressionLevel::Best)));
        if let (Ok(Ok(encoded)), Some(inner)) = (encoded, inner.upgrade()) {
            inner.store_recompressed(key, encoded);
        }
    }
}

/// Encodes a file. Fails if the file is not in the state of the key after it was read.
fn encode_file(file: &WholeFile, key: &CacheKey, level: CompressionLevel) -> io::Result<EncodedFile> {
    let mut encoder = Encoder::new(key.coding, level, Some(key.stamp.length))?;
    let mut encoded = match file {
        WholeFile::Open(file) => encode_open(file, key, &mut encoder)?,
        WholeFile::Memory(bytes) => {
            encoder.write(bytes)?;
            encoder.take_output()
        }
    };
    encoded.append(&mut encoder.finish()?);
    if encoded.len() as u64 >= key.stamp.length {
        return Ok(EncodedFile::NotSmaller);
    }
    encoded.shrink_to_fit();
    Ok(EncodedFile::Smaller(Arc::new(encoded.into())))
}

/// Encodes the content of an open file.
fn encode_open(file: &File, key: &CacheKey, encoder: &mut Encoder) -> io::Result<Vec<u8>> {
    let mut encoded = Vec::new();
    let mut chunk = vec![0; READ_BYTES];
    let mut at = 0;
    while at < key.stamp.length {
        let chunk = &mut chunk[..(key.stamp.length - at).min(READ_BYTES as u64) as usize];
        file.read_exact_at(chunk, at)?;
        encoder.write(chunk)?;
        encoded.append(&mut encoder.take_output());
        at += chunk.len() as u64;
    }
    if FileStamp::of(file)? != key.stamp {
        return Err(io::Error::other("the file changed while it was read"));
    }
    Ok(encoded)
}

#[cfg(test)]
mod tests;
