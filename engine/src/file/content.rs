//! A range of an open file as the content of a response.

use crate::file::{FileStamp, OpenFile};
use std::rc::Rc;

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
    pub fn new(file: Rc<OpenFile>, offset: u64, length: u64) -> std::io::Result<Self> {
        let stamp = FileStamp::of(&**file)?;
        Ok(Self { file, offset, length, stamp })
    }

    /// Returns whether the file is still in the state that the response's fields describe.
    pub(crate) fn is_unchanged(&self) -> bool {
        FileStamp::of(&**self.file).is_ok_and(|stamp| stamp.has_content_of(&self.stamp))
    }
}
