//! What one thread keeps for whoever has a ticket. A ticket is a number and may go anywhere; what
//! it stands for stays.

use std::cell::RefCell;

/// Places, of which some are free.
pub(super) struct Table<T> {
    places: RefCell<Vec<Place<T>>>,
    free: RefCell<Vec<u32>>,
}

struct Place<T> {
    /// Counts who had the place, so that an old ticket leads nowhere.
    turn: u32,
    item: Option<T>,
}

/// Stands for one thing in a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    number: u32,
    turn: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { places: RefCell::default(), free: RefCell::default() }
    }
}

impl<T> Table<T> {
    pub(super) fn put(&self, item: T) -> Ticket {
        let mut places = self.places.borrow_mut();
        let number = self.free.borrow_mut().pop().unwrap_or_else(|| {
            places.push(Place { turn: 0, item: None });
            // There are never more than requests, and those have descriptors.
            (places.len() - 1) as u32
        });
        let place = &mut places[number as usize];
        place.item = Some(item);
        Ticket { number, turn: place.turn }
    }

    pub(super) fn take(&self, ticket: Ticket) -> Option<T> {
        let mut places = self.places.borrow_mut();
        let place = places.get_mut(ticket.number as usize).filter(|place| place.turn == ticket.turn)?;
        place.turn = place.turn.wrapping_add(1);
        self.free.borrow_mut().push(ticket.number);
        place.item.take()
    }

    pub(super) fn has(&self, ticket: Ticket) -> bool {
        self.places.borrow().get(ticket.number as usize).is_some_and(|place| place.turn == ticket.turn)
    }

    /// Looks at what a ticket stands for. It is out of its place meanwhile, so that whatever the
    /// look sets going may use the table.
    pub(super) fn with<U>(&self, ticket: Ticket, look: impl FnOnce(&mut T) -> U) -> Option<U> {
        let place = |places: &mut Vec<Place<T>>| -> Option<T> {
            places.get_mut(ticket.number as usize).filter(|place| place.turn == ticket.turn)?.item.take()
        };
        let mut item = place(&mut self.places.borrow_mut())?;
        let seen = look(&mut item);
        let mut places = self.places.borrow_mut();
        if let Some(place) = places.get_mut(ticket.number as usize).filter(|place| place.turn == ticket.turn) {
            place.item = Some(item);
        }
        Some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_ticket_leads_nowhere() {
        let table = Table::default();
        let first = table.put('a');
        assert_eq!(table.with(first, |item| *item), Some('a'));
        assert_eq!(table.take(first), Some('a'));
        let second = table.put('b');
        assert_eq!((table.take(first), table.has(first), table.has(second)), (None, false, true));
        assert_eq!(table.with(second, |_| table.take(second)), Some(None));
        assert!(!table.has(second), "it was let go of while it was looked at");
    }
}
