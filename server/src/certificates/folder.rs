//! The folder of certificates that the server gets by itself: its files, and a lock for servers that share it.
//!
//! A file is replaced by a rename, so a reader never sees a part of it. Only the owner can read the folder.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How long a lock is held without being renewed. A server that ended without releasing it delays the others no longer.
const LEASE_SECONDS: i64 = 300;
const LOCK: &str = "lock";
/// The journal of orders.
pub(super) const JOURNAL: &str = "journal";
/// The root certificate of the server's own authority.
pub(crate) const ROOT_FILE: &str = "local-authority.pem";

/// The folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFolder(PathBuf);

/// The right to order certificates. Released on drop.
#[derive(Debug)]
pub(crate) struct FolderLock {
    folder: CertificateFolder,
    holder: String,
}

impl CertificateFolder {
    /// Opens the folder, and creates it if it is missing.
    ///
    /// # Errors
    /// If it cannot be created or is no folder.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self(path.to_owned()))
    }

    /// Whether a server has written to a folder that only its owner can read.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn is_used(path: &Path) -> io::Result<bool> {
        let is_private = fs::metadata(path)?.permissions().mode() & 0o077 == 0;
        Ok(is_private && [JOURNAL, ROOT_FILE].iter().any(|name| path.join(name).is_file()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of a file in the folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Reads a file; `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.file(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file, durably and as a whole.
    pub(crate) fn write(&self, name: &str, content: &str) -> io::Result<()> {
        let temporary = self.file(&format!(".{name}.{}", unique()));
        let written = create(&temporary, content).and_then(|()| fs::rename(&temporary, self.file(name)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        fs::File::open(&self.0)?.sync_all()
    }

    /// Appends a line to a file, durably.
    pub(crate) fn append(&self, name: &str, line: &str) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.file(name))?;
        file.write_all(format!("{line}\n").as_bytes())?;
        file.sync_all()
    }

    pub(crate) fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.file(name));
    }

    /// Takes the lock at a time in Unix seconds; `None` if another server has it.
    pub(crate) fn lock(&self, now: i64) -> io::Result<Option<FolderLock>> {
        let lock = FolderLock { folder: self.clone(), holder: unique() };
        let text = lock.text(now);
        for _ in 0..2 {
            match create(&self.file(LOCK), &text) {
                Ok(()) => return Ok(Some(lock)),
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    std::mem::forget(lock);
                    return Err(error);
                }
                Err(_) => {}
            }
            let held = self.read(LOCK)?.unwrap_or_default();
            let until = held.split_once(' ').and_then(|(_, until)| until.trim().parse::<i64>().ok());
            if until.is_some_and(|until| until >= now && until <= now + LEASE_SECONDS) {
                break;
            }
            // A lease that has ended, or ends implausibly late because a clock was wrong. Only one server can move it.
            let stale = self.file(&format!(".{LOCK}.{}", unique()));
            if fs::rename(self.file(LOCK), &stale).is_ok() {
                let _ = fs::remove_file(stale);
            }
        }
        std::mem::forget(lock);
        Ok(None)
    }
}

impl FolderLock {
    fn text(&self, now: i64) -> String {
        format!("{} {}\n", self.holder, now + LEASE_SECONDS)
    }

    /// Renews the lease. Returns whether the lock is still held.
    pub(crate) fn renew(&self, now: i64) -> io::Result<bool> {
        let is_held = self.is_held()?;
        if is_held {
            self.folder.write(LOCK, &self.text(now))?;
        }
        Ok(is_held)
    }

    fn is_held(&self) -> io::Result<bool> {
        let text = self.folder.read(LOCK)?.unwrap_or_default();
        Ok(text.split_once(' ').is_some_and(|(holder, _)| holder == self.holder))
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        if self.is_held().unwrap_or(false) {
            self.folder.remove(LOCK);
        }
    }
}

fn create(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// Returns the folder of certificates of this user, for commands without a configuration.
pub(crate) fn folder_of_user() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let data = named("XDG_DATA_HOME").or_else(|| named("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("selvedge/certificates"))
}

/// Returns a text that no other call returns, on any machine with this folder.
fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let host = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let host: String = host.chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    format!("{host}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> CertificateFolder {
        let path = std::env::temp_dir().join(format!("selvedge-folder-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        CertificateFolder::open(&path).unwrap()
    }

    #[test]
    fn only_the_owner_reads_files_and_they_are_replaced_whole() {
        let folder = folder("modes");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(folder.read("a").unwrap(), None);
        folder.write("a", "one").unwrap();
        folder.write("a", "two").unwrap();
        folder.append("journal", "x").unwrap();
        folder.append("journal", "y").unwrap();
        assert_eq!(folder.read("a").unwrap().as_deref(), Some("two"));
        assert_eq!(folder.read("journal").unwrap().as_deref(), Some("x\ny\n"));
        assert_eq!(
            (mode(folder.path()), mode(&folder.file("a")), mode(&folder.file("journal"))),
            (0o700, 0o600, 0o600)
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file stays");
        fs::remove_dir_all(folder.path()).unwrap();
    }

    #[test]
    fn one_server_has_the_lock_until_it_is_released_or_its_lease_ends() {
        let folder = folder("lock");
        let first = folder.lock(1000).unwrap().expect("the lock is free");
        assert!(folder.lock(1000).unwrap().is_none());
        assert!(folder.lock(1300).unwrap().is_none());
        assert!(first.renew(1200).unwrap());
        assert!(folder.lock(1500).unwrap().is_none());
        let second = folder.lock(1501).unwrap().expect("the lease has ended");
        assert!(!first.renew(1501).unwrap(), "another server has the lock");
        drop(first);
        assert!(second.renew(1502).unwrap(), "the end of the first does not release it");
        drop(second);
        // A clock that is 40 days ahead must not lock the others out.
        let ahead = folder.lock(1000 + 40 * 86_400).unwrap().expect("the lock is free");
        assert!(folder.lock(1000).unwrap().is_some());
        drop(ahead);
        fs::remove_dir_all(folder.path()).unwrap();
    }
}
