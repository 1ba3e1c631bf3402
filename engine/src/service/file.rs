//! Files as content: what is sent, and what shows that it is no longer what was announced.

use super::copies::{self, Copied, Source};
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

/// A file that changed so shortly ago may change again without its times showing it: they move
/// in steps of a few milliseconds.
const UNSETTLED: Duration = Duration::from_millis(100);

/// An open regular file that answers are made of. Kept for many answers, it costs each of
/// them less: what is asked for again half a second later, or eight times before that, and was not
/// changed for ten seconds, is sent from a copy in memory from then on, where there is room for one.
pub struct OpenFile {
    shared: Arc<SharedFile>,
    mapping: OnceCell<Option<Mapping>>,
    /// What is to be dropped with it.
    _held: Option<Box<dyn Any>>,
}

/// What of an open file may go from thread to thread.
#[derive(Debug)]
pub(crate) struct SharedFile {
    file: File,
    copied: Copied,
}

impl SharedFile {
    pub(crate) fn new(file: File) -> Arc<Self> {
        Arc::new(Self { file, copied: Copied::default() })
    }

    /// Has it sent from a copy in memory from now on, if one can be had. It takes as long as
    /// reading the file; without memory for a copy the file is sent as before.
    pub(crate) fn have_copied(&self) {
        let _ = self.copied.make(&self.file);
    }
}

impl Deref for SharedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl OpenFile {
    /// Bytes of memory that the copies of all files have together at the most: 256 MiB, or an
    /// eighth of the memory that this process may have, which is the machine's or what its control groups leave of it
    /// (as it was when this was first asked). What waits in sockets of a copy that was let go comes on top.
    pub fn copies_bytes_max() -> u64 {
        copies::bytes_max()
    }

    /// A file to send from.
    pub fn new(file: File) -> Self {
        Self::sharing(SharedFile::new(file))
    }

    /// The same file as somebody else has.
    pub(crate) fn sharing(shared: Arc<SharedFile>) -> Self {
        Self { shared, mapping: OnceCell::new(), _held: None }
    }

    /// The same, with something that is dropped with it.
    pub(crate) fn holding(self, held: Box<dyn Any>) -> Self {
        Self { _held: Some(held), ..self }
    }

    /// The file, for other threads.
    pub(crate) fn shared(&self) -> &Arc<SharedFile> {
        &self.shared
    }

    /// Whether there is a copy of this state of it in memory, so that it can be sent whatever has
    /// become of the file.
    pub fn is_copied(&self, state: &FileState) -> bool {
        self.shared.copied.is_of(state)
    }

    /// What an answer with so many bytes is to be sent from that speaks of this state of the file.
    pub(crate) fn source(&self, state: &FileState, bytes: u64, now: Instant) -> Source {
        self.shared.copied.ask(state, bytes, now)
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
        file.metadata().map(|facts| Self::from(&facts))
    }
}

impl From<&Metadata> for FileState {
    fn from(facts: &Metadata) -> Self {
        Self { length: facts.len(), modified: (facts.mtime(), facts.mtime_nsec()) }
    }
}

/// What tells one file from another, and one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    device: u64,
    inode: u64,
    pub(crate) state: FileState,
    changed: (i64, i64),
}

impl From<&Metadata> for FileFacts {
    fn from(facts: &Metadata) -> Self {
        Self {
            device: facts.dev(),
            inode: facts.ino(),
            state: FileState::from(facts),
            changed: (facts.ctime(), facts.ctime_nsec()),
        }
    }
}

impl FileFacts {
    /// Whether its times would show the next change.
    pub(crate) fn is_settled(&self) -> bool {
        self.has_rested(UNSETTLED)
    }

    /// Whether it was not changed for so long.
    pub(crate) fn has_rested(&self, time: Duration) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanoseconds).unwrap_or(0));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(changed) >= time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_this_moment_may_hide_the_next_one() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let changed = |at: Duration| {
            let at = (at.as_secs() as i64, i64::from(at.subsec_nanos()));
            FileFacts { device: 1, inode: 1, state: FileState { length: 0, modified: at }, changed: at }
        };
        assert!(changed(now - UNSETTLED).is_settled());
        // By a clock that is ahead, too.
        assert!(!changed(now + Duration::from_secs(60)).is_settled());
    }
}
