//! The listening sockets of a process, by configured address.

use super::listen_address::ListenAddress;
use super::notify::Inherited;
use rustix::io::Errno;
use selvedge::{Endpoint, Listener};
use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;

/// Bound listeners.
#[derive(Debug)]
pub(super) struct Sockets {
    /// Workers, which share each port.
    workers: usize,
    inherited: Inherited,
    bound: Vec<BoundListeners>,
}

/// The sockets of one address: several listeners if a name has several addresses.
#[derive(Debug)]
pub(super) struct BoundListeners {
    pub(super) address: ListenAddress,
    pub(super) listeners: Vec<Listener>,
}

/// How an IP address is bound: alone at its port, or beside a listener of this process whose address overlaps.
struct Bind {
    alone: fn(SocketAddr, usize) -> io::Result<Listener>,
    beside: fn(SocketAddr, usize) -> io::Result<Listener>,
}

const ANY_CLIENT: Bind = Bind { alone: Listener::bind, beside: Listener::bind_beside };
const IPV6_ONLY: Bind = Bind { alone: Listener::bind_ipv6_only, beside: Listener::bind_ipv6_only_beside };

impl Sockets {
    pub(super) fn new(workers: usize, inherited: Inherited) -> Self {
        Self { workers, inherited, bound: Vec::new() }
    }

    pub(super) fn bound(&self) -> &[BoundListeners] {
        &self.bound
    }

    /// Returns the address as it is bound, if it is.
    pub(super) fn known(&self, place: &ListenAddress) -> Option<&ListenAddress> {
        self.bound.iter().map(|held| &held.address).find(|held| held.is_same_socket(place))
    }

    /// Binds an address, or returns its existing listeners.
    pub(super) fn bind(&mut self, place: &ListenAddress) -> Result<&[Listener], String> {
        let existing = self.bound.iter().position(|held| held.address.is_same_socket(place));
        let at = match existing {
            Some(at) => {
                self.bound[at].change_mode(place).map_err(|error| format!("cannot change {place}: {error}"))?;
                at
            }
            None => {
                let listeners = self.open(place).map_err(|error| format!("cannot listen on {place}: {error}"))?;
                self.bound.push(BoundListeners { address: place.clone(), listeners });
                self.bound.len() - 1
            }
        };
        Ok(&self.bound[at].listeners)
    }

    fn open(&self, place: &ListenAddress) -> io::Result<Vec<Listener>> {
        match place {
            // `[::]` that is open for IPv6 clients only cannot be opened for others.
            ListenAddress::Inet(address) if self.known(&ListenAddress::Ipv6Only(*address)).is_some() => {
                let ipv4 = (Ipv4Addr::UNSPECIFIED, address.port()).into();
                Ok(vec![self.open_inet(*address, &IPV6_ONLY)?, self.open_inet(ipv4, &ANY_CLIENT)?])
            }
            ListenAddress::Inet(address) => Ok(vec![self.open_or_ipv4(*address, &ANY_CLIENT)?]),
            ListenAddress::Ipv6Only(address) => Ok(vec![self.open_inet(*address, &IPV6_ONLY)?]),
            ListenAddress::Name { host, port } => {
                // A name may resolve to one address twice.
                let mut seen = HashSet::new();
                let addresses = (host.as_str(), *port).to_socket_addrs()?.filter(|address| seen.insert(*address));
                let listeners: Vec<_> =
                    addresses.map(|address| self.open_inet(address, &ANY_CLIENT)).collect::<io::Result<_>>()?;
                if listeners.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(listeners) }
            }
            ListenAddress::Unix { path, mode } => Ok(vec![Listener::bind_unix(path, *mode)?]),
            ListenAddress::Descriptor(number) => Ok(vec![Listener::inherited(i32::from(*number))?]),
            ListenAddress::Named(name) => {
                let numbers = self.inherited.named(name);
                if numbers.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "no socket of that name was passed"));
                }
                numbers.into_iter().map(Listener::inherited).collect()
            }
        }
    }

    /// Binds an IP address; on a machine without IPv6, all addresses of IPv4 for `[::]`, whose clients use IPv4 there.
    fn open_or_ipv4(&self, address: SocketAddr, bind: &Bind) -> io::Result<Listener> {
        match self.open_inet(address, bind) {
            Err(error)
                if address.ip() == Ipv6Addr::UNSPECIFIED
                    && error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) =>
            {
                self.open_inet((Ipv4Addr::UNSPECIFIED, address.port()).into(), bind)
            }
            opened => opened,
        }
    }

    /// Binds an IP address. A listener of that address under another name is shared. One of an address that overlaps is
    /// about to be released, because a configuration has no such pair.
    fn open_inet(&self, address: SocketAddr, bind: &Bind) -> io::Result<Listener> {
        if let Some((_, listener)) = self.held_inet().find(|(held, _)| *held == address) {
            return listener.try_clone();
        }
        match self.held_inet().any(|(held, _)| overlap(held, address)) {
            true => (bind.beside)(address, self.workers),
            false => (bind.alone)(address, self.workers),
        }
    }

    /// Returns the listeners with IP addresses, with their addresses.
    fn held_inet(&self) -> impl Iterator<Item = (SocketAddr, &Listener)> {
        self.bound.iter().flat_map(|held| &held.listeners).filter_map(|listener| match listener.endpoint() {
            Endpoint::Inet(address) => Some((*address, listener)),
            Endpoint::Unix(_) => None,
        })
    }

    /// Adds a listener that another process has opened.
    pub(super) fn add(&mut self, place: ListenAddress, listener: Listener) {
        match self.bound.iter_mut().find(|held| held.address == place) {
            Some(held) => held.listeners.push(listener),
            None => self.bound.push(BoundListeners { address: place, listeners: vec![listener] }),
        }
    }

    /// Forgets an address that another process has rebound.
    pub(super) fn remove(&mut self, place: &ListenAddress) {
        self.bound.retain(|held| !held.address.is_same_socket(place));
    }

    /// Releases this address and returns its endpoints. A Unix socket whose mode has changed stays.
    pub(super) fn release(&mut self, place: &ListenAddress) -> Vec<Endpoint> {
        let removed = self.bound.extract_if(.., |held| held.address == *place);
        removed.flat_map(|held| held.listeners).map(|listener| listener.endpoint().clone()).collect()
    }

    /// Releases this address, and removes the file of a Unix socket that this process created.
    pub(super) fn close(&mut self, place: &ListenAddress) -> Vec<Endpoint> {
        let endpoints = self.release(place);
        if !endpoints.is_empty() {
            remove_file(place);
        }
        endpoints
    }

    /// Releases all sockets but leaves their files, because another process has the sockets as well.
    pub(super) fn release_all(&mut self) {
        self.bound.clear();
    }

    /// Releases all sockets and removes their files.
    pub(super) fn close_all(&mut self) {
        for held in std::mem::take(&mut self.bound) {
            remove_file(&held.address);
        }
    }
}

/// Whether a client could connect to both addresses at once.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}

fn remove_file(place: &ListenAddress) {
    if let ListenAddress::Unix { path, .. } = place {
        // Another process may have removed it.
        let _ = fs::remove_file(path);
    }
}

impl BoundListeners {
    fn change_mode(&mut self, place: &ListenAddress) -> io::Result<()> {
        if let ListenAddress::Unix { path, mode } = place
            && self.address != *place
        {
            fs::set_permissions(path, Permissions::from_mode(*mode))?;
            self.address = place.clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_address_is_bound_beside_one_that_overlaps() {
        let place = |text: &str, port| ListenAddress::Inet(format!("{text}:{port}").parse().unwrap());
        let ipv6_only = |port| ListenAddress::Ipv6Only(format!("[::]:{port}").parse().unwrap());
        let connects = |address: &str, port| TcpStream::connect(format!("{address}:{port}")).is_ok();
        let mut sockets = Sockets::new(2, Inherited::default());
        let Endpoint::Inet(first) = *sockets.bind(&place("[::]", 0)).unwrap()[0].endpoint() else { panic!() };
        let port = first.port();
        sockets.bound[0].address = place("[::]", port);
        let mut before = place("[::]", port);
        for (next, serves_ipv4) in [
            (place("0.0.0.0", port), true),
            (place("127.0.0.1", port), true),
            (place("[::]", port), true),
            (place("0.0.0.0", port), true),
            (ipv6_only(port), false),
            (place("[::]", port), true),
        ] {
            sockets.bind(&next).unwrap();
            sockets.release(&before);
            assert_eq!(connects("127.0.0.1", port), serves_ipv4, "{next}");
            let taken = Sockets::new(1, Inherited::default()).bind(&next).unwrap_err();
            assert!(taken.contains("in use"), "{taken}");
            before = next;
        }
    }

    #[test]
    fn an_address_is_bound_once_and_released() {
        let mut sockets = Sockets::new(2, Inherited::default());
        let place = ListenAddress::Inet("127.0.0.1:0".parse().unwrap());
        let endpoint = sockets.bind(&place).unwrap()[0].endpoint().clone();
        assert_eq!(sockets.bind(&place).unwrap()[0].endpoint(), &endpoint, "bound twice, it is one listener");
        assert_eq!(sockets.bound()[0].listeners[0].sockets().len(), 2);
        let Endpoint::Inet(address) = endpoint else { panic!("{endpoint}") };
        TcpStream::connect(address).unwrap();
        let taken = Sockets::new(1, Inherited::default()).bind(&ListenAddress::Inet(address)).unwrap_err();
        assert_eq!(taken, format!("cannot listen on {address}: Address already in use (os error 98)"));
        assert_eq!(sockets.release(&place), [Endpoint::Inet(address)]);
        TcpStream::connect(address).unwrap_err();
    }

    #[test]
    fn all_addresses_are_those_of_ipv4_on_a_machine_without_ipv6() {
        let bind = |address: SocketAddr, workers| match address.is_ipv6() {
            true => Err(Errno::AFNOSUPPORT.into()),
            false => Listener::bind(address, workers),
        };
        let without_ipv6 = Bind { alone: bind, beside: bind };
        let sockets = Sockets::new(1, Inherited::default());
        let listener = sockets.open_or_ipv4("[::]:0".parse().unwrap(), &without_ipv6).unwrap();
        let Endpoint::Inet(bound) = listener.endpoint() else { panic!("{listener:?}") };
        assert_eq!(bound.ip(), Ipv4Addr::UNSPECIFIED);
        sockets.open_or_ipv4("[::1]:0".parse().unwrap(), &without_ipv6).expect_err("one address has no other");
    }

    #[test]
    fn a_unix_socket_has_its_mode_and_replaces_a_stale_file() {
        let path = std::env::temp_dir().join(format!("selvedge-sockets-{}", std::process::id()));
        let place = |mode| ListenAddress::Unix { path: path.clone(), mode };
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let mut first = Sockets::new(1, Inherited::default());
        first.bind(&place(0o600)).unwrap();
        assert_eq!(mode(), 0o600);
        first.bind(&place(0o666)).unwrap();
        assert_eq!((mode(), first.bound().len()), (0o666, 1));
        UnixStream::connect(&path).unwrap();
        let mut second = Sockets::new(1, Inherited::default());
        second.bind(&place(0o600)).expect_err("an address in use");
        // If a process is killed, the file stays.
        drop(first);
        assert!(path.exists());
        second.bind(&place(0o600)).unwrap();
        UnixStream::connect(&path).unwrap();
        second.close_all();
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        second.bind(&place(0o600)).expect_err("a file is not replaced");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }
}
