//! A directory with files that is deleted with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

pub(crate) struct TempDirectory(PathBuf);

impl TempDirectory {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("selvedge-library-{}-{number}", std::process::id())));
        fs::create_dir_all(&folder.0).expect("the test creates its directory");
        for (name, content) in files {
            folder.write(name, content);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file that was last changed a day ago, so that its timestamps are stable.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("the file has a parent directory"))
            .expect("the test creates its directory");
        fs::write(&path, content).expect("the test writes its file");
        let file = fs::File::open(path).expect("the file exists");
        file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).expect("the file's times can be set");
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
