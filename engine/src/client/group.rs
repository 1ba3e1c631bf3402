//! The connections to one destination.

use super::destination::Destination;
use super::http2::{Opening, SharedConnection, StreamQueue};
use super::learned_idle::LearnedIdle;
use super::limits::LEARNED_IDLE_TICKS_MIN;
use crate::net::clock::Tick;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The place of a connection in the table, which it keeps until it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotId(pub(super) u32);

/// The connections to one destination.
pub(super) struct Group {
    pub(super) destination: Destination,
    /// Idle connections of HTTP/1.1 in the order of their last use.
    pub(super) idle: RefCell<Vec<SlotId>>,
    /// Connections of HTTP/2, and the one that is being opened.
    pub(super) shared_connections: RefCell<Vec<Rc<SharedConnection>>>,
    pub(super) opening: RefCell<Option<Rc<Opening>>>,
    /// Requests that wait for a stream of HTTP/2.
    pub(super) waiting: Rc<StreamQueue>,
    /// The idle time that the upstream permits.
    pub(super) learned: Cell<LearnedIdle>,
    /// Bytes of the last response of HTTP/1.1 whose length was announced. The next one is expected to be as long, so that
    /// one receive takes all of it.
    pub(super) response_bytes: Cell<u64>,
    /// Bytes of its head.
    pub(super) head_bytes: Cell<u16>,
}

impl Group {
    pub(super) fn new(destination: Destination) -> Self {
        Self {
            destination,
            idle: RefCell::default(),
            shared_connections: RefCell::default(),
            opening: RefCell::default(),
            waiting: Rc::default(),
            learned: Cell::default(),
            response_bytes: Cell::default(),
            head_bytes: Cell::default(),
        }
    }

    /// Learns that the upstream closed a connection after an idle time.
    pub(super) fn closed_after(&self, idle_for: Tick) {
        let mut learned = self.learned.get();
        learned.closed_after(idle_for.max(LEARNED_IDLE_TICKS_MIN));
        self.learned.set(learned);
    }

    pub(super) fn is_used(&self) -> bool {
        !self.idle.borrow().is_empty() || !self.shared_connections.borrow().is_empty()
    }

    /// Returns the longest idle time that was learned, in ticks.
    #[cfg(test)]
    pub(super) fn learned_ticks(&self) -> Option<Tick> {
        self.learned.get().ticks()
    }
}
