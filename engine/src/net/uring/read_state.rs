//! The state of a file read in the ring.

use crate::net::uring::waiters::{WaiterSlot, Wakeups};
use rustix::io::Errno;
use tokio::sync::OwnedSemaphorePermit;

/// The state of a file read.
#[derive(Default)]
pub(super) struct ReadState {
    /// The memory and the number of bytes read into it.
    pub(super) result: Option<(Vec<u8>, Result<usize, Errno>)>,
    pub(super) waiter: WaiterSlot,
    /// Set when no task waits any longer. The permit stays in use until the kernel releases the memory.
    pub(super) abandoned_permit: Option<OwnedSemaphorePermit>,
}

impl ReadState {
    /// Records the result.
    pub(super) fn on_read(&mut self, memory: Vec<u8>, result: Result<usize, Errno>) -> Wakeups {
        self.result = Some((memory, result));
        [self.waiter.take(), None]
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned_permit.is_some()
    }
}
