//! Limits the number of connections of each client.
//!
//! It is checked once for each accepted connection, so no request waits for its lock. The table has at most one
//! entry for each open connection.

use super::{DenialCounter, RuleMode};
use crate::site::network::{any_contains, client_key};
use crate::syntax::Network;
use selvedge::service::Admission;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits the number of connections of each client. An IPv6 /64 counts as one client.
#[derive(Debug)]
pub(crate) struct ConnectionLimiter {
    connections_max: u32,
    /// The networks of trusted proxies, whose connections carry the requests of many clients.
    exempt: Vec<Network>,
    mode: RuleMode,
    denials: DenialCounter,
    open_connections: Mutex<HashMap<IpAddr, u32>>,
}

/// Counts a connection for its client until it is dropped.
struct ConnectionPermit {
    limit: Arc<ConnectionLimiter>,
    client: IpAddr,
}

impl ConnectionLimiter {
    /// Creates a limit for each client outside of the exempt networks.
    pub(crate) fn new(connections_max: u32, exempt: Vec<Network>, mode: RuleMode, denials: DenialCounter) -> Arc<Self> {
        Arc::new(Self { connections_max, exempt, mode, denials, open_connections: Mutex::default() })
    }

    /// Returns the counter of denied connections if the limit is in dry-run mode.
    pub(crate) fn dry_run_counter(&self) -> Option<&DenialCounter> {
        self.denials.in_dry_run(self.mode)
    }

    /// Returns the counter of denied connections.
    #[cfg(test)]
    pub(crate) fn denials(&self) -> &DenialCounter {
        &self.denials
    }

    /// Decides on a new connection of a peer, and counts it if it is served.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Admission {
        if any_contains(&self.exempt, peer) {
            return Admission::Serve(Box::new(()));
        }
        let client = client_key(peer);
        let mut open = self.lock_open_connections();
        let count = open.get(&client).copied().unwrap_or_default();
        let is_over = count >= self.connections_max;
        if is_over {
            self.denials.increment();
            if self.mode == RuleMode::Enforce {
                return Admission::Refuse;
            }
        }
        open.insert(client, count + 1);
        let permit = Box::new(ConnectionPermit { limit: self.clone(), client });
        if is_over { Admission::ServeOverLimit(permit) } else { Admission::Serve(permit) }
    }

    /// Decides on a new connection or request of a client as [`Self::admit`] does, and counts nothing.
    pub(super) fn would_admit(&self, peer: IpAddr) -> Admission {
        let count = self.lock_open_connections().get(&client_key(peer)).copied().unwrap_or_default();
        match (any_contains(&self.exempt, peer) || count < self.connections_max, self.mode) {
            (true, _) => Admission::Serve(Box::new(())),
            (false, RuleMode::DryRun) => Admission::ServeOverLimit(Box::new(())),
            (false, RuleMode::Enforce) => Admission::Refuse,
        }
    }

    fn lock_open_connections(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        // No code panics while it has the lock.
        self.open_connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.limit.lock_open_connections();
        match open.get_mut(&self.client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn connections_per_client_are_limited() {
        let limiter =
            ConnectionLimiter::new(2, vec!["10.0.0.0/8".parse().unwrap()], RuleMode::Enforce, DenialCounter::default());
        let client = address("192.0.2.1");
        let first = limiter.admit(client);
        let second = limiter.admit(address("::ffff:192.0.2.1"));
        assert!(matches!((&first, &second), (Admission::Serve(_), Admission::Serve(_))));
        assert!(matches!(limiter.would_admit(client), Admission::Refuse));
        assert_eq!(limiter.denials().get(), 0, "a question counts nothing");
        assert!(matches!(limiter.admit(client), Admission::Refuse));
        assert!(matches!(limiter.would_admit(address("192.0.2.2")), Admission::Serve(_)));
        assert!(matches!(limiter.admit(address("192.0.2.2")), Admission::Serve(_)));
        drop(second);
        let third = limiter.admit(client);
        assert!(matches!(third, Admission::Serve(_)));
        assert!(matches!(limiter.admit(client), Admission::Refuse));
        assert_eq!(limiter.denials().get(), 2);
        let proxies: Vec<_> = (0..9).map(|_| limiter.admit(address("10.1.2.3"))).collect();
        assert!(proxies.iter().all(|admission| matches!(admission, Admission::Serve(_))));
        drop((first, third));
        assert!(limiter.lock_open_connections().is_empty(), "a disconnected client takes no space");
    }

    #[test]
    fn dry_run_serves_and_counts_a_subnet_as_one_client() {
        let limiter = ConnectionLimiter::new(1, vec![], RuleMode::DryRun, DenialCounter::default());
        let _first = limiter.admit(address("2001:db8::1"));
        assert!(matches!(limiter.would_admit(address("2001:db8::2")), Admission::ServeOverLimit(_)));
        let second = limiter.admit(address("2001:db8::2"));
        assert!(matches!(second, Admission::ServeOverLimit(_)));
        assert_eq!(limiter.denials().get(), 1);
        assert_eq!(limiter.lock_open_connections().values().copied().collect::<Vec<_>>(), [2]);
    }
}
