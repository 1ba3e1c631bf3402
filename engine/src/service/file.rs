//! Files as content: what is sent, and what shows that it is no longer what was announced.

use crate::net::sys::Mapping;
use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// An open regular file that answers are made of. Kept for many answers, it costs each of
/// them less.
pub struct OpenFile {
    shared: Arc<SharedFile>,
    mapping: OnceCell<Option<Mapping>>,
}

/// What of an open file may go from thread to thread.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: File,
    copy: OnceLock<MemoryCopy>,
}

impl SharedFile {
    pub(crate) fn new(file: File) -> Arc<Self> {
        Arc::new(Self { file, copy: OnceLock::new() })
    }
}

impl Deref for SharedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl OpenFile {
    /// A file to send from.
    pub fn new(file: File) -> Self {
        Self::sharing(SharedFile::new(file))
    }

    /// The same file as somebody else has.
    pub(crate) fn sharing(shared: Arc<SharedFile>) -> Self {
        Self { shared, mapping: OnceCell::new() }
    }

    /// The file, for other threads.
    pub(crate) fn shared(&self) -> &Arc<SharedFile> {
        &self.shared
    }

    /// Sends from this copy from now on, wherever the state that it is of is the one that was
    /// announced. A file has one copy at the most; a second one is let go.
    pub fn keep(&self, copy: MemoryCopy) {
        let _ = self.shared.copy.set(copy);
    }

    /// Whether the file has a copy in memory.
    pub fn is_kept(&self) -> bool {
        self.shared.copy.get().is_some()
    }

    /// The copy of this state.
    pub(crate) fn copy_of(&self, state: &FileState) -> Option<&File> {
        self.shared.copy.get().filter(|copy| copy.state == *state).map(|copy| &copy.file)
    }

    /// The file in the address space, made when it is first asked for. `None` where the file
    /// system has no such thing, or there is no room for it.
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

/// A copy of one state of a file that nothing can change, made of the system's memory. What is
/// sent from it needs no look at the file and no copying.
#[derive(Debug)]
pub struct MemoryCopy {
    file: File,
    state: FileState,
}

impl MemoryCopy {
    /// Copies a file, which takes as long as reading it. `None` when it changes meanwhile.
    ///
    /// # Errors
    /// When the file cannot be read, or there is no memory for it.
    pub fn of(file: &File) -> std::io::Result<Option<Self>> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create, sendfile};
        let state = FileState::of(file)?;
        let copy = memfd_create("selvedge-file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut at = 0;
        while at < state.length {
            let left = usize::try_from(state.length - at).unwrap_or(usize::MAX);
            if sendfile(&copy, file, Some(&mut at), left)? == 0 {
                return Ok(None);
            }
        }
        fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((FileState::of(file)? == state).then(|| Self { file: copy.into(), state }))
    }
}

/// Part of an open regular file.
///
/// A complete answer has the bytes of one state of the file. When the file turns out to have
/// changed while it is sent, the connection is closed before the content is complete.
#[derive(Clone, Debug)]
pub struct FileContent {
    /// The file.
    pub file: Rc<OpenFile>,
    /// Position of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The state of the file that the answer's fields speak of.
    pub state: FileState,
}

impl FileContent {
    /// Part of a file in the state that it is in now.
    ///
    /// # Errors
    /// When the system cannot tell the state.
    pub fn new(file: Rc<OpenFile>, offset: u64, length: u64) -> std::io::Result<Self> {
        let state = FileState::of(&file)?;
        Ok(Self { file, offset, length, state })
    }

    /// Whether the file is still in the state that was announced.
    pub(crate) fn is_as_announced(&self) -> bool {
        FileState::of(&self.file).is_ok_and(|state| state == self.state)
    }
}

/// What shows that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its length.
    pub length: u64,
    /// When it was last written to: seconds since 1970, and nanoseconds.
    pub modified: (i64, i64),
}

impl FileState {
    /// The state that a file is in.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn of(file: &File) -> std::io::Result<Self> {
        let facts = file.metadata()?;
        Ok(Self { length: facts.len(), modified: (facts.mtime(), facts.mtime_nsec()) })
    }
}
