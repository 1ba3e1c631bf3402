//! Reads files of certificates and keys. A file that this process may not read is opened by one that has kept the
//! privileges of the start, if it runs.

use std::fmt::Debug;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::OnceLock;

/// Opens files that this process may not open.
pub(crate) trait OpenFile: Debug + Send + Sync {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// If it cannot be opened, or is none of the files that may be opened.
    fn open(&self, path: &Path) -> io::Result<File>;
}

/// The opener of this process. It is set before the process gives its privileges up, and never changes.
static OPENER: OnceLock<Box<dyn OpenFile>> = OnceLock::new();

/// Sets what opens the files that this process may not open. Further calls do nothing.
pub(crate) fn open_files_with(opener: Box<dyn OpenFile>) {
    let _ = OPENER.set(opener);
}

/// Reads a file.
///
/// # Errors
/// If neither this process nor the opener can read it.
pub(crate) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let mut bytes = Vec::new();
            open_privately(path, error)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        }
        result => result,
    }
}

/// Returns the metadata of a file.
///
/// # Errors
/// If neither this process nor the opener can find it.
pub(super) fn metadata(path: &Path) -> io::Result<Metadata> {
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => open_privately(path, error)?.metadata(),
        result => result,
    }
}

fn open_privately(path: &Path, denied: io::Error) -> io::Result<File> {
    match OPENER.get() {
        Some(opener) => opener.open(path),
        None => Err(denied),
    }
}
