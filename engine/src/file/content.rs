//! A range of an open file as the content of a response.

use crate::file::{FileStamp, OpenFile, SharedFile};
use bytes::Bytes;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

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
    pub stamp: FileStamp,
}

impl FileContent {
    /// Creates content from a range of a file in its current state.
    ///
    /// # Errors
    /// If `fstat` fails.
    pub fn new(file: Rc<OpenFile>, offset: u64, length: u64) -> io::Result<Self> {
        let stamp = FileStamp::of(&**file)?;
        Ok(Self { file, offset, length, stamp })
    }

    /// Returns whether the file is still in the state that the response's fields describe.
    pub(crate) fn is_unchanged(&self) -> bool {
        FileStamp::of(&**self.file).is_ok_and(|stamp| stamp.has_content_of(&self.stamp))
    }

    /// Returns the range, for another thread.
    #[cfg(feature = "compression")]
    pub(crate) fn range(&self) -> FileRange {
        let Self { offset, length, stamp, .. } = *self;
        FileRange { file: self.file.shared().clone(), stamp, offset, length }
    }
}

/// A range of a file that threads share.
#[derive(Clone, Debug)]
pub(crate) struct FileRange {
    pub(crate) file: Arc<SharedFile>,
    /// The state of the file that the response's fields describe.
    pub(crate) stamp: FileStamp,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl FileRange {
    /// Reads the first `count` bytes.
    ///
    /// # Errors
    /// If they cannot be read, or the file has changed.
    pub(crate) fn read_start(&self, count: usize) -> io::Result<Bytes> {
        let mut chunk = vec![0; count];
        self.file.read_exact_at(&mut chunk, self.offset)?;
        if !FileStamp::of(&**self.file)?.has_content_of(&self.stamp) {
            return Err(io::Error::other("the file changed while it was sent"));
        }
        Ok(chunk.into())
    }
}
