//! The send queue of a connection in the kernel: larger for long files.

use crate::connection::large_send_buffer::LargeSendBuffer;
use crate::connection::transport::{Received, Transport};
use crate::limits::{LARGE_SEND_BUFFER_BYTES, SEND_BUFFER_BYTES, SWEEP_INTERVAL};
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::runtime::sleep;
use crate::net::stream::Stream;
use std::future::poll_fn;
use std::task::Poll;

/// Sets a large send buffer for a long file, if a permit is free.
pub(super) fn enlarge<S: Stream>(transport: &Transport<S>, length: u64) {
    let permit = transport.large_send_buffer.take().or_else(|| {
        let is_long = length > SEND_BUFFER_BYTES as u64;
        let permit = is_long.then(|| LargeSendBuffer::acquire(&transport.timeouts.worker)).flatten();
        permit.inspect(|_| {
            transport.link.unsent_bytes(Some(LARGE_SEND_BUFFER_BYTES));
        })
    });
    transport.large_send_buffer.set(permit);
}

/// Releases the permit if the send queue is empty. Returns whether the connection holds none now.
#[inline]
pub(super) fn release<S: Stream>(transport: &Transport<S>) -> bool {
    let Some(permit) = transport.large_send_buffer.take() else { return true };
    transport.large_send_buffer.set(Some(permit));
    if transport.link.unsent_bytes(None) > SEND_BUFFER_BYTES as usize {
        return false;
    }
    reset(transport);
    true
}

/// Resets the send buffer and releases the permit.
pub(super) fn reset<S: Stream>(transport: &Transport<S>) {
    if transport.large_send_buffer.take().is_some() {
        transport.link.unsent_bytes(Some(SEND_BUFFER_BYTES));
    }
}

/// Waits until the large send buffer is almost empty, at most for the send timeout. The kernel holds that data after a
/// close as well, so the permit must not be released earlier.
pub(super) async fn drain_and_release<S: Stream>(transport: &Transport<S>) {
    transport.timeouts.wait_for(Deadline::ResponseProgress, transport.shared.limits.send_timeout);
    while !release(transport) && !transport.timeouts.worker.is_draining() {
        sleep(SWEEP_INTERVAL).await;
        let received = poll_fn(|cx| Poll::Ready(transport.poll_receive(cx))).await;
        transport.discard_input();
        let is_interrupted = transport.timeouts.interrupt() != Interrupt::None;
        if is_interrupted || matches!(received, Poll::Ready(Received::Failed)) {
            return;
        }
    }
}
