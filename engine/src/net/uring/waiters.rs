//! What a completion wakes.

use crate::net::connection_table::ConnectionId;
use std::task::{Context, Waker};

/// A waiting task or parked connection, if any.
#[derive(Default)]
pub(super) struct WaiterSlot(Option<Waiter>);

/// What a completion wakes; see [`WaiterSlot`].
pub(super) enum Waiter {
    Task(Waker),
    /// A parked connection.
    Parked(ConnectionId),
}

impl WaiterSlot {
    pub(super) fn set(&mut self, cx: &Context<'_>) {
        match &self.0 {
            Some(Waiter::Task(waker)) if waker.will_wake(cx.waker()) => {}
            _ => self.0 = Some(Waiter::Task(cx.waker().clone())),
        }
    }

    pub(super) fn parked(id: ConnectionId) -> Self {
        Self(Some(Waiter::Parked(id)))
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the waiter. Wake it when nothing is borrowed: waking may run other code.
    pub(super) fn take(&mut self) -> Option<Waiter> {
        self.0.take()
    }
}

/// The waiters to wake after a completion.
pub(super) type Wakeups = [Option<Waiter>; 2];
