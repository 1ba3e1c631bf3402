//! The order in which streams send (RFC 9218 §10).
//!
//! Each urgency has a ring of the streams that have content and a window. The first of the most urgent ring sends
//! until its turn is used up; then the next is first. A turn is long enough for small responses to complete in it, so
//! responses are sent one after the other, and a large one delays the others by one turn each time. The turn of an
//! incremental stream is one frame.

use super::priority::Delivery;
use super::stream::{NO_SLOT, Slot, Stream};

/// Number of urgencies (RFC 9218 §4.1).
const URGENCIES: usize = 8;

/// Bytes of the turn of an incremental stream: a frame of usual size.
const INCREMENTAL_TURN_BYTES: u32 = 16_384;

/// The rings of streams. Their links are in the streams.
#[derive(Debug)]
pub(super) struct Schedule {
    /// First stream of each urgency.
    first: [Slot; URGENCIES],
    /// A bit for each urgency that has streams.
    occupied: u8,
    turn_bytes: u32,
}

impl Schedule {
    pub(super) const fn new(turn_bytes: u32) -> Self {
        Self { first: [NO_SLOT; URGENCIES], occupied: 0, turn_bytes }
    }

    /// Returns the stream whose turn it is.
    #[inline]
    pub(super) fn first(&self) -> Option<Slot> {
        self.first.get(self.occupied.trailing_zeros() as usize).copied()
    }

    /// Inserts a stream as the last of its urgency, if it is not scheduled.
    pub(super) fn insert(&mut self, streams: &mut [Stream], slot: Slot) {
        let stream = &streams[usize::from(slot)];
        if stream.is_scheduled {
            return;
        }
        let urgency = urgency_of(stream);
        let first = self.first[urgency];
        let (previous, next) = if first == NO_SLOT {
            self.first[urgency] = slot;
            self.occupied |= 1 << urgency;
            (slot, slot)
        } else {
            let last = streams[usize::from(first)].previous;
            streams[usize::from(last)].next = slot;
            streams[usize::from(first)].previous = slot;
            (last, first)
        };
        let turn_left = self.turn_bytes_of(&streams[usize::from(slot)]);
        let stream = &mut streams[usize::from(slot)];
        stream.previous = previous;
        stream.next = next;
        stream.turn_left = turn_left;
        stream.is_scheduled = true;
    }

    /// Removes a stream, if it is scheduled.
    pub(super) fn remove(&mut self, streams: &mut [Stream], slot: Slot) {
        let stream = &mut streams[usize::from(slot)];
        if !stream.is_scheduled {
            return;
        }
        stream.is_scheduled = false;
        let (urgency, previous, next) = (urgency_of(stream), stream.previous, stream.next);
        if next == slot {
            self.first[urgency] = NO_SLOT;
            self.occupied &= !(1 << urgency);
            return;
        }
        streams[usize::from(previous)].next = next;
        streams[usize::from(next)].previous = previous;
        if self.first[urgency] == slot {
            self.first[urgency] = next;
        }
    }

    /// Accounts content that a stream has sent. At the end of its turn the next stream is first.
    #[inline]
    pub(super) fn account_sent(&mut self, streams: &mut [Stream], slot: Slot, bytes: u32) {
        let stream = &mut streams[usize::from(slot)];
        stream.turn_left = stream.turn_left.saturating_sub(bytes);
        if stream.turn_left > 0 || !stream.is_scheduled {
            return;
        }
        stream.turn_left = self.turn_bytes_of(stream);
        let (urgency, next) = (urgency_of(stream), stream.next);
        // A driver may send on a stream whose turn it is not.
        if self.first[urgency] == slot {
            self.first[urgency] = next;
        }
    }

    fn turn_bytes_of(&self, stream: &Stream) -> u32 {
        match stream.priority.delivery {
            Delivery::Whole => self.turn_bytes.max(1),
            Delivery::Incremental => INCREMENTAL_TURN_BYTES.min(self.turn_bytes).max(1),
        }
    }
}

fn urgency_of(stream: &Stream) -> usize {
    usize::from(stream.priority.urgency).min(URGENCIES - 1)
}
