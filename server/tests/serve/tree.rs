//! A directory to be served, and what lies beside it and must not be.

use super::wait::until;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A directory of its own for each test, removed with the value.
pub(crate) struct Tree {
    base: PathBuf,
    site: PathBuf,
}

impl Tree {
    /// An empty one.
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let base = std::env::temp_dir().join(format!("selvedge-serve-{}-{number}", process::id()));
            // A name that an earlier run left behind is passed over.
            if fs::create_dir(&base).is_ok() {
                let site = base.join("site");
                fs::create_dir(&site).expect("the new directory is ours");
                return Self { base, site };
            }
        }
    }

    /// The directory that is served.
    pub(crate) fn site(&self) -> &Path {
        &self.site
    }

    /// A path beneath the served directory.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.site.join(name)
    }

    /// A path beside the served directory.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// A file, and the directories that lead to it.
    pub(crate) fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("directories can be made");
        fs::write(&path, content).expect("the file can be written");
        path
    }

    /// A directory, and those that lead to it.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("directories can be made");
        path
    }

    /// A symbolic link with just this text.
    pub(crate) fn link(&self, text: impl AsRef<Path>, name: &str) {
        std::os::unix::fs::symlink(text, self.path(name)).expect("the link can be made");
    }

    /// A FIFO that nobody writes to: whoever opened it carelessly would wait for ever.
    pub(crate) fn fifo(&self, name: &str) {
        mknodat(CWD, self.path(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO can be made");
    }

    /// Replaces a file in one step, as careful programs do.
    pub(crate) fn replace(&self, name: &str, content: impl AsRef<[u8]>) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let new = self.outside(&format!("new-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::write(&new, content).expect("the file can be written");
        fs::rename(&new, self.path(name)).expect("a file can be renamed");
    }

    /// Sets when a file was last modified.
    pub(crate) fn modified(&self, name: &str, since_epoch: Duration) {
        let file = File::options().write(true).open(self.path(name)).expect("the file is there");
        file.set_modified(UNIX_EPOCH + since_epoch).expect("our own file's times are ours");
    }

    /// Waits until a file has been left alone for a while, so that the server takes it for
    /// settled and remembers it.
    pub(crate) fn settled(&self, name: &str) {
        let facts = fs::metadata(self.path(name)).expect("the file is there");
        let changed = Duration::new(facts.ctime().unsigned_abs(), facts.ctime_nsec() as u32);
        until("the file is not new any more", || {
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

/// Bytes that tell their position, so that a part of them can be told from any other part.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u32).map(|position| (position.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
