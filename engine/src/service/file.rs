//! Open files as response content, and the detection of changes to them.

use super::sealed_copy::{self, CopyState, SendSource};
use crate::net::sys::Mapping;
use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::fs::{File, Metadata};
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A file changed less than this ago may change again without a change of its times, which
/// have a granularity of a few milliseconds.
const MTIME_GRANULARITY: Duration = Duration::from_millis(100);

/// An open regular file for responses.
///
/// Reuse one value for many responses: a file that is requested repeatedly is copied into memory
/// and sent from there. The engine copies a file that did not change for 10 seconds and is
/// requested again after 0.5 seconds, or 8 times sooner, if the copies' byte limit permits.
pub struct OpenFile {
    shared: Arc<SharedFile>,
    mapping: OnceCell<Option<Mapping>>,
    /// Dropped together with this value.
    _attached: Option<Box<dyn Any>>,
}

/// The part of an open file that can be shared between threads.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: File,
    copy_state: CopyState,
}

impl SharedFile {
    pub(crate) fn new(file: File) -> Arc<Self> {
        Arc::new(Self { file, copy_state: CopyState::default() })
    }

    /// Copies the file into memory, if possible; later responses are sent from the copy. Takes as
    /// long as reading the file. Without memory for a copy, the file itself is still sent.
    pub(crate) fn ensure_copied(&self) {
        let _ = self.copy_state.ensure_copied(&self.file);
    }
}

impl Deref for SharedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl OpenFile {
    /// Returns the maximum total size in bytes of all in-memory file copies.
    ///
    /// It is 256 MiB, or one eighth of the memory available to this process if that is less. The
    /// available memory is the machine's or the limit of the control groups, read at the first call.
    /// Evicted copies that are still queued in sockets are not included.
    pub fn copies_bytes_max() -> u64 {
        sealed_copy::bytes_max()
    }

    /// Wraps an open file.
    pub fn new(file: File) -> Self {
        Self::from_shared(SharedFile::new(file))
    }

    /// Creates a value for this thread from a file shared between threads.
    pub(crate) fn from_shared(shared: Arc<SharedFile>) -> Self {
        Self { shared, mapping: OnceCell::new(), _attached: None }
    }

    /// Attaches a value that is dropped together with this file.
    pub(crate) fn with_attached(self, attached: Box<dyn Any>) -> Self {
        Self { _attached: Some(attached), ..self }
    }

    /// Returns the part that can be shared with other threads.
    pub(crate) fn shared(&self) -> &Arc<SharedFile> {
        &self.shared
    }

    /// Returns whether memory has a copy of the file in this state. If so, the engine can send that
    /// state even after the file has changed.
    pub fn is_copied(&self, state: &FileState) -> bool {
        self.shared.copy_state.has_copy_of(state)
    }

    /// Chooses whether to send `bytes` bytes of the file in this state from a copy or from the file.
    pub(crate) fn choose_source(&self, state: &FileState, bytes: u64, now: Instant) -> SendSource {
        self.shared.copy_state.choose_source(state, bytes, now)
    }

    /// Returns the file mapped into memory, and maps it at the first call. `None` if the file system
    /// does not support it or address space is exhausted.
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        self.mapping.get_or_init(|| Mapping::of(&self.shared).ok()).as_ref()
    }
}

impl From<File> for OpenFile {
    fn from(file: File) -> Self {
        Self::new(file)
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.shared
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.file.fmt(f)
    }
}

/// A range of an open regular file.
///
/// A complete response contains bytes of one state of the file. If the file changes while it is
/// sent, the engine closes the connection before the content is complete.
#[derive(Clone, Debug)]
pub struct FileContent {
    /// The file.
    pub file: Rc<OpenFile>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The state of the file that the response's fields describe.
    pub state: FileState,
}

impl FileContent {
    /// Creates content from a range of a file in its current state.
    ///
    /// # Errors
    /// If `fstat` fails.
    pub fn new(file: Rc<OpenFile>, offset: u64, length: u64) -> std::io::Result<Self> {
        let state = FileState::of(&file)?;
        Ok(Self { file, offset, length, state })
    }

    /// Returns whether the file is still in the state that the response's fields describe.
    pub(crate) fn is_unchanged(&self) -> bool {
        FileState::of(&self.file).is_ok_and(|state| state == self.state)
    }
}

/// Length and modification time of a file, which identify one state of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Length in bytes.
    pub length: u64,
    /// Time of the last modification: Unix seconds and nanoseconds.
    pub modified: (i64, i64),
}

impl FileState {
    /// Reads the current state of a file.
    ///
    /// # Errors
    /// If `fstat` fails.
    pub fn of(file: &File) -> std::io::Result<Self> {
        file.metadata().map(|metadata| Self::from(&metadata))
    }
}

impl From<&Metadata> for FileState {
    fn from(metadata: &Metadata) -> Self {
        Self { length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

/// Identity of a file (device, inode) and of its state (length, mtime, ctime).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    pub(crate) state: FileState,
    ctime: (i64, i64),
}

impl From<&Metadata> for FileStamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            state: FileState::from(metadata),
            ctime: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl FileStamp {
    /// Returns whether the next change of the file will change its times.
    pub(crate) fn is_stable(&self) -> bool {
        self.is_older_than(MTIME_GRANULARITY)
    }

    /// Returns whether the file was last changed at least `time` ago.
    pub(crate) fn is_older_than(&self, time: Duration) -> bool {
        let (seconds, nanoseconds) = self.ctime;
        let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(changed) >= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_changed_file_is_not_stable() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let changed = |at: Duration| {
            let at = (at.as_secs() as i64, i64::from(at.subsec_nanos()));
            FileStamp { device: 1, inode: 1, state: FileState { length: 0, modified: at }, ctime: at }
        };
        assert!(changed(now - MTIME_GRANULARITY).is_stable());
        // A clock that is ahead of ours also counts as recent.
        assert!(!changed(now + Duration::from_secs(60)).is_stable());
    }
}
