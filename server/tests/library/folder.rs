//! A folder with files that goes away with the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Self(std::env::temp_dir().join(format!("selvedge-library-{}-{number}", std::process::id())));
        fs::create_dir_all(&folder.0).expect("a folder can be made");
        for (name, content) in files {
            folder.write(name, content);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A file that was last changed a day ago, so that its times are settled.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder can be made");
        fs::write(&path, content).expect("a file can be written");
        let file = fs::File::open(path).expect("it is there");
        file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).expect("times can be set");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
