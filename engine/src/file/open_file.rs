//! Open files, which are sent from a copy in memory if they are requested often.

use crate::file::FileStamp;
use crate::file::sealed_copy::{self, CopyState, SendSource};
use crate::net::sys::Mapping;
use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

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
    pub fn is_copied(&self, stamp: &FileStamp) -> bool {
        self.shared.copy_state.has_copy_of(stamp)
    }

    /// Chooses whether to send `bytes` bytes of the file in this state from a copy or from the file.
    pub(crate) fn choose_source(&self, stamp: &FileStamp, bytes: u64, now: Instant) -> SendSource {
        self.shared.copy_state.choose_source(stamp, bytes, now)
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
