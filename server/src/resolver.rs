//! Resolves the names of upstream servers, beside the workers.
//!
//! A name never stops a start: the server runs, and each name is looked up on a thread of its own, again every 30 s, and
//! every 2 s while that fails. While the name service fails, the earlier addresses stay in use. Workers read the
//! addresses from an [`AddressCell`]; a name whose cell is no longer in use is forgotten.

use crate::site::AddressCell;
use selvedge::client::Address;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long a configuration waits for the first look-ups of its names.
pub(crate) const FIRST_LOOK_UPS_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two look-ups of a name. The C library does not report for how long a record is valid.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// Time between two look-ups of a name that is not found.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Most look-ups at once. One of an unreachable name service takes a thread for up to 30 s.
const LOOK_UPS_AT_ONCE_MAX: usize = 8;
/// Most addresses of a name.
const ADDRESSES_MAX: usize = 16;

/// A host name and a port.
type HostPort = (String, u16);

/// The names of all upstream servers, of all configurations that have connections.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    state: Mutex<Names>,
    /// A name was added, or a look-up has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Names {
    names: HashMap<HostPort, Name>,
    look_ups: usize,
    events: Vec<ResolverEvent>,
}

#[derive(Debug)]
struct Name {
    /// Held by the servers that have this name.
    cell: Weak<AddressCell>,
    /// When it is looked up next.
    due: Instant,
    is_at_work: bool,
    /// `None`: not looked up yet.
    last: Option<Result<Vec<SocketAddr>, String>>,
}

/// What the log reports of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResolverEvent {
    /// The name has other addresses than before.
    Resolved(String),
    /// The look-up failed. Reported once, until it succeeds.
    Failed(String),
}

impl Resolver {
    /// Returns the addresses of a name, which a look-up replaces. Servers with one name share them.
    pub(crate) fn addresses(&self, host: &str, port: u16) -> Arc<AddressCell> {
        if let Some(addresses) = loopback(host, port) {
            return Arc::new(AddressCell::new(as_addresses(&addresses)));
        }
        let mut state = self.lock();
        let place = (host.to_owned(), port);
        if let Some(cell) = state.names.get(&place).and_then(|name| name.cell.upgrade()) {
            return cell;
        }
        // The addresses from before a reload that removed the server for a while may be old, but better than none.
        let known = state.names.remove(&place).and_then(|name| name.last);
        let before = known.and_then(Result::ok).unwrap_or_default();
        let cell = Arc::new(AddressCell::new(as_addresses(&before)));
        let name = Name { cell: Arc::downgrade(&cell), due: Instant::now(), is_at_work: false, last: None };
        state.names.insert(place, name);
        self.changed.notify_all();
        cell
    }

    /// Looks names up until the process ends. Call it on a thread of its own.
    pub(crate) fn run(self: Arc<Self>) {
        loop {
            let now = Instant::now();
            for (host, port) in self.begin_due(now) {
                let resolver = self.clone();
                let place = (host.clone(), port);
                let look_up = move || resolver.end(&(host.clone(), port), look_up(&host, port), Instant::now());
                let started = thread::Builder::new().name("selvedge-names".to_owned()).spawn(look_up);
                if let Err(error) = started {
                    self.end(&place, Err(error), now);
                }
            }
            let state = self.lock();
            let wait = state.time_to_next(Instant::now());
            drop(self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits until every name was looked up once, for at most a time. A start does not depend on the result.
    pub(crate) fn wait_for_first_look_ups(&self, most: Duration) {
        let is_pending =
            |state: &mut Names| state.names.values().any(|name| name.last.is_none() && name.cell.strong_count() > 0);
        drop(self.changed.wait_timeout_while(self.lock(), most, is_pending).unwrap_or_else(PoisonError::into_inner));
    }

    /// Takes what the log has not reported yet.
    pub(crate) fn take_events(&self) -> Vec<ResolverEvent> {
        std::mem::take(&mut self.lock().events)
    }

    /// Returns the names to look up now, and forgets those that no server has.
    fn begin_due(&self, now: Instant) -> Vec<HostPort> {
        let mut state = self.lock();
        state.names.retain(|_, name| name.is_at_work || name.cell.strong_count() > 0);
        let free = LOOK_UPS_AT_ONCE_MAX.saturating_sub(state.look_ups);
        let due = state.names.iter_mut().filter(|(_, name)| !name.is_at_work && name.due <= now).take(free);
        let begun: Vec<HostPort> = due
            .map(|(place, name)| {
                name.is_at_work = true;
                place.clone()
            })
            .collect();
        state.look_ups += begun.len();
        begun
    }

    /// Takes the result of a look-up. A failure keeps the earlier addresses.
    fn end(&self, place: &HostPort, result: io::Result<Vec<SocketAddr>>, now: Instant) {
        let mut state = self.lock();
        let Names { names, look_ups, events } = &mut *state;
        *look_ups -= 1;
        if let Some(name) = names.get_mut(place) {
            name.is_at_work = false;
            let (host, _) = place;
            match result.map_err(|error| error.to_string()).and_then(some_of) {
                Ok(addresses) => {
                    name.due = now + REFRESH_INTERVAL;
                    if name.last.as_ref() != Some(&Ok(addresses.clone())) {
                        if let Some(cell) = name.cell.upgrade() {
                            cell.replace(as_addresses(&addresses));
                        }
                        let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                        events.push(ResolverEvent::Resolved(format!("{host} is {}", list.join(", "))));
                    }
                    name.last = Some(Ok(addresses));
                }
                Err(why) => {
                    name.due = now + RETRY_INTERVAL;
                    let keeps = matches!(name.last, Some(Ok(_)));
                    if !matches!(name.last, Some(Err(_))) {
                        let effect = match keeps {
                            true => "the earlier addresses stay in use",
                            false => "requests that need it get 503 until it is found",
                        };
                        events.push(ResolverEvent::Failed(format!("cannot resolve {host}: {why}; {effect}")));
                    }
                    name.last = Some(Err(why));
                }
            }
        }
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Names> {
        // Each change leaves the state complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// Returns the time until a name is due. A look-up that ends wakes the thread anyway.
    fn time_to_next(&self, now: Instant) -> Duration {
        if self.look_ups >= LOOK_UPS_AT_ONCE_MAX {
            return REFRESH_INTERVAL;
        }
        let waiting = self.names.values().filter(|name| !name.is_at_work);
        let next = waiting.map(|name| name.due.saturating_duration_since(now)).min();
        next.unwrap_or(REFRESH_INTERVAL).min(REFRESH_INTERVAL)
    }
}

/// Looks a name up by the C library, in the order that it prefers (RFC 6724).
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    (host, port).to_socket_addrs().map(Iterator::collect)
}

/// Returns the addresses in the order in which they are tried.
fn some_of(found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    match interleaved(found) {
        none if none.is_empty() => Err("the name has no address".to_owned()),
        addresses => Ok(addresses),
    }
}

/// Alternates between the families, beginning with that of the first address (RFC 8305 §4), without repetitions.
fn interleaved(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = found.first().map(SocketAddr::is_ipv6) else { return found };
    let (preferred, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| address.is_ipv6() == first);
    let (mut preferred, mut others) = (preferred.into_iter(), others.into_iter());
    let mut ordered: Vec<SocketAddr> = Vec::new();
    loop {
        let (one, other) = (preferred.next(), others.next());
        if one.is_none() && other.is_none() {
            return ordered;
        }
        for address in [one, other].into_iter().flatten() {
            if !ordered.contains(&address) && ordered.len() < ADDRESSES_MAX {
                ordered.push(address);
            }
        }
    }
}

/// Returns both addresses of this machine for `localhost`, which needs no look-up (RFC 6761 §6.3). Applications listen on
/// either of them.
fn loopback(host: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let is_loopback = host == "localhost" || host.ends_with(".localhost");
    let addresses: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    is_loopback.then(|| addresses.map(|ip| SocketAddr::new(ip, port)).to_vec())
}

fn as_addresses(addresses: &[SocketAddr]) -> Vec<Address> {
    addresses.iter().copied().map(Address::Tcp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().expect("it is an address")).collect()
    }

    fn current(cell: &AddressCell) -> Vec<String> {
        cell.current().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn families_alternate_and_repetitions_vanish() {
        let found = addresses(&["[::1]:80", "[::2]:80", "[::1]:80", "1.1.1.1:80", "2.2.2.2:80", "3.3.3.3:80"]);
        let expected = addresses(&["[::1]:80", "1.1.1.1:80", "[::2]:80", "2.2.2.2:80", "3.3.3.3:80"]);
        assert_eq!(interleaved(found), expected);
        let many = (0..40).map(|last| SocketAddr::from(([10, 0, 0, last], 1))).collect();
        assert_eq!(interleaved(many).len(), ADDRESSES_MAX);
        assert!(interleaved(Vec::new()).is_empty());
    }

    #[test]
    fn localhost_has_both_addresses_without_a_look_up() {
        let resolver = Resolver::default();
        for host in ["localhost", "app.localhost"] {
            assert_eq!(current(&resolver.addresses(host, 3000)), ["127.0.0.1:3000", "[::1]:3000"]);
        }
        assert!(resolver.begin_due(Instant::now()).is_empty());
    }

    #[test]
    fn earlier_addresses_stay_while_the_name_service_fails() {
        let (resolver, start) = (Resolver::default(), Instant::now());
        let cell = resolver.addresses("app.internal", 80);
        let place = ("app.internal".to_owned(), 80);
        assert!(current(&cell).is_empty(), "a name without a look-up has no address");
        let begin = |at: Duration| resolver.begin_due(Instant::now() + at);
        assert_eq!(begin(Duration::ZERO), std::slice::from_ref(&place));
        assert!(begin(Duration::ZERO).is_empty(), "one look-up of a name at a time");
        resolver.end(&place, Err(io::Error::other("no network")), start);
        resolver.end_again(&place, Err(io::Error::other("no network")), start);
        let failed = "cannot resolve app.internal: no network; requests that need it get 503 until it is found";
        assert_eq!(resolver.take_events(), [ResolverEvent::Failed(failed.to_owned())], "it is reported once");
        resolver.end_again(&place, Ok(addresses(&["10.0.0.1:80"])), start);
        assert_eq!(current(&cell), ["10.0.0.1:80"]);
        resolver.end_again(&place, Ok(Vec::new()), start);
        assert_eq!(current(&cell), ["10.0.0.1:80"]);
        let events = resolver.take_events();
        assert_eq!(events[0], ResolverEvent::Resolved("app.internal is 10.0.0.1:80".to_owned()));
        let kept = "cannot resolve app.internal: the name has no address; the earlier addresses stay in use";
        assert_eq!(events[1..], [ResolverEvent::Failed(kept.to_owned())]);
        resolver.end_again(&place, Ok(addresses(&["10.0.0.2:80"])), start);
        assert_eq!(current(&cell), ["10.0.0.2:80"]);
    }

    #[test]
    fn a_failed_name_is_due_earlier_and_an_unused_one_is_forgotten() {
        let (resolver, start) = (Resolver::default(), Instant::now() + Duration::from_secs(1));
        let cells = [resolver.addresses("a.internal", 80), resolver.addresses("b.internal", 80)];
        assert!(Arc::ptr_eq(&cells[0], &resolver.addresses("a.internal", 80)), "servers share a name");
        assert_eq!(resolver.begin_due(start).len(), 2);
        resolver.end(&("a.internal".to_owned(), 80), Ok(addresses(&["10.0.0.1:80"])), start);
        resolver.end(&("b.internal".to_owned(), 80), Err(io::Error::other("unknown")), start);
        resolver.wait_for_first_look_ups(Duration::MAX);
        assert_eq!(resolver.lock().time_to_next(start), RETRY_INTERVAL);
        assert_eq!(resolver.begin_due(start + RETRY_INTERVAL), [("b.internal".to_owned(), 80)]);
        resolver.end(&("b.internal".to_owned(), 80), Ok(addresses(&["10.0.0.2:80"])), start);
        drop(cells);
        assert!(resolver.begin_due(start + REFRESH_INTERVAL).is_empty());
        assert!(resolver.lock().names.is_empty());
    }

    #[test]
    fn look_ups_at_once_are_bounded() {
        let (resolver, start) = (Resolver::default(), Instant::now() + Duration::from_secs(1));
        let cells: Vec<_> = (0..10).map(|port| resolver.addresses("a.internal", port)).collect();
        let first = resolver.begin_due(start);
        assert_eq!(first.len(), LOOK_UPS_AT_ONCE_MAX);
        assert!(resolver.begin_due(start).is_empty());
        resolver.end(&first[0], Ok(addresses(&["10.0.0.1:1"])), start);
        assert_eq!(resolver.begin_due(start).len(), 1);
        drop(cells);
    }

    impl Resolver {
        /// Ends another look-up of a name.
        fn end_again(&self, place: &HostPort, result: io::Result<Vec<SocketAddr>>, now: Instant) {
            self.lock().look_ups += 1;
            self.end(place, result, now);
        }
    }
}
