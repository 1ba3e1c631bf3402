//! Pooled buffers: taken from the thread's pool when bytes arrive and returned on drop, so an idle connection holds
//! none.

use crate::limits::{BUFFER_BYTES, LONG_BUFFER_BYTES, POOLED_BUFFERS_MAX, POOLED_LONG_BUFFERS_MAX};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { usual: Vec::new(), long: Vec::new(), has_taken: false }) };
}

/// The free buffers of a thread.
struct Pool {
    usual: Vec<Vec<u8>>,
    long: Vec<Vec<u8>>,
    /// Whether this thread has ever taken a buffer. A thread that only drops buffers, such as an application's own,
    /// pools none.
    has_taken: bool,
}

/// Sizes of pooled buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Size {
    /// For heads, responses and slow content.
    #[default]
    Usual,
    /// For content that arrives fast.
    Long,
}

impl Size {
    const fn bytes(self) -> usize {
        match self {
            Self::Usual => BUFFER_BYTES,
            Self::Long => LONG_BUFFER_BYTES,
        }
    }

    /// Returns the size class of a capacity; `None` for a buffer that grew or shrank.
    const fn of(capacity: usize) -> Option<Self> {
        match capacity {
            BUFFER_BYTES => Some(Self::Usual),
            LONG_BUFFER_BYTES => Some(Self::Long),
            _ => None,
        }
    }
}

impl Pool {
    /// Returns the free buffers of a size and their maximum number.
    const fn buffers_of(&mut self, size: Size) -> (&mut Vec<Vec<u8>>, usize) {
        match size {
            Size::Usual => (&mut self.usual, POOLED_BUFFERS_MAX),
            Size::Long => (&mut self.long, POOLED_LONG_BUFFERS_MAX),
        }
    }

    fn take(&mut self, size: Size) -> Option<Vec<u8>> {
        self.has_taken = true;
        self.buffers_of(size).0.pop()
    }
}

/// Bytes in a pooled buffer, which returns to the pool on drop. The default has no capacity.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// Takes an empty buffer of [`BUFFER_BYTES`].
    pub(crate) fn take() -> Self {
        Self::of_size(Size::Usual)
    }

    /// Takes an empty buffer of a size.
    pub(crate) fn of_size(size: Size) -> Self {
        let pooled = POOL.try_with(|pool| pool.borrow_mut().take(size));
        Self { bytes: pooled.ok().flatten().unwrap_or_else(|| Vec::with_capacity(size.bytes())) }
    }

    /// Copies bytes into a buffer.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut buffer = Self::take();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Releases unused capacity before a long wait, so a client that sends one byte per second holds little more than
    /// its bytes.
    pub(crate) fn shrink_for_waiting(&mut self) {
        const STEP: usize = 64;
        if !self.is_well_filled() && Size::of(self.bytes.capacity()).is_some() {
            let mut small = Vec::with_capacity(self.bytes.len().next_multiple_of(STEP));
            small.extend_from_slice(&self.bytes);
            *self = Self { bytes: small };
        }
    }

    /// Whether it is a long buffer.
    pub(crate) fn is_long(&self) -> bool {
        Size::of(self.bytes.capacity()) == Some(Size::Long)
    }

    /// Whether at least a quarter of the capacity is used.
    pub(crate) fn is_well_filled(&self) -> bool {
        self.bytes.len() >= self.bytes.capacity() / 4
    }

    /// Makes room for more bytes, if the buffer was shrunk or is full.
    pub(crate) fn reserve(&mut self) {
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
        // A buffer that grew is not pooled, so one large request does not hold memory.
        let Some(size) = Size::of(bytes.capacity()) else { return };
        bytes.clear();
        let _ = POOL.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            let has_taken = pool.has_taken;
            let (pooled, pooled_max) = pool.buffers_of(size);
            if has_taken && pooled.len() < pooled_max {
                pooled.push(bytes);
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

    fn pooled() -> Option<(usize, usize)> {
        POOL.with_borrow(|pool| pool.has_taken.then_some((pool.usual.len(), pool.long.len())))
    }

    #[test]
    fn buffers_are_pooled_by_size_and_within_bounds() {
        let many: Vec<_> = (0..POOLED_BUFFERS_MAX + 1).map(|_| Buffer::take()).collect();
        let long: Vec<_> = (0..POOLED_LONG_BUFFERS_MAX + 1).map(|_| Buffer::of_size(Size::Long)).collect();
        drop((many, long));
        assert_eq!(pooled(), Some((POOLED_BUFFERS_MAX, POOLED_LONG_BUFFERS_MAX)));
        let mut grown = Buffer::take();
        grown.resize(BUFFER_BYTES + 1, 0);
        drop(grown);
        assert_eq!(pooled(), Some((POOLED_BUFFERS_MAX - 1, POOLED_LONG_BUFFERS_MAX)));
    }

    #[test]
    fn a_thread_that_takes_no_buffers_pools_none() {
        let buffer = Buffer::of_size(Size::Long);
        let elsewhere = std::thread::spawn(move || {
            drop(buffer);
            pooled()
        });
        assert_eq!(elsewhere.join().unwrap(), None);
    }

    #[test]
    fn a_long_buffer_with_few_bytes_shrinks() {
        for (filled, shrinks) in [(0, true), (LONG_BUFFER_BYTES / 4 - 1, true), (LONG_BUFFER_BYTES / 4, false)] {
            let mut buffer = Buffer::of_size(Size::Long);
            buffer.resize(filled, 1);
            buffer.shrink_for_waiting();
            assert_eq!(buffer.capacity() < LONG_BUFFER_BYTES, shrinks, "{filled}");
            assert_eq!(buffer.len(), filled);
        }
    }
}
