//! Caches which directories have no precompressed files, which saves up to three failed look-ups for each file.
//!
//! A directory is read once for all its files, and again after its change time shows that a name was added. The
//! change time is trusted only on file systems that are known to update it. It also must be older than the
//! coarsest timestamp step, since a later change could otherwise get an equal time. In all other cases, and in
//! directories with a precompressed file, precompressed files are looked up by name.

use super::cache_key::{CacheKey, CacheKeyRef, CacheNamespace};
use super::resource::CHECK_INTERVAL;
use super::root::{DiskAccess, Root};
use rustix::fs::{Dir, fstat, fstatfs};
use selvedge::cache::Cache;
use selvedge::proto::encoding::Coding;
use selvedge::proto::path::SafePath;
use selvedge::service::FileStamp;
use selvedge::spawn_blocking;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The maximum memory of the cache in bytes.
pub(crate) const BYTES_MAX: usize = 2 << 20;
/// Memory of an entry without its path, rounded up.
const ENTRY_BYTES: usize = 2 * size_of::<(CacheKey, CachedDirectory)>();
/// The maximum number of names read from a directory. In a larger one, precompressed files are looked up by
/// name.
const NAMES_MAX: usize = 64 * 1024;
/// The magic numbers (`linux/magic.h`) of file systems that update a directory's change time when a name is
/// added: ext2 to ext4, XFS, Btrfs, F2FS, ZFS, tmpfs, overlayfs (containers), and the read-only SquashFS and
/// EROFS.
const TRUSTED_FILE_SYSTEMS: [u32; 9] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630, 0x7371_7368, 0xe0f5_e1e2];
/// The time until a directory is checked again in which precompressed files are looked up by name.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// The time until a directory on another file system is checked again, and until any directory is read again.
/// Another file system with an equal stamp may have been mounted over it.
const REREAD_INTERVAL: Duration = Duration::from_secs(60);

/// The cached directories of a worker.
pub(in crate::site) struct DirectoryCache {
    entries: RefCell<Cache<CacheKey, CachedDirectory>>,
    clock: fn() -> SystemTime,
}

/// The result of reading a directory.
#[derive(Clone, Copy)]
struct DirectoryInfo {
    /// The stamp at the time of reading; `None` if it would not show the next change.
    stamp: Option<FileStamp>,
    may_have_precompressed: bool,
    /// How long the result is valid.
    valid_for: Duration,
}

/// A result, the time at which it was read, and the time until which it is used without a check.
#[derive(Clone, Copy)]
struct CachedDirectory {
    info: DirectoryInfo,
    read_at: Duration,
    fresh_until: Duration,
}

impl DirectoryInfo {
    /// No information, so precompressed files are looked up by name.
    const fn unknown(valid_for: Duration) -> Self {
        Self { stamp: None, may_have_precompressed: true, valid_for }
    }
}

impl Default for DirectoryCache {
    fn default() -> Self {
        Self { entries: RefCell::new(Cache::new(BYTES_MAX)), clock: SystemTime::now }
    }
}

impl DirectoryCache {
    /// Whether the directory of a path surely has no precompressed file, as checked within [`CHECK_INTERVAL`].
    /// Returns `None` if this is unknown; [`DirectoryCache::load`] then finds out.
    pub(super) fn has_no_precompressed(
        &self,
        namespace: CacheNamespace,
        root: &Root,
        path: &SafePath,
        now: Duration,
    ) -> Option<bool> {
        let name = directory_of(path);
        let directory = CacheKeyRef { namespace, path: name.as_bytes() };
        let entry = self.entries.borrow().get(&directory).copied()?;
        if now < entry.fresh_until {
            return Some(!entry.info.may_have_precompressed);
        }
        let stamp = root.open_directory(name, DiskAccess::CachedOnly).and_then(stamp_of).ok()?;
        if entry.info.stamp == Some(stamp) && now < entry.read_at + REREAD_INTERVAL {
            self.insert(directory, CachedDirectory { fresh_until: now + entry.info.valid_for, ..entry });
            return Some(!entry.info.may_have_precompressed);
        }
        if stamp.changed_recently((self.clock)()) {
            self.store(directory, DirectoryInfo::unknown(RETRY_INTERVAL), now);
            return Some(false);
        }
        None
    }

    /// Reads the directory of a path that led to a file, and caches the result.
    pub(super) async fn load(&self, namespace: CacheNamespace, root: &Arc<Root>, path: &SafePath, now: Duration) {
        let name = directory_of(path);
        let directory = CacheKeyRef { namespace, path: name.as_bytes() };
        // Until it is read, requests look up precompressed files by name.
        self.store(directory, DirectoryInfo::unknown(RETRY_INTERVAL), now);
        let (root, name, clock) = (root.clone(), name.to_owned(), self.clock);
        match spawn_blocking(move || read(root.open_directory(&name, DiskAccess::MayBlock)?, clock())).await {
            Some(Ok(info)) => self.store(directory, info, now),
            // An unreadable directory may have been deleted.
            _ => drop(self.entries.borrow_mut().remove(&directory)),
        }
    }

    /// Removes all entries of a namespace, because its root was replaced.
    pub(super) fn remove_namespace(&self, namespace: CacheNamespace) {
        self.entries.borrow_mut().retain(|key| key.namespace != namespace);
    }

    fn store(&self, directory: CacheKeyRef<'_>, info: DirectoryInfo, now: Duration) {
        self.insert(directory, CachedDirectory { info, read_at: now, fresh_until: now + info.valid_for });
    }

    fn insert(&self, directory: CacheKeyRef<'_>, entry: CachedDirectory) {
        let mut all = self.entries.borrow_mut();
        match all.get_mut(&directory) {
            Some(existing) => *existing = entry,
            None => {
                let key = CacheKey { namespace: directory.namespace, path: directory.path.into() };
                all.insert(key, entry, ENTRY_BYTES + directory.path.len());
            }
        }
    }
}

/// Returns the path itself if it names a directory, otherwise its parent.
fn directory_of(path: &SafePath) -> &str {
    let full_path = path.as_str();
    if path.names_directory() { full_path } else { full_path.rsplit_once('/').map_or("", |(directory, _)| directory) }
}

fn stamp_of(fd: impl AsFd) -> rustix::io::Result<FileStamp> {
    Ok(FileStamp::from_stat(&fstat(fd)?))
}

/// Reads a directory.
fn read(fd: OwnedFd, time: SystemTime) -> rustix::io::Result<DirectoryInfo> {
    if !TRUSTED_FILE_SYSTEMS.contains(&(fstatfs(&fd)?.f_type as u32)) {
        return Ok(DirectoryInfo::unknown(REREAD_INTERVAL));
    }
    let mut names = Dir::new(fd)?;
    let before = stamp_of(names.fd()?)?;
    let mut may_have_precompressed = false;
    let mut count = 0;
    while let Some(entry) = names.next().filter(|_| !may_have_precompressed) {
        count += 1;
        may_have_precompressed = count > NAMES_MAX || has_precompressed_suffix(entry?.file_name().to_bytes());
    }
    if stamp_of(names.fd()?)? != before || before.changed_recently(time) {
        return Ok(DirectoryInfo::unknown(RETRY_INTERVAL));
    }
    let valid_for = if may_have_precompressed { RETRY_INTERVAL } else { CHECK_INTERVAL };
    Ok(DirectoryInfo { stamp: Some(before), may_have_precompressed, valid_for })
}

/// Whether a name has the suffix of a precompressed file. Ignores case, because the file system may do so.
fn has_precompressed_suffix(name: &[u8]) -> bool {
    Coding::ALL.iter().any(|coding| {
        let suffix = coding.suffix().as_bytes();
        name.len() >= suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    })
}

#[cfg(test)]
mod tests {
    use super::super::cache::FileCache;
    use super::*;
    use std::fs;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn directory_is_reread_only_after_a_change() {
        let directory = std::env::temp_dir().join(format!("selvedge-directories-{}", std::process::id()));
        let inner = directory.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("page.html"), "x").unwrap();
        let root = Arc::new(Root::open(&directory).unwrap());
        let namespace = FileCache::new(1).new_namespace();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let look_up = |directories: &DirectoryCache, path: &str, milliseconds| {
            let path = SafePath::decode(path.as_bytes()).unwrap();
            let now = Duration::from_millis(milliseconds);
            let entry = directories.has_no_precompressed(namespace, &root, &path, now);
            entry.unwrap_or_else(|| {
                runtime.block_on(directories.load(namespace, &root, &path, now));
                directories.has_no_precompressed(namespace, &root, &path, now).unwrap_or(false)
            })
        };
        let later = DirectoryCache { clock: || SystemTime::now() + HOUR, ..DirectoryCache::default() };
        assert!(look_up(&later, "/inner/page.html", 0), "it is read");
        assert!(
            look_up(&later, "/inner/", 10) && look_up(&later, "/inner/none.css", 20),
            "and cached for all its files"
        );
        assert!(!look_up(&later, "/none/page.html", 30) && !look_up(&later, "/inner/page.html/x", 40));

        let before = FileStamp::from_stat(&rustix::fs::stat(&inner).unwrap());
        while FileStamp::from_stat(&rustix::fs::stat(&inner).unwrap()) == before {
            // Loop until the system's clock has advanced, because a change in one tick would not change the
            // stamp.
            fs::write(inner.join("page.html.BR"), "x").unwrap();
            fs::remove_file(inner.join("page.html.BR")).unwrap();
        }
        fs::write(inner.join("page.html.BR"), "x").unwrap();
        assert!(look_up(&later, "/inner/page.html", 499), "it is not checked within the interval");
        assert!(!look_up(&later, "/inner/page.html", 500) && !look_up(&later, "/inner/page.html", 3499));
        fs::remove_file(inner.join("page.html.BR")).unwrap();
        later.remove_namespace(namespace);
        assert!(look_up(&later, "/inner/page.html", 3500));
        assert_eq!(later.entries.borrow().len(), 1, "a missing directory is not cached");

        // A directory that changed just now, or has a time in the future, is not trusted.
        let now = DirectoryCache::default();
        assert!(!look_up(&now, "/inner/page.html", 0) && !look_up(&now, "/inner/page.html", 2999));
        let earlier = DirectoryCache { clock: || SystemTime::now() - HOUR, ..DirectoryCache::default() };
        assert!(!look_up(&earlier, "/inner/page.html", 0));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn precompressed_suffixes() {
        for (name, expected) in [
            ("a.html.gz", true),
            ("a.html.br", true),
            ("a.html.zst", true),
            ("A.GZ", true),
            (".gz", true),
            ("a.html", false),
            ("gz", false),
            ("a.gzip", false),
            ("", false),
        ] {
            assert_eq!(has_precompressed_suffix(name.as_bytes()), expected, "{name}");
        }
    }
}
