//! The protocol state of parked connections, in one table.
//!
//! It is most of the memory of an idle connection. Single allocations would lie between the memory of tasks that have
//! ended, and keep their pages from the system.

use selvedge_proto::http2;

/// The states of the parked connections of a worker.
#[derive(Default)]
pub(in crate::connection) struct ParkedProtocols {
    slots: Vec<Option<http2::Connection>>,
    /// Free slots. Those beyond the end of `slots` do not count.
    free: Vec<u32>,
}

/// Where the state of a parked connection is.
pub(in crate::connection) enum ParkedProtocol {
    /// In this slot of the table, until it is removed.
    InTable(u32),
    /// In its own allocation, next to the session of its connection, which keeps the pages there anyway.
    Apart(Box<http2::Connection>),
}

impl ParkedProtocols {
    /// Stores a state.
    pub(in crate::connection) fn insert(&mut self, protocol: http2::Connection) -> ParkedProtocol {
        while let Some(slot) = self.free.pop() {
            if let Some(empty) = self.slots.get_mut(slot as usize) {
                *empty = Some(protocol);
                return ParkedProtocol::InTable(slot);
            }
        }
        self.slots.push(Some(protocol));
        ParkedProtocol::InTable(self.slots.len() as u32 - 1)
    }

    /// Removes a state. Releases the memory of an empty table.
    pub(in crate::connection) fn remove(&mut self, place: ParkedProtocol) -> Option<Box<http2::Connection>> {
        let slot = match place {
            ParkedProtocol::InTable(slot) => slot,
            ParkedProtocol::Apart(protocol) => return Some(protocol),
        };
        let protocol = self.slots.get_mut(slot as usize)?.take().map(Box::new);
        self.free.push(slot);
        while let Some(None) = self.slots.last() {
            self.slots.pop();
        }
        if self.slots.is_empty() {
            *self = Self::default();
        }
        protocol
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_proto::http2::{Http2Limits, Millis, Role};

    /// Returns a state that differs from others by its limit of streams.
    fn state(number: u32) -> http2::Connection {
        let limits = Http2Limits { settings_timeout_ms: number.into(), ..Http2Limits::default() };
        let mut state = http2::Connection::new(Role::Server, &limits, Millis(0));
        state.start(&mut Vec::new());
        state
    }

    #[test]
    fn states_are_found_and_places_are_used_again() {
        let mut parked = ParkedProtocols::default();
        let number_of = |state: Option<Box<http2::Connection>>| state.unwrap().deadline().unwrap().0;
        let [first, second, third] = [1, 2, 3].map(|number| parked.insert(state(number)));
        assert_eq!(number_of(parked.remove(second)), 2);
        let fourth = parked.insert(state(4));
        assert!(matches!(fourth, ParkedProtocol::InTable(1)) && parked.slots.len() == 3);
        assert_eq!((number_of(parked.remove(third)), number_of(parked.remove(fourth))), (3, 4));
        assert_eq!(parked.slots.len(), 1);
        let fifth = parked.insert(state(5));
        assert_eq!((number_of(parked.remove(first)), number_of(parked.remove(fifth))), (1, 5));
        assert_eq!((parked.slots.capacity(), parked.free.capacity()), (0, 0));
    }
}
