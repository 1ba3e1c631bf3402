//! The receiving side of a socket in the ring.
//!
//! An idle connection costs nothing: one multishot receive stays in the kernel and puts bytes into provided
//! buffers. If a client sends much, or its bytes are not read, the multishot receive is cancelled. The connection
//! then receives directly into its own buffer. So each client holds at most one provided buffer, and unread bytes
//! occupy at most half of all provided buffers.

use crate::buffer::Buffer;
use crate::limits::RING_BULK_BYTES;
use crate::net::raw::{RecvFill, receive};
use crate::net::sys::buffer_ring::ProvidedBuffer;
use crate::net::sys::ring::{Multishot, Op, Ring, Slot};
use crate::net::uring::waiters::{Waiter, WaiterSlot};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll};

/// Bytes after which a connection receives directly.
const BULK_BYTES: u32 = RING_BULK_BYTES as u32;

/// The receiving side of a socket.
pub(super) struct ReceiveState {
    mode: ReceiveMode,
    /// Received bytes in a provided buffer, followed by those in `spill`.
    buffer: Option<ProvidedBuffer>,
    spill: Option<Box<Spill>>,
    /// The end of the stream, if reached.
    end: Option<Result<(), Errno>>,
    pub(super) reader: WaiterSlot,
}

/// Received bytes that were copied out of provided buffers. Those before `at` are read.
#[derive(Default)]
struct Spill {
    bytes: Vec<u8>,
    at: usize,
}

/// How further bytes are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceiveMode {
    /// With `recv` into the caller's buffer. Counts the bytes received so since the last wait.
    Direct(u32),
    /// With a multishot receive into provided buffers, started when a task waits.
    Multishot,
    /// The multishot receive is being cancelled.
    Cancelling,
}

impl Default for ReceiveState {
    fn default() -> Self {
        // The request is often received before the connection is accepted.
        Self { mode: ReceiveMode::Direct(0), buffer: None, spill: None, end: None, reader: WaiterSlot::default() }
    }
}

impl ReceiveState {
    /// Receives bytes; see [`Stream::poll_receive`](crate::net::stream::Stream::poll_receive).
    pub(super) fn poll(
        &mut self,
        cx: &Context<'_>,
        into: &mut Option<Buffer>,
        (ring, slot): (&mut Ring, Slot),
    ) -> Poll<io::Result<usize>> {
        if self.has_bytes() {
            return Poll::Ready(Ok(self.read(into)));
        }
        match self.end {
            Some(Ok(())) => return Poll::Ready(Ok(0)),
            Some(Err(error)) => return Poll::Ready(Err(error.into())),
            None => {}
        }
        if let ReceiveMode::Direct(count_before) = self.mode
            && !ring.is_in_flight(slot, Op::Readable)
        {
            match receive(ring.fd(slot), into) {
                Ok((received, fill)) => {
                    // Remaining bytes complete the next wait.
                    let count = count_before.saturating_add(u32::try_from(received).unwrap_or(u32::MAX));
                    let is_bulk = fill == RecvFill::Full || count >= BULK_BYTES;
                    self.mode = if is_bulk { ReceiveMode::Direct(count) } else { ReceiveMode::Multishot };
                    return Poll::Ready(Ok(received));
                }
                Err(Errno::AGAIN | Errno::INTR) if count_before >= BULK_BYTES => ring.start(slot, Op::Readable),
                Err(Errno::AGAIN | Errno::INTR) => self.mode = ReceiveMode::Multishot,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        if self.mode == ReceiveMode::Multishot {
            ring.start(slot, Op::Receive);
        }
        self.reader.set(cx);
        Poll::Pending
    }

    /// Returns whether received bytes are unread.
    pub(super) fn has_bytes(&self) -> bool {
        self.buffer.is_some() || self.spill.is_some()
    }

    /// Returns how the stream ended, if it did.
    pub(super) fn end(&self) -> Option<Result<(), Errno>> {
        self.end
    }

    /// Appends unread bytes to `into`, limited by its space.
    fn read(&mut self, into: &mut Option<Buffer>) -> usize {
        let buffer = into.get_or_insert_with(Buffer::take);
        buffer.reserve();
        let space = buffer.capacity() - buffer.len();
        let (rest, from_provided): (&[u8], _) = match (&self.buffer, &self.spill) {
            (Some(provided), _) => (provided.bytes(), true),
            (None, Some(spill)) => (&spill.bytes[spill.at..], false),
            (None, None) => return 0,
        };
        let count = rest.len().min(space);
        buffer.extend_from_slice(&rest[..count]);
        let is_all = count == rest.len();
        match (from_provided, is_all) {
            (true, true) => self.buffer = None,
            (true, false) => self.buffer.iter_mut().for_each(|provided| provided.consume(count)),
            (false, true) => self.spill = None,
            (false, false) => self.spill.iter_mut().for_each(|spill| spill.at += count),
        }
        count
    }

    /// Takes all unread bytes in order.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        let mut all = self.buffer.take().map_or_else(Vec::new, |provided| provided.bytes().to_vec());
        self.spill.take().iter().for_each(|spill| all.extend_from_slice(&spill.bytes[spill.at..]));
        all
    }

    /// Records a receive completion. Returns the reader to wake.
    pub(super) fn on_received(
        &mut self,
        received: Result<Option<ProvidedBuffer>, Errno>,
        multishot: Multishot,
        (ring, slot): (&mut Ring, Slot),
    ) -> Option<Waiter> {
        let mut is_bulk = false;
        match received {
            Ok(Some(provided)) => {
                self.store(provided);
                is_bulk = self.spill.as_ref().is_some_and(|spill| spill.bytes.len() - spill.at >= RING_BULK_BYTES);
            }
            Ok(None) => self.end = Some(Ok(())),
            // No provided buffer is free. The bytes are received directly; later ones may have a buffer.
            Err(Errno::NOBUFS) => self.mode = ReceiveMode::Direct(0),
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => self.end = Some(Err(error)),
        }
        match (multishot, self.mode) {
            (Multishot::More, ReceiveMode::Multishot) if is_bulk => {
                self.mode = ReceiveMode::Cancelling;
                ring.cancel(slot, Op::Receive);
            }
            (Multishot::Ended, ReceiveMode::Multishot) if is_bulk => self.mode = ReceiveMode::Direct(BULK_BYTES),
            (Multishot::Ended, ReceiveMode::Cancelling) => self.mode = ReceiveMode::Direct(BULK_BYTES),
            _ => {}
        }
        self.reader.take()
    }

    /// Stores a provided buffer until its bytes are read.
    fn store(&mut self, provided: ProvidedBuffer) {
        if !self.has_bytes() && (self.reader.is_set() || provided.is_ring_mostly_free()) {
            self.buffer = Some(provided);
            return;
        }
        // Unread bytes must not occupy all provided buffers.
        let spill = self.spill.get_or_insert_default();
        if let Some(first) = self.buffer.take() {
            spill.bytes.splice(..spill.at, first.bytes().iter().copied());
            spill.at = 0;
        }
        // Reserves exactly, to stay within the documented memory per connection.
        spill.bytes.reserve_exact(provided.bytes().len());
        spill.bytes.extend_from_slice(provided.bytes());
    }

    /// Records that the socket is readable. Returns the reader to wake.
    pub(super) fn on_readable(&mut self) -> Option<Waiter> {
        self.mode = match self.mode {
            // The next bytes decide whether the client still sends much.
            ReceiveMode::Direct(_) => ReceiveMode::Direct(0),
            mode => mode,
        };
        self.reader.take()
    }
}
