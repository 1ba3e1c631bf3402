//! Buffers that are taken from the thread's pool when bytes are there and go back by
//! themselves, so that an idle connection holds none.

use crate::limits::{BUFFER_BYTES, BUFFERS_KEPT_MAX};
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes in a pooled buffer. Dropping it gives it back. The default has no room and costs nothing.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    /// An empty buffer with room for [`BUFFER_BYTES`].
    pub(crate) fn take() -> Self {
        let bytes = POOL.try_with(|pool| pool.borrow_mut().pop()).ok().flatten();
        Self { bytes: bytes.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES)) }
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
        if self.bytes.len() < BUFFER_BYTES / 4 && self.bytes.capacity() == BUFFER_BYTES {
            let mut small = Vec::with_capacity(self.bytes.len().next_multiple_of(STEP));
            small.extend_from_slice(&self.bytes);
            *self = Self { bytes: small };
        }
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
        if bytes.capacity() == BUFFER_BYTES {
            bytes.clear();
            let _ = POOL.try_with(|pool| {
                let mut pool = pool.borrow_mut();
                if pool.len() < BUFFERS_KEPT_MAX {
                    pool.push(bytes);
                }
            });
        }
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
