//! The addresses of a server, which a resolver replaces while workers use them.

use selvedge::client::Address;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The addresses of a server.
///
/// A worker keeps a copy with its version and takes the lock only if the version has changed.
#[derive(Debug)]
pub(crate) struct AddressCell {
    version: AtomicU64,
    addresses: Mutex<Arc<[Address]>>,
}

impl AddressCell {
    /// Creates a cell. Addresses are tried in this order. None means that the name is not resolved yet.
    pub(crate) fn new(addresses: impl Into<Arc<[Address]>>) -> Self {
        Self { version: AtomicU64::new(1), addresses: Mutex::new(addresses.into()) }
    }

    /// Replaces the addresses. Requests in progress keep the earlier ones.
    pub(crate) fn replace(&self, addresses: impl Into<Arc<[Address]>>) {
        let addresses = addresses.into();
        let mut current = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != addresses {
            *current = addresses;
            // Within the lock, so that no worker pairs the earlier addresses with the later version.
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns a number that changes with the addresses; never 0.
    pub(in crate::site) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the addresses and their version.
    pub(in crate::site) fn load(&self) -> (u64, Arc<[Address]>) {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        (self.version(), addresses.clone())
    }

    /// Returns the addresses.
    #[cfg(test)]
    pub(crate) fn current(&self) -> Arc<[Address]> {
        self.load().1
    }
}
