//! How many connections a client may have.
//!
//! Asked once for each connection, when it was accepted; no request ever waits for the lock.
//! There are never more entries than connections.

use super::{Mode, Tally};
use crate::site::network::{Network, any_contains, client_key};
use selvedge::service::Admission;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many connections a client may have. An IPv6 client is its /64.
#[derive(Debug)]
pub(crate) struct ConnectionGate {
    connections_max: u32,
    /// Trusted proxies: they speak for many, each of whom has one connection to them.
    exempt: Vec<Network>,
    mode: Mode,
    tally: Tally,
    open: Mutex<HashMap<IpAddr, u32>>,
}

/// A connection that counts for its client until this is dropped.
struct Counted {
    gate: Arc<ConnectionGate>,
    client: IpAddr,
}

impl ConnectionGate {
    /// Lets each client have so many, but for those from exempt networks.
    pub(crate) fn new(connections_max: u32, exempt: Vec<Network>, mode: Mode) -> Arc<Self> {
        Arc::new(Self { connections_max, exempt, mode, tally: Tally::default(), open: Mutex::default() })
    }

    /// How many connections it was against, where it only observes.
    pub(crate) fn observed(&self) -> Option<u64> {
        self.tally.observed(self.mode)
    }

    /// How many connections it was against.
    #[cfg(test)]
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What becomes of one more connection of this peer.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Admission {
        if any_contains(&self.exempt, peer) {
            return Admission::Serve(Box::new(()));
        }
        let client = client_key(peer);
        let mut open = self.open();
        let count = open.get(&client).copied().unwrap_or_default();
        let is_over = count >= self.connections_max;
        if is_over {
            self.tally.count();
            if self.mode == Mode::Enforce {
                return Admission::Refuse;
            }
        }
        open.insert(client, count + 1);
        let counted = Box::new(Counted { gate: self.clone(), client });
        if is_over { Admission::Observe(counted) } else { Admission::Serve(counted) }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, u32>> {
        // Nothing between taking and giving back panics.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.gate.open();
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
    fn a_client_has_so_many() {
        let gate = ConnectionGate::new(2, vec!["10.0.0.0/8".parse().unwrap()], Mode::Enforce);
        let client = address("192.0.2.1");
        let first = gate.admit(client);
        let second = gate.admit(address("::ffff:192.0.2.1"));
        assert!(matches!((&first, &second), (Admission::Serve(_), Admission::Serve(_))));
        assert!(matches!(gate.admit(client), Admission::Refuse));
        assert!(matches!(gate.admit(address("192.0.2.2")), Admission::Serve(_)));
        drop(second);
        let third = gate.admit(client);
        assert!(matches!(third, Admission::Serve(_)));
        assert!(matches!(gate.admit(client), Admission::Refuse));
        assert_eq!(gate.tally().get(), 2);
        let proxies: Vec<_> = (0..9).map(|_| gate.admit(address("10.1.2.3"))).collect();
        assert!(proxies.iter().all(|admission| matches!(admission, Admission::Serve(_))));
        drop((first, third));
        assert!(gate.open().is_empty(), "who is gone takes no room");
    }

    #[test]
    fn observed_only_and_a_subnet_is_one_client() {
        let gate = ConnectionGate::new(1, vec![], Mode::Observe);
        let _first = gate.admit(address("2001:db8::1"));
        let second = gate.admit(address("2001:db8::2"));
        assert!(matches!(second, Admission::Observe(_)));
        assert_eq!(gate.tally().get(), 1);
        assert_eq!(gate.open().values().copied().collect::<Vec<_>>(), [2]);
    }
}
