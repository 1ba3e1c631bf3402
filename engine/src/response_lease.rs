//! Leases of responses that outlive a replacement of the application or the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lets responses outlive a replacement of the application ([`crate::AppHandle::replace`]) or of the server
/// ([`crate::Handle::hand_over`]). While the lease is in force, a stream of content or an upgraded connection continues, and
/// no timeout of the replacement ends it. Without a lease, an upgraded connection is requested to stop at once, and what
/// remains after [`crate::Limits::shutdown_timeout`] is aborted.
///
/// An application has one lease for each part of it, such as a route, and gives it to the responses of that part
/// ([`crate::Response::lease`]). If the next application has the part unchanged, it takes the lease over; otherwise the lease
/// is ended before the replacement. [`crate::Handle::stop`] ends all responses, with a lease or without.
///
/// Clones are one lease.
#[derive(Clone, Debug, Default)]
pub struct ResponseLease(Arc<AtomicBool>);

impl ResponseLease {
    /// Creates a lease that is in force.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the lease for good: the next replacement ends the responses that have it.
    pub fn end(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the lease is in force.
    pub fn is_in_force(&self) -> bool {
        !self.0.load(Ordering::Acquire)
    }

    /// Whether both are clones of one lease.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
