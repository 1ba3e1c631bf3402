//! A per-worker cache of open files, keyed by path.
//!
//! A cached file is used only if its path still refers to that file in an unchanged state; each lookup
//! checks this with a system call. Unused files are closed after 5 to 10 seconds.

use crate::cache::Cache;
use crate::file::{FileStamp, SharedFile};
use crate::tower::request_context::RequestContext;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::task::{spawn_blocking, spawn_local};

/// Maximum number of files that a worker keeps open, if the file descriptor limit permits.
const FILES_MAX: usize = 64;
/// Interval between sweeps, which close files that were not used since the previous sweep.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

thread_local! {
    static OPEN_FILES: RefCell<OpenFileCache> = RefCell::new(OpenFileCache::new());
}

struct OpenFileCache {
    files: Cache<PathBuf, CachedFile>,
    /// Whether the sweep task is running.
    has_sweeper: bool,
}

impl OpenFileCache {
    fn new() -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self { files: Cache::new(files_max(descriptors, workers)), has_sweeper: false }
    }
}

/// Returns how many files each worker may keep open. All workers together use at most 1/32 of the file
/// descriptors, as do all in-memory copies of files.
fn files_max(descriptors: u64, workers: usize) -> usize {
    let share = usize::try_from(descriptors / 32).unwrap_or(usize::MAX);
    (share / workers.max(1)).clamp(1, FILES_MAX)
}

/// An open file and its state.
type CachedFile = (Arc<SharedFile>, FileStamp);

/// Opens the regular file at a path and returns its state. On a worker, the file is cached.
///
/// # Errors
/// If it cannot be opened or is not a regular file.
pub(super) async fn open(path: &Path) -> io::Result<(Arc<SharedFile>, FileStamp)> {
    if RequestContext::current().is_some()
        && let Some(found) = lookup(path)
    {
        return Ok(found);
    }
    let path = path.to_owned();
    let opened = spawn_blocking(move || {
        // Non-blocking, so that opening a pipe without a writer does not block before it is refused.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        check_is_regular(&file)?;
        let stamp = FileStamp::of(&file)?;
        io::Result::Ok((path, SharedFile::new(file), stamp))
    });
    let (path, file, stamp) = opened.await.map_err(io::Error::other)??;
    // Checked again, since the task may have moved to another thread while waiting.
    if RequestContext::current().is_some() && !stamp.changed_recently(SystemTime::now()) {
        insert(path, (file.clone(), stamp));
    }
    Ok((file, stamp))
}

/// Checks that an open file is a regular file.
///
/// # Errors
/// If it is not one or `fstat` fails.
pub(super) fn check_is_regular(file: &File) -> io::Result<()> {
    match file.metadata()?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Returns the cached file for a path, if the path still refers to that file in an unchanged state.
fn lookup(path: &Path) -> Option<(Arc<SharedFile>, FileStamp)> {
    OPEN_FILES.with_borrow_mut(|cache| {
        let cached = cache.files.get(path)?.clone();
        // If the check would have to wait for the disk, the file is opened again on a blocking thread.
        if stamp_of_path(path)? != Some(cached.1) {
            cache.files.remove(path);
            return None;
        }
        Some(cached)
    })
}

/// Returns the stamp of the file that a path refers to now, `Some(None)` if no such file exists, or
/// `None` if the check would have to wait for the disk.
fn stamp_of_path(path: &Path) -> Option<Option<FileStamp>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::CACHED) {
        Ok(found) => Some(FileStamp::of(found).ok()),
        Err(Errno::AGAIN) => None,
        // If the system lacks or forbids openat2, use `stat`, which may block.
        Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => Some(stat(path).ok().map(|stat| FileStamp::from_stat(&stat))),
        Err(_) => Some(None),
    }
}

/// Caches a file.
fn insert(path: PathBuf, cached: CachedFile) {
    OPEN_FILES.with_borrow_mut(|cache| {
        cache.files.insert(path, cached, 1);
        if !std::mem::replace(&mut cache.has_sweeper, true) {
            spawn_local(sweep());
        }
    });
}

/// Closes unused files periodically, until the cache is empty.
async fn sweep() {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let (unused, is_empty) = OPEN_FILES.with_borrow_mut(|cache| {
            let unused = cache.files.remove_all_unused();
            cache.has_sweeper = !cache.files.is_empty();
            (unused, cache.files.is_empty())
        });
        // Closing the last descriptor of a deleted file waits for the disk.
        drop(spawn_blocking(move || drop(unused)));
        if is_empty {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::Timestamp;
    use selvedge_proto::method::Method;
    use std::pin::pin;

    fn run_on_worker(test: impl Future<Output = ()>) {
        let context =
            RequestContext { peer: ([127, 0, 0, 1], 1).into(), received_at: Timestamp::default(), method: Method::Get };
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("the runtime needs no resources that could be unavailable")
            .block_on(context.scope(pin!(test)));
    }

    /// Writes a file with a unique path.
    fn write_file(name: &str, content: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("selvedge-open-file-cache-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes a file and waits until it counts as unchanged.
    fn write_stable_file(name: &str, content: &[u8]) -> PathBuf {
        let path = write_file(name, content);
        wait_until_stable(&path);
        path
    }

    /// Waits until the next change of the file will change its times; depends on the system clock.
    fn wait_until_stable(path: &Path) {
        while FileStamp::of(File::open(path).unwrap()).unwrap().changed_recently(SystemTime::now()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn unchanged_file_is_opened_once_and_changed_file_again() {
        run_on_worker(async {
            let path = write_stable_file("once", b"first");
            let (first, state) = open(&path).await.unwrap();
            let (again, _) = open(&path).await.unwrap();
            assert!(Arc::ptr_eq(&first, &again));
            std::fs::write(&path, "other").unwrap();
            let (other, changed) = open(&path).await.unwrap();
            assert!(!Arc::ptr_eq(&first, &other), "the file has equal length and other content");
            assert_ne!(state, changed);
            let replaced = write_stable_file("replacing", b"other");
            wait_until_stable(&path);
            let (before, _) = open(&path).await.unwrap();
            std::fs::rename(replaced, &path).unwrap();
            let (after, _) = open(&path).await.unwrap();
            assert!(!Arc::ptr_eq(&before, &after), "the path refers to another file");
            std::fs::remove_file(&path).unwrap();
            assert!(open(&path).await.is_err());
        });
    }

    #[test]
    fn open_file_limit_leaves_descriptors_for_connections() {
        for (descriptors, workers) in [(1024, 1), (1024, 8), (1024, 32), (4096, 16), (1 << 20, 64)] {
            let files = files_max(descriptors, workers);
            assert!((1..=FILES_MAX).contains(&files), "{descriptors} {workers}");
            assert!((files * workers) as u64 <= descriptors / 32, "{descriptors} {workers}: {files} files");
        }
        assert_eq!((files_max(1 << 20, 64), files_max(u64::MAX, 1), files_max(16, 4)), (FILES_MAX, FILES_MAX, 1));
    }

    #[test]
    fn open_files_are_limited_and_closed_when_unused() {
        run_on_worker(async {
            OPEN_FILES.with_borrow_mut(|cache| cache.files = Cache::new(FILES_MAX));
            let paths: Vec<_> = (0..FILES_MAX + 3).map(|at| write_file(&format!("few-{at}"), b"few")).collect();
            wait_until_stable(&paths[FILES_MAX + 2]);
            for path in &paths {
                open(path).await.unwrap();
            }
            assert_eq!(OPEN_FILES.with_borrow(|cache| cache.files.len()), FILES_MAX);
            tokio::time::sleep(SWEEP_INTERVAL * 5 / 2).await;
            assert_eq!(OPEN_FILES.with_borrow(|cache| (cache.files.len(), cache.has_sweeper)), (0, false));
            paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        });
    }
}
