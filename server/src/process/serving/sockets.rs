//! Sockets of a serving process: its own, or those from its supervisor.

use super::request::{PendingListeners, call};
use super::{Parent, ServingProcess};
use crate::process::ListenAddress;
use crate::process::link::FromChild;
use crate::process::lock::lock;
use selvedge::{Endpoint, Listener};
use std::io;

impl ServingProcess {
    /// Returns listeners for an address. Sockets that the process has already are duplicated.
    pub(crate) fn bind(&self, address: &ListenAddress) -> Result<Vec<Listener>, String> {
        let mut sockets = lock(&self.sockets);
        if let Parent::Supervisor { link, request_lock } = &self.parent
            && !sockets.bound().iter().any(|bound| bound.address == *address)
        {
            let mut pending = PendingListeners::default();
            let reply = call(link, request_lock, &FromChild::Bind { address: address.clone() }, &mut pending)?;
            reply?;
            sockets.remove(address);
            for (address, listener) in pending.listeners()? {
                sockets.add(address, listener);
            }
        }
        let clones = sockets.bind(address)?.iter().map(Listener::try_clone).collect::<io::Result<_>>();
        clones.map_err(|error| format!("cannot listen on {address}: {error}"))
    }

    /// Returns the addresses for which this process has sockets.
    pub(crate) fn addresses(&self) -> Vec<ListenAddress> {
        lock(&self.sockets).bound().iter().map(|bound| bound.address.clone()).collect()
    }

    /// Releases an address, and returns the endpoints that the server has to remove.
    pub(crate) fn release(&self, address: &ListenAddress) -> Vec<Endpoint> {
        match &self.parent {
            Parent::Supervisor { link, .. } => {
                let _ = link.send(&FromChild::Release { address: address.clone() });
                lock(&self.sockets).release(address)
            }
            Parent::None { .. } => lock(&self.sockets).close(address),
        }
    }
}
