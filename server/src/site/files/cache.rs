//! The file cache of a worker for all its sites, bounded in entries, bytes and open files.
//!
//! It is a two-generation LRU cache. A file that is used moves to the current generation. When that is full or
//! old enough, it becomes the previous one, and the entries of the previous one are evicted. So files in use
//! stay, deleted files are closed in time, and a request never sorts anything.
//!
//! Evicted entries are dropped gradually, because dropping thousands at once would delay all connections of the
//! worker. All entries together, including evicted ones, stay within the limits of two generations.

use super::cache_key::{CacheKey, CacheKeyRef, CacheNamespace};
use super::directories::DirectoryCache;
use super::resource::Resource;
use foldhash::fast::RandomState;
use hashbrown::{HashMap, hash_map};
use std::rc::Rc;
use std::time::Duration;

/// The maximum number of entries of a generation.
const ENTRIES_MAX: usize = 8 * 1024;
/// The maximum memory of a generation in bytes.
pub(crate) const BYTES_MAX: usize = 32 << 20;
/// The maximum time that a generation is the current one.
///
/// While the worker gets requests, an unused file stays open for at most twice this time plus
/// [`EVICTION_TIME`]. Until then a deleted file takes space on the disk.
const GENERATION_TIME: Duration = Duration::from_secs(60);
/// The time within which evicted entries are dropped, evenly spread, also at low load.
const EVICTION_TIME: Duration = Duration::from_secs(30);
/// The maximum number of open files of one generation, on all workers together.
const OPEN_FILES_MAX: usize = 2048;

/// A cached file and the time at which it was last checked for changes.
pub(super) struct CacheEntry {
    pub(super) resource: Rc<Resource>,
    pub(super) checked_at: Duration,
    /// Memory in bytes that counts towards the limit.
    bytes: usize,
    open_files: usize,
}

/// A generation and the sums of its entries. The hash is keyed with a secret, because clients choose the paths
/// if a route has stars.
#[derive(Default)]
struct CacheGeneration {
    files: HashMap<CacheKey, CacheEntry, RandomState>,
    bytes: usize,
    open_files: usize,
}

impl CacheGeneration {
    fn insert(&mut self, key: CacheKey, entry: CacheEntry) {
        self.bytes += entry.bytes;
        self.open_files += entry.open_files;
        self.files.insert(key, entry);
    }

    fn remove(&mut self, key: &CacheKeyRef<'_>) -> Option<CacheEntry> {
        let entry = self.files.remove(key)?;
        self.bytes -= entry.bytes;
        self.open_files -= entry.open_files;
        Some(entry)
    }

    fn remove_namespace(&mut self, namespace: CacheNamespace) {
        let (bytes, open) = (&mut self.bytes, &mut self.open_files);
        self.files.retain(|key, entry| {
            if key.namespace == namespace {
                *bytes -= entry.bytes;
                *open -= entry.open_files;
            }
            key.namespace != namespace
        });
    }
}

/// Entries that are evicted but not dropped yet.
struct Evicted {
    files: hash_map::IntoIter<CacheKey, CacheEntry>,
    bytes: usize,
    open_files: usize,
    /// The number of entries at the start.
    initial_count: usize,
    started_at: Duration,
}

impl Evicted {
    fn new(CacheGeneration { files, bytes, open_files }: CacheGeneration, started_at: Duration) -> Self {
        Self { initial_count: files.len(), files: files.into_iter(), bytes, open_files, started_at }
    }

    /// Drops an entry. Returns false if none is left.
    fn evict_one(&mut self) -> bool {
        let next = self.files.next();
        if let Some((_, entry)) = &next {
            self.bytes -= entry.bytes;
            self.open_files -= entry.open_files;
        }
        next.is_some()
    }

    /// Whether more entries are left than [`EVICTION_TIME`] allows now.
    fn is_behind_schedule(&self, now: Duration) -> bool {
        let time_left = EVICTION_TIME.saturating_sub(now.saturating_sub(self.started_at));
        self.files.len() as f64 > self.initial_count as f64 * time_left.as_secs_f64() / EVICTION_TIME.as_secs_f64()
    }
}

pub(in crate::site) struct FileCache {
    current: CacheGeneration,
    previous: CacheGeneration,
    /// Evicted entries that are not dropped yet.
    evicted: Evicted,
    current_since: Duration,
    open_files_max: usize,
    namespaces: u32,
    /// The cached directories, which have the namespaces of the files.
    pub(super) directories: Rc<DirectoryCache>,
}

impl FileCache {
    pub(in crate::site) fn new(workers: usize) -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
        // A sixteenth of the file descriptors, shared by two generations on each worker.
        let share = usize::try_from(descriptors / 16).unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        Self {
            current: CacheGeneration::default(),
            previous: CacheGeneration::default(),
            evicted: Evicted::new(CacheGeneration::default(), Duration::ZERO),
            current_since: Duration::ZERO,
            open_files_max: (share / workers.max(1) / 2).max(4),
            namespaces: 0,
            directories: Rc::default(),
        }
    }

    /// Creates an empty namespace.
    pub(in crate::site) fn new_namespace(&mut self) -> CacheNamespace {
        self.namespaces += 1;
        CacheNamespace(self.namespaces)
    }

    pub(super) fn get(&self, namespace: CacheNamespace, path: &[u8]) -> Option<&CacheEntry> {
        let key = CacheKeyRef { namespace, path };
        self.current.files.get(&key).or_else(|| self.previous.files.get(&key))
    }

    /// Records that a file was checked and did not change. Moves it to the current generation, since files in
    /// use are checked often.
    pub(super) fn mark_checked(&mut self, namespace: CacheNamespace, path: &[u8], now: Duration) {
        if self.is_generation_over(now) {
            self.start_generation(now);
        }
        let key = CacheKeyRef { namespace, path };
        if let Some(entry) = self.current.files.get_mut(&key) {
            entry.checked_at = now;
            self.evict_some(now);
        } else if let Some(entry) = self.previous.remove(&key) {
            self.insert(namespace, path, entry.resource, now);
        }
    }

    pub(super) fn insert(&mut self, namespace: CacheNamespace, path: &[u8], resource: Rc<Resource>, now: Duration) {
        self.remove(namespace, path);
        let (bytes, open) = (resource.memory_bytes() + path.len(), resource.open_files());
        let is_full = self.current.files.len() >= ENTRIES_MAX
            || self.current.bytes + bytes > BYTES_MAX
            || self.current.open_files + open > self.open_files_max;
        if is_full || self.is_generation_over(now) {
            self.start_generation(now);
        }
        self.current.insert(
            CacheKey { namespace, path: path.into() },
            CacheEntry { resource, checked_at: now, bytes, open_files: open },
        );
        self.evict_some(now);
    }

    fn is_generation_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.current_since) >= GENERATION_TIME
    }

    fn start_generation(&mut self, now: Duration) {
        let young = std::mem::take(&mut self.current);
        // Entries of an earlier eviction are left only if the worker got no request for half a minute.
        self.evicted = Evicted::new(std::mem::replace(&mut self.previous, young), now);
        self.current_since = now;
    }

    /// Drops one evicted entry, and more if the cache is over its limits or eviction is behind schedule.
    fn evict_some(&mut self, now: Duration) {
        let mut is_first = true;
        while is_first || self.is_over_limit() || self.evicted.is_behind_schedule(now) {
            if !self.evicted.evict_one() {
                return;
            }
            is_first = false;
        }
    }

    /// Whether the cache exceeds the limits of two generations.
    fn is_over_limit(&self) -> bool {
        let (young, old, evicted) = (&self.current, &self.previous, &self.evicted);
        young.files.len() + old.files.len() + evicted.files.len() > 2 * ENTRIES_MAX
            || young.bytes + old.bytes + evicted.bytes > 2 * BYTES_MAX
            || young.open_files + old.open_files + evicted.open_files > 2 * self.open_files_max
    }

    /// Removes all entries of a namespace, because its root was replaced.
    pub(super) fn remove_namespace(&mut self, namespace: CacheNamespace) {
        self.current.remove_namespace(namespace);
        self.previous.remove_namespace(namespace);
        // Evicted entries may belong to the namespace.
        self.evicted = Evicted::new(CacheGeneration::default(), self.evicted.started_at);
    }

    pub(super) fn remove(&mut self, namespace: CacheNamespace, path: &[u8]) {
        let key = CacheKeyRef { namespace, path };
        self.current.remove(&key);
        self.previous.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::loaded::{LoadedContent, LoadedFile, LoadedVariant};
    use super::*;
    use selvedge::service::FileStamp;

    fn resource_of(content: LoadedContent) -> Rc<Resource> {
        let stamp = FileStamp { device: 0, inode: 0, length: 1, modified: (0, 0), changed: (0, 0) };
        let identity = LoadedVariant { stamp, content };
        Rc::new(Resource::new(LoadedFile { name: "x".to_owned(), identity, precompressed: Vec::new() }))
    }

    fn resource() -> Rc<Resource> {
        resource_of(LoadedContent::Memory(b"x".to_vec()))
    }

    impl FileCache {
        fn count(&self) -> usize {
            self.current.files.len() + self.previous.files.len() + self.evicted.files.len()
        }
    }

    #[test]
    fn generation_is_evicted_gradually() {
        let mut cache = FileCache::new(1);
        let (namespace, shared) = (cache.new_namespace(), resource());
        let mut most = 0;
        for number in 0..5 * ENTRIES_MAX {
            let before = cache.count();
            cache.insert(namespace, number.to_string().as_bytes(), shared.clone(), Duration::ZERO);
            assert!(cache.count() >= before, "an insertion drops at most one entry");
            assert_eq!(Rc::strong_count(&shared), cache.count() + 1, "evicted entries are dropped");
            most = most.max(cache.count());
        }
        assert_eq!(most, 2 * ENTRIES_MAX);
    }

    #[test]
    fn total_never_exceeds_two_generations() {
        let mut cache = FileCache::new(1);
        cache.open_files_max = 50;
        let namespace = cache.new_namespace();
        let file = || LoadedContent::Open(std::fs::File::open("/dev/null").unwrap());
        let kinds = [resource(), resource_of(LoadedContent::Memory(vec![0; 32 << 10])), resource_of(file())];
        let (mut bytes, mut open) = (0, 0);
        for number in 0..50_000_usize {
            // Runs of each kind, with a few open files in between.
            let kind = if number % 100 == 0 { 2 } else { number / 5_000 % 3 };
            cache.insert(namespace, number.to_string().as_bytes(), kinds[kind].clone(), Duration::ZERO);
            let generations = [&cache.current, &cache.previous].map(|all| (all.bytes, all.open_files));
            let all =
                generations.iter().fold((cache.evicted.bytes, cache.evicted.open_files), |a, b| (a.0 + b.0, a.1 + b.1));
            (bytes, open) = (bytes.max(all.0), open.max(all.1));
            assert!(all.0 <= 2 * BYTES_MAX && all.1 <= 100 && cache.count() <= 2 * ENTRIES_MAX);
        }
        assert!(bytes > 2 * BYTES_MAX - (100 << 10) && open == 100, "{bytes} {open}");
    }

    #[test]
    fn eviction_completes_in_time_at_low_load() {
        let mut cache = FileCache::new(1);
        let (namespace, used, unused) = (cache.new_namespace(), resource(), resource());
        for number in 0..ENTRIES_MAX - 1 {
            cache.insert(namespace, number.to_string().as_bytes(), unused.clone(), Duration::ZERO);
        }
        cache.insert(namespace, b"/used", used, Duration::ZERO);
        let mut most = 0;
        for seconds in 0..=(2 * GENERATION_TIME + EVICTION_TIME).as_secs() {
            let before = Rc::strong_count(&unused);
            cache.mark_checked(namespace, b"/used", Duration::from_secs(seconds));
            most = most.max(before - Rc::strong_count(&unused));
        }
        assert_eq!(Rc::strong_count(&unused), 1);
        assert!(most <= ENTRIES_MAX / 30 + 1, "at most the share of one second at once: {most}");
    }

    #[test]
    fn unused_file_is_evicted() {
        let mut cache = FileCache::new(1);
        let (namespace, used, unused) = (cache.new_namespace(), resource(), resource());
        cache.insert(namespace, b"/used", used.clone(), Duration::ZERO);
        cache.insert(namespace, b"/unused", unused.clone(), Duration::ZERO);
        for seconds in 0..=2 * GENERATION_TIME.as_secs() {
            cache.mark_checked(namespace, b"/used", Duration::from_secs(seconds));
        }
        assert!(cache.get(namespace, b"/used").is_some() && cache.get(namespace, b"/unused").is_none());
        assert_eq!((Rc::strong_count(&used), Rc::strong_count(&unused)), (2, 1));
    }
}
