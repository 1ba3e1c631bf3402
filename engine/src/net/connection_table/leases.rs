//! The leases of responses in progress: what keeps a connection through a replacement of the application or the
//! server.

use crate::response_lease::ResponseLease;
use std::cell::RefCell;
use std::collections::HashMap;

/// Index of a connection in the table. It is reused after the connection closes.
pub(crate) type ConnectionId = u32;

/// The leases of responses in progress. Most connections have none.
#[derive(Default)]
pub(crate) struct Leases(RefCell<HashMap<ConnectionId, Vec<ResponseLease>>>);

impl Leases {
    /// Records that a response of a connection has a lease.
    pub(crate) fn add(&self, id: ConnectionId, lease: ResponseLease) {
        self.0.borrow_mut().entry(id).or_default().push(lease);
    }

    /// Records that a response with a lease has ended.
    pub(crate) fn remove(&self, id: ConnectionId, lease: &ResponseLease) {
        let mut leases = self.0.borrow_mut();
        let Some(of_connection) = leases.get_mut(&id) else { return };
        if let Some(place) = of_connection.iter().position(|known| known.is(lease)) {
            of_connection.swap_remove(place);
        }
        if of_connection.is_empty() {
            leases.remove(&id);
        }
    }

    /// Whether a response of a connection has a lease, in force or ended.
    pub(super) fn exist(&self, id: ConnectionId) -> bool {
        self.0.borrow().contains_key(&id)
    }

    /// Whether a response of a connection has a lease that is in force.
    pub(super) fn are_in_force(&self, id: ConnectionId) -> bool {
        self.0.borrow().get(&id).is_some_and(|leases| leases.iter().any(ResponseLease::is_in_force))
    }

    /// Whether no response has a lease.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
