//! Permits for large send buffers.

use crate::limits::LARGE_SEND_BUFFERS_MAX;
use crate::net::worker::Worker;
use std::rc::Rc;

/// A permit for a large send buffer.
///
/// The connection holds it until the data has left the send queue. If it were released when the kernel accepts the
/// data, clients that do not read could acquire one permit after the other.
pub(super) struct LargeSendBuffer(Rc<Worker>);

impl LargeSendBuffer {
    /// Takes a permit, if one is free.
    pub(super) fn acquire(worker: &Rc<Worker>) -> Option<Self> {
        let in_use = worker.large_send_buffers.get();
        (in_use < LARGE_SEND_BUFFERS_MAX).then(|| {
            worker.large_send_buffers.set(in_use + 1);
            Self(worker.clone())
        })
    }
}

impl Drop for LargeSendBuffer {
    fn drop(&mut self) {
        self.0.large_send_buffers.set(self.0.large_send_buffers.get() - 1);
    }
}
