//! A directory to serve, and files outside it.

use super::wait::wait_until;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A temporary directory of a test, removed on drop.
pub(crate) struct Tree {
    base: PathBuf,
    site: PathBuf,
}

impl Tree {
    /// Creates an empty directory to serve.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let base = std::env::temp_dir().join(format!("selvedge-serve-{}-{number}", process::id()));
            // Skip a name that an earlier run did not remove.
            if fs::create_dir(&base).is_ok() {
                let site = base.join("site");
                fs::create_dir(&site).expect("the new directory is writable");
                return Self { base, site };
            }
        }
    }

    /// Returns the directory to serve.
    pub(crate) fn site(&self) -> &Path {
        &self.site
    }

    /// Returns a path below the served directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.site.join(name)
    }

    /// Returns a path outside the served directory.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// Writes a file, and creates its parent directories.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file has a parent directory")).expect("directories can be created");
        fs::write(&path, content).expect("the file can be written");
        path
    }

    /// Creates a directory and its parents.
    pub(crate) fn create_dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("directories can be created");
        path
    }

    /// Creates a symbolic link with exactly this text.
    pub(crate) fn symlink(&self, text: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(text, self.path(name)).expect("the link can be created");
    }

    /// Creates a FIFO without a writer. A blocking open of it never returns.
    pub(crate) fn fifo(&self, name: &str) {
        mknodat(CWD, self.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO can be created");
    }

    /// Replaces a file atomically.
    pub(crate) fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let new = self.outside(&format!("new-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::write(&new, content).expect("the file can be written");
        fs::rename(&new, self.path(name)).expect("a file can be renamed");
    }

    /// Sets the modification time of a file.
    pub(crate) fn set_modified(&self, name: &str, since_epoch: Duration) {
        let file = File::options().write(true).open(self.path(name)).expect("the file exists");
        file.set_modified(UNIX_EPOCH + since_epoch).expect("the modification time can be set");
    }

    /// Waits until a file was not changed for 200 ms, so that the server considers it stable and caches it.
    pub(crate) fn wait_until_stable(&self, name: &str) {
        let facts = fs::metadata(self.path(name)).expect("the file exists");
        let changed = Duration::new(facts.ctime().unsigned_abs(), facts.ctime_nsec() as u32);
        wait_until("the file is stable", || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            (now > changed + Duration::from_millis(200)).then_some(())
        });
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// Returns bytes that depend on their position, so that each part differs from other parts.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|position| (position.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
