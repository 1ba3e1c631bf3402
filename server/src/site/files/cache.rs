//! The file cache of a worker for all its sites, bounded in bytes and open files.
//!
//! A file is cached once for each document root that has it. The responses to request paths are cached separately: an
//! entry refers to the file of a root, and has only the fields that the site changes. If the file is evicted or has
//! changed, the entry leads nowhere.

use super::cache_key::{CacheKey, CacheKeyRef, CacheNamespace};
use super::directories::DirectoryCache;
use super::resource::{ChangedFields, Resource, Stability, fresh_until};
use selvedge::cache::Cache;
use selvedge::proto::field::Fields;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The maximum memory of files whose bytes are cached.
const MEMORY_FILES_BYTES_MAX: usize = 52 << 20;
/// The maximum memory of files that stay open. Their bytes are not cached.
const OPEN_FILES_BYTES_MAX: usize = 4 << 20;
/// The maximum memory of the entries for request paths.
const RESPONSES_BYTES_MAX: usize = 8 << 20;
/// The maximum memory in bytes.
pub(crate) const BYTES_MAX: usize = MEMORY_FILES_BYTES_MAX + OPEN_FILES_BYTES_MAX + RESPONSES_BYTES_MAX;
/// While the worker gets requests, a file that was unused for this time is closed at the latest after this time again.
/// Until then a deleted file takes space on the disk.
const UNUSED_MAX: Duration = Duration::from_secs(60);
/// The maximum number of open files, on all workers together.
const OPEN_FILES_MAX: usize = 2048;
/// Memory of an entry for a request path without its path, rounded up.
const RESPONSE_ENTRY_BYTES: usize = 256;

/// A cached file, and the time until which it is used without a check for changes.
pub(super) struct CachedFile {
    pub(super) resource: Rc<Resource>,
    pub(super) fresh_until: Duration,
}

/// The response to a request path.
pub(super) struct CachedResponse {
    /// The file, which its own entry keeps.
    pub(super) resource: Weak<Resource>,
    /// The fields of each representation, if the site changes them.
    pub(super) changed_fields: Option<ChangedFields>,
    /// The time until which the path is known to lead to this file in this state.
    pub(super) fresh_until: Duration,
    /// The tag of the route that the path leads to.
    pub(super) route_tag: u32,
}

pub(in crate::site) struct FileCache {
    memory_files: Cache<CacheKey, CachedFile>,
    /// Files with at least one open file.
    open_files: Cache<CacheKey, CachedFile>,
    /// The weight of an open file.
    open_file_weight: usize,
    responses: Cache<CacheKey, CachedResponse>,
    namespaces: u32,
    /// The cached directories, which have the namespaces of the files.
    pub(super) directories: Rc<DirectoryCache>,
}

impl FileCache {
    pub(in crate::site) fn new(workers: usize) -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
        // A sixteenth of the file descriptors, shared by all workers.
        let share = usize::try_from(descriptors / 16).unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        let open_files_max = (share / workers.max(1)).max(8);
        Self {
            memory_files: Cache::new(MEMORY_FILES_BYTES_MAX),
            open_files: Cache::new(OPEN_FILES_BYTES_MAX),
            open_file_weight: OPEN_FILES_BYTES_MAX / open_files_max,
            responses: Cache::new(RESPONSES_BYTES_MAX),
            namespaces: 0,
            directories: Rc::default(),
        }
    }

    /// Creates an empty namespace.
    pub(in crate::site) fn new_namespace(&mut self) -> CacheNamespace {
        self.namespaces += 1;
        CacheNamespace(self.namespaces)
    }

    pub(super) fn get(&self, namespace: CacheNamespace, path: &[u8]) -> Option<&CachedFile> {
        let key = CacheKeyRef { namespace, path };
        self.memory_files.get(&key).or_else(|| self.open_files.get(&key))
    }

    /// Records that a file was checked and did not change.
    pub(super) fn mark_checked(&mut self, namespace: CacheNamespace, path: &[u8], now: Duration) {
        let key = CacheKeyRef { namespace, path };
        if let Some(entry) = self.memory_files.get_mut(&key).or_else(|| self.open_files.get_mut(&key)) {
            entry.fresh_until = fresh_until(now);
        }
        self.remove_unused(now);
    }

    pub(super) fn insert(&mut self, namespace: CacheNamespace, path: &[u8], resource: Rc<Resource>, now: Duration) {
        self.remove(namespace, path);
        let bytes = resource.memory_bytes() + path.len();
        let open_files = resource.open_files();
        let key = CacheKey { namespace, path: path.into() };
        let entry = CachedFile { resource, fresh_until: fresh_until(now) };
        if open_files == 0 {
            self.memory_files.insert(key, entry, bytes);
        } else {
            // The larger of its shares in both limits, so that the limit of weights holds both.
            self.open_files.insert(key, entry, bytes.max(open_files * self.open_file_weight));
        }
        self.remove_unused(now);
    }

    /// Returns the cached response to a request path.
    #[inline]
    pub(super) fn response(&self, namespace: CacheNamespace, path: &[u8]) -> Option<&CachedResponse> {
        self.responses.get(&CacheKeyRef { namespace, path })
    }

    /// Records that a request path still leads to this file, until when this is fresh. Returns false if it is not cached.
    pub(in crate::site) fn refresh_response(
        &mut self,
        namespace: CacheNamespace,
        path: &[u8],
        (resource, fresh_until): (&Rc<Resource>, Duration),
    ) -> bool {
        let cached = self.responses.get_mut(&CacheKeyRef { namespace, path });
        let cached = cached.filter(|cached| cached.resource.as_ptr() == Rc::as_ptr(resource));
        cached.map(|cached| cached.fresh_until = fresh_until).is_some()
    }

    /// Caches that a request path leads to a file, and until when this is fresh, unless the file's next change may leave
    /// its stamp equal. The route of this tag leads to it. `change_fields` makes the site's changes of the file's fields.
    pub(in crate::site) fn insert_response(
        &mut self,
        namespace: CacheNamespace,
        path: &[u8],
        (resource, fresh_until, route_tag): (&Rc<Resource>, Duration, u32),
        change_fields: Option<&dyn Fn(&mut Fields)>,
    ) {
        if resource.stability == Stability::Unstable {
            return;
        }
        let changed_fields = change_fields.map(|change| resource.changed_fields(change));
        let fields_bytes = changed_fields.as_ref().map_or(0, ChangedFields::memory_bytes);
        let bytes = RESPONSE_ENTRY_BYTES + path.len() + fields_bytes;
        let key = CacheKey { namespace, path: path.into() };
        self.responses.insert(
            key,
            CachedResponse { resource: Rc::downgrade(resource), changed_fields, fresh_until, route_tag },
            bytes,
        );
    }

    /// Removes the unused entries that are due.
    fn remove_unused(&mut self, now: Duration) {
        drop(self.memory_files.remove_unused(now, UNUSED_MAX));
        drop(self.open_files.remove_unused(now, UNUSED_MAX));
        drop(self.responses.remove_unused(now, UNUSED_MAX));
    }

    /// Removes all files of a namespace, because its root was replaced.
    pub(super) fn remove_namespace(&mut self, namespace: CacheNamespace) {
        self.memory_files.retain(|key| key.namespace != namespace);
        self.open_files.retain(|key| key.namespace != namespace);
    }

    pub(super) fn remove(&mut self, namespace: CacheNamespace, path: &[u8]) {
        let key = CacheKeyRef { namespace, path };
        self.memory_files.remove(&key);
        self.open_files.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::loaded::{ContentIdentity, LoadedContent, LoadedFile, LoadedVariant};
    use super::*;
    use selvedge::service::FileStamp;

    fn resource_of(content: LoadedContent) -> Rc<Resource> {
        let stamp = FileStamp { device: 0, inode: 0, length: 1, modified: (0, 0), changed: (0, 0) };
        let identity = LoadedVariant { stamp, content, identity: ContentIdentity::Time };
        let file = LoadedFile { name: "x".to_owned(), identity, precompressed: Vec::new(), outdated: Vec::new() };
        Rc::new(Resource::new(file, None))
    }

    fn resource() -> Rc<Resource> {
        resource_of(LoadedContent::Memory(b"x".to_vec()))
    }

    fn open_file() -> Rc<Resource> {
        resource_of(LoadedContent::Open(std::fs::File::open("/dev/null").unwrap()))
    }

    #[test]
    fn bytes_and_open_files_are_limited() {
        let mut cache = FileCache::new(1);
        cache.open_file_weight = OPEN_FILES_BYTES_MAX / 50;
        let namespace = cache.new_namespace();
        let kinds = [resource(), resource_of(LoadedContent::Memory(vec![0; 32 << 10])), open_file()];
        for number in 0..100_000_usize {
            // Runs of each kind, with a few open files in between.
            let kind = if number % 100 == 0 { 2 } else { number / 5_000 % 3 };
            let path = number.to_string();
            cache.insert(namespace, path.as_bytes(), kinds[kind].clone(), Duration::ZERO);
            cache.insert_response(namespace, path.as_bytes(), (&kinds[kind], Duration::ZERO, 1), None);
            assert!(cache.open_files.len() <= 50);
        }
        let [memory, open] = [&kinds[1], &kinds[2]].map(|kind| Rc::strong_count(kind) - 1);
        assert!(memory * (32 << 10) <= MEMORY_FILES_BYTES_MAX && memory > 1_000 && open == 50, "{memory} {open}");
        assert!(cache.memory_files.weight() > MEMORY_FILES_BYTES_MAX - (64 << 10));
        assert!(cache.responses.weight() > RESPONSES_BYTES_MAX - (1 << 10));
    }

    #[test]
    fn unused_file_is_evicted() {
        let mut cache = FileCache::new(1);
        let (namespace, used, unused) = (cache.new_namespace(), resource(), open_file());
        cache.insert(namespace, b"/used", used.clone(), Duration::ZERO);
        cache.insert(namespace, b"/unused", unused.clone(), Duration::ZERO);
        for seconds in 0..=2 * UNUSED_MAX.as_secs() {
            cache.mark_checked(namespace, b"/used", Duration::from_secs(seconds));
        }
        assert!(cache.get(namespace, b"/used").is_some() && cache.get(namespace, b"/unused").is_none());
        assert_eq!((Rc::strong_count(&used), Rc::strong_count(&unused)), (2, 1));
    }

    #[test]
    fn response_refers_to_the_file_and_keeps_changed_fields() {
        let mut cache = FileCache::new(1);
        let (root, site) = (cache.new_namespace(), cache.new_namespace());
        let file = resource();
        let changes = std::cell::Cell::new(0);
        let change = |fields: &mut Fields| {
            changes.set(changes.get() + 1);
            fields.append("x-site", "a").unwrap();
        };
        for seconds in 0..3 {
            let fresh_until = Duration::from_secs(seconds);
            cache.insert(root, b"/a", file.clone(), fresh_until);
            if !cache.refresh_response(site, b"/a", (&file, fresh_until)) {
                cache.insert_response(site, b"/a", (&file, fresh_until, 1), Some(&change));
            }
            let cached = cache.response(site, b"/a").unwrap();
            assert_eq!(cached.fresh_until, fresh_until);
            assert_eq!(
                cached.changed_fields.as_ref().unwrap().of_representations[0].full.get("x-site"),
                Some(&b"a"[..])
            );
        }
        assert_eq!(changes.get(), 3, "the fields of 200 and 304, and those of the site alone, are made once");
        assert_eq!(Rc::strong_count(&file), 2, "the response does not keep the file");
        drop(file);
        cache.insert(root, b"/a", resource(), Duration::ZERO);
        assert!(cache.response(site, b"/a").unwrap().resource.upgrade().is_none());
    }
}
