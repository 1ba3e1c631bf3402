//! The open streams of a connection, found by identifier.

use super::connection::StreamId;
use super::flow::WindowTooLarge;
use super::priority::Priority;
use super::schedule::Schedule;
use super::stream::{NO_SLOT, NewStream, Slot, Stream};

/// All open streams of a connection.
///
/// Slots are found by a table of open addressing, whose home position is the identifier itself: streams of usual
/// clients have consecutive identifiers, so they do not collide.
#[derive(Debug)]
pub(crate) struct StreamTable {
    streams: Vec<Stream>,
    /// First unused slot below the length of `streams`.
    free: Slot,
    open: usize,
    /// The slots, each at or after its home position; `NO_SLOT` where empty. Its length is a power of two, and at least
    /// twice the number of streams.
    positions: Vec<Slot>,
    /// The slot that was found last.
    last_found: Slot,
    pub(super) schedule: Schedule,
}

/// Positions of the smallest table.
const POSITIONS_MIN: usize = 8;

impl StreamTable {
    /// Creates an empty table. Does not allocate.
    pub(crate) const fn new(turn_bytes: u32) -> Self {
        Self {
            streams: Vec::new(),
            free: NO_SLOT,
            open: 0,
            positions: Vec::new(),
            last_found: NO_SLOT,
            schedule: Schedule::new(turn_bytes),
        }
    }

    pub(crate) fn open_count(&self) -> usize {
        self.open
    }

    pub(crate) fn get(&self, slot: Slot) -> &Stream {
        &self.streams[usize::from(slot)]
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Stream {
        &mut self.streams[usize::from(slot)]
    }

    /// Returns the slot of an open stream.
    #[inline]
    pub(crate) fn find(&mut self, id: StreamId) -> Option<Slot> {
        if let Some(stream) = self.streams.get(usize::from(self.last_found))
            && stream.id == id
        {
            return Some(self.last_found);
        }
        let slot = self.slot_of(id)?;
        self.last_found = slot;
        Some(slot)
    }

    /// Returns the slot of an open stream, without a change.
    pub(crate) fn slot_of(&self, id: StreamId) -> Option<Slot> {
        self.position_of(id).map(|position| self.positions[position])
    }

    /// Inserts a stream that is not in the table. The table has fewer than [`super::STREAMS_CEILING`] streams.
    pub(crate) fn insert(&mut self, new: NewStream) -> Slot {
        if (self.open + 1) * 2 > self.positions.len() {
            self.grow();
        }
        let (id, stream) = (new.id, Stream::new(new));
        let slot = match self.free {
            NO_SLOT => {
                self.streams.push(stream);
                (self.streams.len() - 1) as Slot
            }
            slot => {
                self.free = self.get(slot).next;
                *self.get_mut(slot) = stream;
                slot
            }
        };
        self.open += 1;
        self.place(id, slot);
        self.last_found = slot;
        slot
    }

    /// Removes a stream, which is closed from now on.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.schedule.remove(&mut self.streams, slot);
        let id = self.get(slot).id;
        if let Some(position) = self.position_of(id) {
            self.empty_position(position);
        }
        let free = core::mem::replace(&mut self.free, slot);
        let stream = self.get_mut(slot);
        stream.next = free;
        stream.id = StreamId(0);
        self.open -= 1;
        self.last_found = NO_SLOT;
    }

    /// Schedules a stream or takes it out, after its state or its window changed.
    pub(crate) fn reschedule(&mut self, slot: Slot) {
        if self.get(slot).can_send() {
            self.schedule.insert(&mut self.streams, slot);
        } else {
            self.schedule.remove(&mut self.streams, slot);
        }
    }

    /// Accounts content that a stream has sent, and ends its turn if it is used up.
    #[inline]
    pub(crate) fn account_sent(&mut self, slot: Slot, bytes: u32) {
        self.get_mut(slot).send_window.send(bytes);
        self.schedule.account_sent(&mut self.streams, slot, bytes);
        if !self.get(slot).can_send() {
            self.schedule.remove(&mut self.streams, slot);
        }
    }

    /// Returns the stream whose turn it is.
    #[inline]
    pub(crate) fn next_turn(&self) -> Option<&Stream> {
        Some(self.get(self.schedule.first()?))
    }

    /// Changes the priority of a stream.
    pub(crate) fn set_priority(&mut self, slot: Slot, priority: Priority) {
        if self.get(slot).priority != priority {
            self.schedule.remove(&mut self.streams, slot);
            self.get_mut(slot).priority = priority;
            self.reschedule(slot);
        }
    }

    /// Changes the send windows of all streams by the difference of two initial windows (RFC 9113 §6.9.2).
    pub(crate) fn change_send_windows(&mut self, bytes: i64) -> Result<(), WindowTooLarge> {
        for slot in 0..self.streams.len() as Slot {
            if self.get(slot).id != StreamId(0) {
                self.get_mut(slot).send_window.change(bytes)?;
                self.reschedule(slot);
            }
        }
        Ok(())
    }

    /// Changes the receive windows of all streams by the difference of two initial windows.
    pub(crate) fn change_receive_windows(&mut self, bytes: i32) {
        self.streams.iter_mut().for_each(|stream| stream.receive_window.change(bytes));
    }

    /// Returns an open stream above an identifier.
    pub(crate) fn find_above(&self, id: u32) -> Option<Slot> {
        self.streams.iter().position(|stream| stream.id.get() > id).map(|slot| slot as Slot)
    }

    /// Releases all memory, if no stream is open.
    pub(crate) fn compact(&mut self) {
        if self.open == 0 {
            self.streams = Vec::new();
            self.positions = Vec::new();
            self.free = NO_SLOT;
            self.last_found = NO_SLOT;
        }
    }

    /// Returns the most memory of a table with this many streams, in bytes, without the growth of its vectors.
    pub(crate) const fn bytes_max(streams: usize) -> usize {
        streams * (size_of::<Stream>() + 2 * size_of::<Slot>())
    }

    /// Returns the home position of an identifier. The lowest bit has one value for all streams of an opener.
    #[inline]
    fn home(&self, id: StreamId) -> usize {
        (id.get() >> 1) as usize & (self.positions.len() - 1)
    }

    fn position_of(&self, id: StreamId) -> Option<usize> {
        if self.positions.is_empty() {
            return None;
        }
        let mut position = self.home(id);
        // Ends, since at least half of the positions are empty.
        loop {
            let slot = self.positions[position];
            if slot == NO_SLOT {
                return None;
            }
            if self.get(slot).id == id {
                return Some(position);
            }
            position = (position + 1) & (self.positions.len() - 1);
        }
    }

    fn place(&mut self, id: StreamId, slot: Slot) {
        let mut position = self.home(id);
        while self.positions[position] != NO_SLOT {
            position = (position + 1) & (self.positions.len() - 1);
        }
        self.positions[position] = slot;
    }

    /// Empties a position, and moves later slots back whose way from home leads over it.
    fn empty_position(&mut self, position: usize) {
        let mask = self.positions.len() - 1;
        let (mut empty, mut position) = (position, position);
        loop {
            position = (position + 1) & mask;
            let slot = self.positions[position];
            if slot == NO_SLOT {
                break;
            }
            let home = self.home(self.get(slot).id);
            if (position.wrapping_sub(home) & mask) >= (position.wrapping_sub(empty) & mask) {
                self.positions[empty] = slot;
                empty = position;
            }
        }
        self.positions[empty] = NO_SLOT;
    }

    fn grow(&mut self) {
        let len = (self.positions.len() * 2).max(POSITIONS_MIN);
        self.positions = vec![NO_SLOT; len];
        for slot in 0..self.streams.len() as Slot {
            let id = self.get(slot).id;
            if id != StreamId(0) {
                self.place(id, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::connection::Content;
    use crate::http2::priority::Delivery;
    use crate::http2::stream::Side;
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};

    fn new_stream(id: u32) -> NewStream {
        NewStream { id: StreamId(id), remote: Side::Content, local: Side::Content, send_window: 10, receive_window: 10 }
    }

    proptest! {
        #[test]
        fn table_finds_exactly_the_open_streams(operations in proptest::collection::vec((any::<bool>(), 0u32..40), 1..300)) {
            let mut table = StreamTable::new(100);
            let mut open: HashMap<u32, Slot> = HashMap::new();
            let mut next = 1;
            for (inserts, number) in operations {
                if inserts {
                    // Gaps make streams collide.
                    next += 2 * (number % 7 * 4 + 1);
                    open.insert(next, table.insert(new_stream(next)));
                } else if let Some(&id) = open.keys().nth(number as usize) {
                    table.remove(open.remove(&id).unwrap());
                }
                prop_assert_eq!(table.open_count(), open.len());
                for id in [next, next + 2, next.saturating_sub(2 * number) | 1] {
                    prop_assert_eq!(table.find(StreamId(id)), open.get(&id).copied());
                }
            }
            for id in (1..=next + 2).step_by(2) {
                prop_assert_eq!(table.slot_of(StreamId(id)), open.get(&id).copied());
            }
        }
    }

    /// The schedule as plain lists, one for each urgency.
    #[derive(Default)]
    struct Lists {
        lists: [VecDeque<Slot>; 8],
    }

    impl Lists {
        fn update(&mut self, table: &StreamTable, slot: Slot) {
            let stream = table.get(slot);
            let is_listed = self.lists.iter().any(|list| list.contains(&slot));
            if stream.id == StreamId(0) || !stream.can_send() {
                self.lists.iter_mut().for_each(|list| list.retain(|other| *other != slot));
            } else if !is_listed {
                self.lists[usize::from(stream.priority.urgency)].push_back(slot);
            }
        }

        fn first(&self) -> Option<Slot> {
            self.lists.iter().find_map(|list| list.front().copied())
        }
    }

    /// Applies one operation to a table and to plain lists.
    fn operate(table: &mut StreamTable, lists: &mut Lists, slot: Slot, operation: u8, number: u32) {
        match operation {
            0 | 1 => {
                table.get_mut(slot).content = if operation == 0 { Content::Ready } else { Content::Waiting };
                table.reschedule(slot);
            }
            2 => {
                table.get_mut(slot).send_window.change(i64::from(number)).unwrap();
                table.reschedule(slot);
            }
            3 => {
                let delivery = if number.is_multiple_of(2) { Delivery::Whole } else { Delivery::Incremental };
                let priority = Priority { urgency: (number % 8) as u8, delivery };
                if table.get(slot).priority != priority {
                    lists.lists.iter_mut().for_each(|list| list.retain(|other| *other != slot));
                }
                table.set_priority(slot, priority);
            }
            _ => {
                let Some(turn) = table.next_turn() else { return };
                let slot = table.slot_of(turn.id).unwrap();
                let bytes = turn.send_window.available().min(1 + number);
                let ends = bytes >= turn.turn_left;
                let urgency = usize::from(turn.priority.urgency);
                table.account_sent(slot, bytes);
                if ends {
                    lists.lists[urgency].rotate_left(1);
                }
                return lists.update(table, slot);
            }
        }
        lists.update(table, slot);
    }

    proptest! {
        #[test]
        fn schedule_equals_plain_lists(operations in proptest::collection::vec((0u16..12, 0u8..8, 0u32..120), 1..300)) {
            let (mut table, mut lists) = (StreamTable::new(100), Lists::default());
            let mut next = 1;
            for (slot, operation, number) in operations {
                if usize::from(slot) >= table.streams.len() || table.get(slot).id == StreamId(0) {
                    table.insert(new_stream(next));
                    next += 2;
                } else if operation == 7 && number < 20 {
                    table.remove(slot);
                    lists.update(&table, slot);
                } else {
                    operate(&mut table, &mut lists, slot, operation, number);
                }
                let first = lists.first().map(|slot| table.get(slot).id);
                prop_assert_eq!(table.next_turn().map(|stream| stream.id), first);
            }
        }
    }
}
