//! The listening sockets that a process holds, by the place that was asked for.

use super::notify::Inherited;
use super::place::Place;
use selvedge::{Endpoint, Listener};
use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;

/// Sockets that listen.
#[derive(Debug)]
pub(super) struct Sockets {
    /// How many share a port.
    workers: usize,
    inherited: Inherited,
    held: Vec<Held>,
}

/// The sockets of one place: more than one listener where a name has more than one address.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) place: Place,
    pub(super) listeners: Vec<Listener>,
}

impl Sockets {
    pub(super) fn new(workers: usize, inherited: Inherited) -> Self {
        Self { workers, inherited, held: Vec::new() }
    }

    pub(super) fn held(&self) -> &[Held] {
        &self.held
    }

    /// How a place is listened at, if it is.
    pub(super) fn known(&self, place: &Place) -> Option<&Place> {
        self.held.iter().map(|held| &held.place).find(|held| held.is_where(place))
    }

    /// Listens at a place, or says why not. Who listens there already goes on.
    pub(super) fn bind(&mut self, place: &Place) -> Result<&[Listener], String> {
        let known = self.held.iter().position(|held| held.place.is_where(place));
        let at = match known {
            Some(at) => {
                self.held[at].change_mode(place).map_err(|error| format!("cannot change {place}: {error}"))?;
                at
            }
            None => {
                let listeners = self.open(place).map_err(|error| format!("cannot listen on {place}: {error}"))?;
                self.held.push(Held { place: place.clone(), listeners });
                self.held.len() - 1
            }
        };
        Ok(&self.held[at].listeners)
    }

    fn open(&self, place: &Place) -> io::Result<Vec<Listener>> {
        match place {
            Place::Inet(address) => Ok(vec![self.open_inet(*address)?]),
            Place::Name { host, port } => {
                // A name may have one address twice.
                let mut seen = HashSet::new();
                let addresses = (host.as_str(), *port).to_socket_addrs()?.filter(|address| seen.insert(*address));
                let listeners: Vec<_> = addresses.map(|address| self.open_inet(address)).collect::<io::Result<_>>()?;
                if listeners.is_empty() { Err(io::Error::other("the name has no address")) } else { Ok(listeners) }
            }
            Place::Unix { path, mode } => Ok(vec![Listener::bind_unix(path, *mode)?]),
            Place::Descriptor(number) => Ok(vec![Listener::inherited(i32::from(*number))?]),
            Place::Named(name) => {
                let numbers = self.inherited.named(name);
                if numbers.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "nobody has passed on a socket of that name"));
                }
                numbers.into_iter().map(Listener::inherited).collect()
            }
        }
    }

    /// One that is held under another name is the same.
    fn open_inet(&self, address: SocketAddr) -> io::Result<Listener> {
        let endpoint = Endpoint::Inet(address);
        let mut held = self.held.iter().flat_map(|held| &held.listeners);
        match held.find(|listener| *listener.endpoint() == endpoint) {
            Some(listener) => listener.try_clone(),
            None => Listener::bind(address, self.workers),
        }
    }

    /// Takes a listener that another process has opened.
    pub(super) fn adopt(&mut self, place: Place, listener: Listener) {
        match self.held.iter_mut().find(|held| held.place == place) {
            Some(held) => held.listeners.push(listener),
            None => self.held.push(Held { place, listeners: vec![listener] }),
        }
    }

    /// Lets a place go, as another process has it otherwise.
    pub(super) fn forget(&mut self, place: &Place) {
        self.held.retain(|held| !held.place.is_where(place));
    }

    /// Lets just this place go; where it was. A Unix socket that has another mode by now stays.
    pub(super) fn release(&mut self, place: &Place) -> Vec<Endpoint> {
        let gone = self.held.extract_if(.., |held| held.place == *place);
        gone.flat_map(|held| held.listeners).map(|listener| listener.endpoint().clone()).collect()
    }

    /// The same, and removes the file of a Unix socket that this process has made.
    pub(super) fn close(&mut self, place: &Place) -> Vec<Endpoint> {
        let endpoints = self.release(place);
        if !endpoints.is_empty() {
            remove_file(place);
        }
        endpoints
    }

    /// Lets all go; somebody else has them, too.
    pub(super) fn let_go(&mut self) {
        self.held.clear();
    }

    /// Lets all go, and removes their files.
    pub(super) fn end(&mut self) {
        for held in std::mem::take(&mut self.held) {
            remove_file(&held.place);
        }
    }
}

fn remove_file(place: &Place) {
    if let Place::Unix { path, .. } = place {
        // Somebody may have been faster.
        let _ = fs::remove_file(path);
    }
}

impl Held {
    fn change_mode(&mut self, place: &Place) -> io::Result<()> {
        if let Place::Unix { path, mode } = place
            && self.place != *place
        {
            fs::set_permissions(path, Permissions::from_mode(*mode))?;
            self.place = place.clone();
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
    fn a_place_is_held_once_and_let_go() {
        let mut sockets = Sockets::new(2, Inherited::default());
        let place = Place::Inet("127.0.0.1:0".parse().unwrap());
        let endpoint = sockets.bind(&place).unwrap()[0].endpoint().clone();
        assert_eq!(sockets.bind(&place).unwrap()[0].endpoint(), &endpoint, "asked for twice, it is the same");
        assert_eq!(sockets.held()[0].listeners[0].sockets().len(), 2);
        let Endpoint::Inet(address) = endpoint else { panic!("{endpoint}") };
        TcpStream::connect(address).unwrap();
        let taken = Sockets::new(1, Inherited::default()).bind(&Place::Inet(address)).unwrap_err();
        assert_eq!(taken, format!("cannot listen on {address}: Address already in use (os error 98)"));
        assert_eq!(sockets.release(&place), [Endpoint::Inet(address)]);
        TcpStream::connect(address).unwrap_err();
    }

    #[test]
    fn a_unix_socket_takes_its_mode_and_the_place_of_one_left_behind() {
        let path = std::env::temp_dir().join(format!("selvedge-sockets-{}", std::process::id()));
        let place = |mode| Place::Unix { path: path.clone(), mode };
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let mut first = Sockets::new(1, Inherited::default());
        first.bind(&place(0o600)).unwrap();
        assert_eq!(mode(), 0o600);
        first.bind(&place(0o666)).unwrap();
        assert_eq!((mode(), first.held().len()), (0o666, 1));
        UnixStream::connect(&path).unwrap();
        let mut second = Sockets::new(1, Inherited::default());
        second.bind(&place(0o600)).expect_err("somebody listens there");
        // Without an end, as when a process is killed, the file stays.
        drop(first);
        assert!(path.exists());
        second.bind(&place(0o600)).unwrap();
        UnixStream::connect(&path).unwrap();
        second.end();
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        second.bind(&place(0o600)).expect_err("a file is not replaced");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }
}
