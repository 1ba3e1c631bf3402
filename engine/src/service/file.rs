//! Files as content: what is sent, and what shows that it is no longer what was announced.

use crate::net::sys::Mapping;
use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

/// An open regular file that answers are made of. Kept for many answers, it costs each of
/// them less.
pub struct OpenFile {
    file: File,
    mapping: OnceCell<Option<Mapping>>,
}

impl OpenFile {
    /// A file to send from.
    pub fn new(file: File) -> Self {
        Self { file, mapping: OnceCell::new() }
    }

    /// The file in the address space, made when it is first asked for. `None` where the file
    /// system has no such thing, or there is no room for it.
    pub(crate) fn mapping(&self) -> Option<&Mapping> {
        self.mapping.get_or_init(|| Mapping::of(&self.file).ok()).as_ref()
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
        &self.file
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
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
