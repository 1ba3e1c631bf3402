//! Permits for large send buffers.

use crate::net::worker::Worker;
use std::rc::Rc;

/// A permit for a large send buffer.
///
/// The connection holds it until the data has left the send queue. If it were released when the kernel accepts the
/// data, clients that do not read could acquire one permit after the other.
pub(super) struct LargeSendBuffer(pub(super) Rc<Worker>);

impl Drop for LargeSendBuffer {
    fn drop(&mut self) {
        self.0.large_send_buffers.set(self.0.large_send_buffers.get() - 1);
    }
}
