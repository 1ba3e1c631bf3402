//! Buffers that are taken from the thread's pool when bytes are there and go back by
//! themselves, so that an idle connection holds none.

use crate::limits::{BUFFER_BYTES, BUFFERS_KEPT_MAX, LONG_BUFFER_BYTES, LONG_BUFFERS_KEPT_MAX};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { usual: Vec::new(), long: Vec::new(), takes: false }) };
}

/// What a thread keeps for reuse.
struct Pool {
    usual: Vec<Vec<u8>>,
    long: Vec<Vec<u8>>,
    /// Whether the thread has taken a buffer yet. One that only lets go of them, as an
    /// application's own may, keeps none.
    takes: bool,
}

/// The sizes that pooled buffers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// For heads, answers, and content of which little comes at a time.
    Usual,
    /// For content of which much has come at a time.
    Long,
}

impl Size {
    const fn bytes(self) -> usize {
        match self {
            Self::Usual => BUFFER_BYTES,
            Self::Long => LONG_BUFFER_BYTES,
        }
    }

    /// The size that room is of. None where a buffer grew or shrank.
    const fn of(capacity: usize) -> Option<Self> {
        match capacity {
            BUFFER_BYTES => Some(Self::Usual),
            LONG_BUFFER_BYTES => Some(Self::Long),
            _ => None,
        }
    }
}

impl Pool {
    /// The buffers of a size, and how many of them there may be.
    const fn kept(&mut self, size: Size) -> (&mut Vec<Vec<u8>>, usize) {
        match size {
            Size::Usual => (&mut self.usual, BUFFERS_KEPT_MAX),
            Size::Long => (&mut self.long, LONG_BUFFERS_KEPT_MAX),
        }
    }

    fn take(&mut self, size: Size) -> Option<Vec<u8>> {
        self.takes = true;
        self.kept(size).0.pop()
    }
}

/// Bytes in a pooled buffer. Dropping it gives it back. The default has no room and costs nothing.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// An empty buffer with room for [`BUFFER_BYTES`].
    pub(crate) fn take() -> Self {
        Self::of_size(Size::Usual)
    }

    /// An empty buffer with the room of a size.
    pub(crate) fn of_size(size: Size) -> Self {
        let kept = POOL.try_with(|pool| pool.borrow_mut().take(size));
        Self { bytes: kept.ok().flatten().unwrap_or_else(|| Vec::with_capacity(size.bytes())) }
    }

    /// A copy of some bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut buffer = Self::take();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Lets go of the room that is not used, for a wait that may be long: a client that
    /// sends one byte a second holds little more than its bytes.
    pub(crate) fn shrink_for_waiting(&mut self) {
        const STEP: usize = 64;
        if !self.is_well_filled() && Size::of(self.bytes.capacity()).is_some() {
            let mut small = Vec::with_capacity(self.bytes.len().next_multiple_of(STEP));
            small.extend_from_slice(&self.bytes);
            *self = Self { bytes: small };
        }
    }

    /// Whether its bytes are worth the room that they hold.
    pub(crate) fn is_well_filled(&self) -> bool {
        self.bytes.len() >= self.bytes.capacity() / 4
    }

    /// Makes room for what comes next, after [`Buffer::shrink_for_waiting`] or when full.
    pub(crate) fn make_room(&mut self) {
        if self.bytes.capacity() < BUFFER_BYTES {
            let mut large = Self::take();
            large.extend_from_slice(&self.bytes);
            *self = large;
        } else if self.bytes.len() == self.bytes.capacity() {
            self.bytes.reserve(BUFFER_BYTES);
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        // A buffer that grew is not kept: one large request must not hold memory for ever.
        let Some(size) = Size::of(bytes.capacity()) else { return };
        bytes.clear();
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            let takes = pool.takes;
            let (kept, kept_max) = pool.kept(size);
            if takes && kept.len() < kept_max {
                kept.push(bytes);
            }
        });
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {})", self.bytes.len(), self.bytes.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Option<(usize, usize)> {
        POOL.with_borrow(|pool| pool.takes.then_some((pool.usual.len(), pool.long.len())))
    }

    #[test]
    fn buffers_are_kept_by_their_size_and_within_bounds() {
        let many: Vec<_> = (0..BUFFERS_KEPT_MAX + 1).map(|_| Buffer::take()).collect();
        let long: Vec<_> = (0..LONG_BUFFERS_KEPT_MAX + 1).map(|_| Buffer::of_size(Size::Long)).collect();
        drop((many, long));
        assert_eq!(kept(), Some((BUFFERS_KEPT_MAX, LONG_BUFFERS_KEPT_MAX)));
        let mut grown = Buffer::take();
        grown.resize(BUFFER_BYTES + 1, 0);
        drop(grown);
        assert_eq!(kept(), Some((BUFFERS_KEPT_MAX - 1, LONG_BUFFERS_KEPT_MAX)));
    }

    #[test]
    fn a_thread_that_takes_none_keeps_none() {
        let buffer = Buffer::of_size(Size::Long);
        let elsewhere = std::thread::spawn(move || {
            drop(buffer);
            kept()
        });
        assert_eq!(elsewhere.join().unwrap(), None);
    }

    #[test]
    fn a_long_buffer_shrinks_to_what_little_it_holds() {
        for (filled, shrinks) in [(0, true), (LONG_BUFFER_BYTES / 4 - 1, true), (LONG_BUFFER_BYTES / 4, false)] {
            let mut buffer = Buffer::of_size(Size::Long);
            buffer.resize(filled, 1);
            buffer.shrink_for_waiting();
            assert_eq!(buffer.capacity() < LONG_BUFFER_BYTES, shrinks, "{filled}");
            assert_eq!(buffer.len(), filled);
        }
    }
}
