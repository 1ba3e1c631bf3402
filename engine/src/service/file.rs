//! Files as content: what is sent, and what shows that it is no longer what was announced.

use crate::net::sys::{HUGE_PAGE_BYTES, Mapping, move_to_huge_pages};
use std::cell::OnceCell;
use std::fmt;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
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

    /// As [`OpenFile::keep`].
    pub(crate) fn keep(&self, copy: MemoryCopy) {
        let _ = self.copy.set(copy);
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
        self.shared.keep(copy);
    }

    /// Bytes of memory that its copy takes, if it has one.
    pub fn kept_bytes(&self) -> Option<u64> {
        self.shared.copy.get().map(|copy| copy.share.0)
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
    share: Share,
}

impl MemoryCopy {
    /// Bytes that all copies of the process have together at the most, also those that nobody
    /// remembers any more and that are only still being sent: 256 MiB.
    pub const BYTES_MAX: u64 = 256 << 20;

    /// Copies a file, which takes as long as reading it. `None` when it changes meanwhile, or
    /// when there are copies of [`Self::BYTES_MAX`] already.
    ///
    /// # Errors
    /// When the file cannot be read, or there is no memory for it.
    pub fn of(file: &File) -> std::io::Result<Option<Self>> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, sendfile};
        let state = FileState::of(file)?;
        let huge = huge_bytes(state.length);
        let Some(share) = Share::take(state.length.max(huge)) else { return Ok(None) };
        let copy = File::from(memfd_create("selvedge-file", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&copy, share.0)?;
        let mut at = 0;
        while at < state.length {
            let left = usize::try_from(state.length - at).unwrap_or(usize::MAX);
            if sendfile(&copy, file, Some(&mut at), left)? == 0 {
                return Ok(None);
            }
        }
        if huge > 0 {
            // Where there are none it is sent from common pages, at more cost.
            let _ = move_to_huge_pages(&copy, usize::try_from(huge).unwrap_or(0));
        }
        fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((FileState::of(file)? == state).then_some(Self { file: copy, state, share }))
    }
}

/// How much of a copy goes into huge pages, each of which is to be half full at least.
fn huge_bytes(length: u64) -> u64 {
    const HUGE: u64 = HUGE_PAGE_BYTES as u64;
    (length + HUGE / 2) / HUGE * HUGE
}

/// Bytes of those that all copies may have together.
#[derive(Debug)]
struct Share(u64);

static SHARED_BYTES: AtomicU64 = AtomicU64::new(0);

impl Share {
    fn take(bytes: u64) -> Option<Self> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= MemoryCopy::BYTES_MAX);
        SHARED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        SHARED_BYTES.fetch_sub(self.0, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_half_full_at_least() {
        const MIB: u64 = 1 << 20;
        for (length, huge) in [
            (0, 0),
            (MIB - 1, 0),
            (MIB, 2 * MIB),
            (2 * MIB, 2 * MIB),
            (3 * MIB - 1, 2 * MIB),
            (3 * MIB, 4 * MIB),
            (4 * MIB, 4 * MIB),
        ] {
            assert_eq!(huge_bytes(length), huge, "{length}");
        }
    }

    #[test]
    fn copies_have_a_bound_together_and_give_back_what_they_had() {
        let file =
            File::from(rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("there is memory"));
        file.set_len(MemoryCopy::BYTES_MAX + 1).expect("holes take no memory");
        assert!(MemoryCopy::of(&file).expect("it can be read").is_none());
        file.set_len(1 << 20).expect("it can be shorter");
        let copy = MemoryCopy::of(&file).expect("it can be read").expect("there is room");
        let open = OpenFile::from(file);
        assert_eq!(open.kept_bytes(), None);
        open.keep(copy);
        assert_eq!(open.kept_bytes(), Some(2 << 20));
        let rest = Share::take(MemoryCopy::BYTES_MAX / 2).expect("half of it is free");
        assert!(Share::take(MemoryCopy::BYTES_MAX).is_none());
        drop(rest);
    }
}
