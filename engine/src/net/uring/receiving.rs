//! What has come over a socket and was not yet read, and how more comes.
//!
//! Waiting for the next request costs nothing: one operation stays with the kernel, which puts
//! what comes into a buffer of the ring's. When much comes, or nobody reads it, that operation is
//! ended, and bytes are received as whoever reads them asks for them, straight into their place:
//! so no client has more of the ring's buffers than one, and those who are not read have half of them
//! at the most.

use super::{Waiter, Waiting};
use crate::buffer::Buffer;
use crate::limits::RING_BULK_BYTES;
use crate::net::stream::{Room, receive};
use crate::net::sys::leases::Lease;
use crate::net::sys::ring::{Kind, Number, Ring, Then};
use rustix::io::Errno;
use std::io;
use std::task::{Context, Poll};

/// As much as is received directly from then on.
const MUCH: u32 = RING_BULK_BYTES as u32;

/// The receiving side of a socket.
pub(super) struct Receiving {
    how: How,
    /// Bytes that are there, in the ring's buffer, and behind them those that had to leave theirs.
    lease: Option<Lease>,
    kept: Option<Box<Kept>>,
    /// How it ended, if it did.
    end: Option<Result<(), Errno>>,
    pub(super) reader: Waiting,
}

/// Bytes that came and were not wanted yet, from `at` on.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    at: usize,
}

/// How more bytes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// When they are asked for, straight to whoever asks. The count is of what came so since it
    /// was last waited for.
    Direct(u32),
    /// Into the ring's buffers, as soon as somebody waits for them.
    Ringed,
    /// The operation that fills the ring's buffers is about to end.
    Ending,
}

impl Default for Receiving {
    fn default() -> Self {
        // The request has often come before the connection is accepted.
        Self { how: How::Direct(0), lease: None, kept: None, end: None, reader: Waiting::default() }
    }
}

impl Receiving {
    /// As [`crate::net::stream::Stream::poll_receive`].
    pub(super) fn poll(
        &mut self,
        cx: &Context<'_>,
        into: &mut Option<Buffer>,
        (ring, number): (&mut Ring, Number),
    ) -> Poll<io::Result<usize>> {
        if self.has_bytes() {
            return Poll::Ready(Ok(self.read(into)));
        }
        match self.end {
            Some(Ok(())) => return Poll::Ready(Ok(0)),
            Some(Err(error)) => return Poll::Ready(Err(error.into())),
            None => {}
        }
        if let How::Direct(before) = self.how
            && !ring.is_in_flight(number, Kind::Readable)
        {
            match receive(ring.fd(number), into) {
                Ok((received, room)) => {
                    // What is left will raise its own completion once it is waited for.
                    let so_far = before.saturating_add(u32::try_from(received).unwrap_or(u32::MAX));
                    let is_much = room == Room::Full || so_far >= MUCH;
                    self.how = if is_much { How::Direct(so_far) } else { How::Ringed };
                    return Poll::Ready(Ok(received));
                }
                Err(Errno::AGAIN | Errno::INTR) if before >= MUCH => ring.begin(number, Kind::Readable),
                Err(Errno::AGAIN | Errno::INTR) => self.how = How::Ringed,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        if self.how == How::Ringed {
            ring.begin(number, Kind::Receive);
        }
        self.reader.begin(cx);
        Poll::Pending
    }

    /// Whether there are bytes to read.
    pub(super) fn has_bytes(&self) -> bool {
        self.lease.is_some() || self.kept.is_some()
    }

    /// How the client has ended its side, if it has.
    pub(super) fn end(&self) -> Option<Result<(), Errno>> {
        self.end
    }

    /// Puts what is there behind what `into` holds, as far as there is room.
    fn read(&mut self, into: &mut Option<Buffer>) -> usize {
        let buffer = into.get_or_insert_with(Buffer::take);
        buffer.make_room();
        let room = buffer.capacity() - buffer.len();
        let (rest, from_lease): (&[u8], _) = match (&self.lease, &self.kept) {
            (Some(lease), _) => (lease.bytes(), true),
            (None, Some(kept)) => (&kept.bytes[kept.at..], false),
            (None, None) => return 0,
        };
        let count = rest.len().min(room);
        buffer.extend_from_slice(&rest[..count]);
        let is_all = count == rest.len();
        match (from_lease, is_all) {
            (true, true) => self.lease = None,
            (true, false) => self.lease.iter_mut().for_each(|lease| lease.consume(count)),
            (false, true) => self.kept = None,
            (false, false) => self.kept.iter_mut().for_each(|kept| kept.at += count),
        }
        count
    }

    /// Takes all that is there, in order.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        let mut all = self.lease.take().map_or_else(Vec::new, |lease| lease.bytes().to_vec());
        self.kept.take().iter().for_each(|kept| all.extend_from_slice(&kept.bytes[kept.at..]));
        all
    }

    /// Notes what came.
    pub(super) fn received(
        &mut self,
        received: Result<Option<Lease>, Errno>,
        then: Then,
        (ring, number): (&mut Ring, Number),
    ) -> Option<Waiter> {
        let mut is_much = false;
        match received {
            Ok(Some(lease)) => {
                self.keep(lease);
                is_much = self.kept.as_ref().is_some_and(|kept| kept.bytes.len() - kept.at >= RING_BULK_BYTES);
            }
            Ok(None) => self.end = Some(Ok(())),
            // There was no buffer for it. It is received without one, and what comes next may have one.
            Err(Errno::NOBUFS) => self.how = How::Direct(0),
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Err(error) => self.end = Some(Err(error)),
        }
        match (then, self.how) {
            (Then::More, How::Ringed) if is_much => {
                self.how = How::Ending;
                ring.cancel(number, Kind::Receive);
            }
            (Then::Over, How::Ringed) if is_much => self.how = How::Direct(MUCH),
            (Then::Over, How::Ending) => self.how = How::Direct(MUCH),
            _ => {}
        }
        self.reader.end()
    }

    /// Keeps what came until it is read.
    fn keep(&mut self, lease: Lease) {
        if !self.has_bytes() && (self.reader.is_there() || lease.is_of_few()) {
            self.lease = Some(lease);
            return;
        }
        // Those who do not read may not have all of the ring's buffers.
        let kept = self.kept.get_or_insert_default();
        if let Some(first) = self.lease.take() {
            kept.bytes.splice(..kept.at, first.bytes().iter().copied());
            kept.at = 0;
        }
        // No more than is said that a connection takes.
        kept.bytes.reserve_exact(lease.bytes().len());
        kept.bytes.extend_from_slice(lease.bytes());
    }

    /// What was waited for is there.
    pub(super) fn readable(&mut self) -> Option<Waiter> {
        self.how = match self.how {
            // What comes next decides whether it is still much.
            How::Direct(_) => How::Direct(0),
            how => how,
        };
        self.reader.end()
    }
}
