//! Where the server listens: what the settings name, bound all together or not at all.
//!
//! From one configuration to the next a place that stays is not touched, so that nobody who
//! is connecting there is turned away.

use crate::config::model::Listener as Wanted;
use crate::config::value::{Address, Descriptor};
use selvedge::{Endpoint, Handle, Listener};
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// First descriptor that a service manager hands over (`sd_listen_fds(3)`).
const INHERITED_FIRST: i32 = 3;

/// What is listened at, by the settings that name it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    open: Vec<(Wanted, Vec<Endpoint>)>,
}

/// Why a place cannot be listened at.
#[derive(Debug)]
pub(crate) struct CannotListen {
    pub(crate) address: Address,
    pub(crate) why: String,
}

/// The way from one list of places to the next, with all that is new bound.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) next: Places,
    new: Vec<Listener>,
    left: Vec<Endpoint>,
    modes: Vec<(PathBuf, u32)>,
}

impl Places {
    /// Binds what of these is not listened at yet.
    ///
    /// # Errors
    /// Each that cannot be listened at; what was bound for the others is let go.
    pub(crate) fn towards(&self, wanted: &[Wanted], workers: usize) -> Result<Move, Vec<CannotListen>> {
        let (mut before, mut problems) = (self.open.clone(), Vec::new());
        let mut change = Move { next: Self::default(), new: Vec::new(), left: Vec::new(), modes: Vec::new() };
        for listener in wanted {
            let known = before.iter().position(|(known, _)| known == listener);
            let endpoints = match known {
                Some(place) => Ok(before.swap_remove(place).1),
                None => self.bind(listener, workers, &mut change),
            };
            match endpoints {
                Ok(endpoints) => change.next.open.push((listener.clone(), endpoints)),
                Err(error) => {
                    problems.push(CannotListen { address: listener.address.clone(), why: error.to_string() });
                }
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let next: Vec<_> = change.next.endpoints().cloned().collect();
        change.left = self.endpoints().filter(|endpoint| !next.contains(endpoint)).cloned().collect();
        Ok(change)
    }

    /// All of them, in the order of the settings.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.open.iter().flat_map(|(_, endpoints)| endpoints)
    }

    fn is_open(&self, endpoint: &Endpoint) -> bool {
        self.endpoints().any(|open| open == endpoint)
    }

    /// Binds one listener of the settings, as far as its endpoints are not open under another
    /// name.
    fn bind(&self, wanted: &Wanted, workers: usize, change: &mut Move) -> io::Result<Vec<Endpoint>> {
        let mut bound = |listener: Listener| {
            let endpoint = listener.endpoint().clone();
            change.new.push(listener);
            endpoint
        };
        let mut inet = |address: SocketAddr| match Endpoint::Inet(address) {
            open if self.is_open(&open) => Ok(open),
            _ => Listener::bind(address, workers).map(&mut bound),
        };
        match &wanted.address {
            Address::Inet(address) => Ok(vec![inet(*address)?]),
            Address::Name { host, port } => {
                let addresses = (host.as_str(), *port).to_socket_addrs()?;
                let endpoints: Vec<_> = addresses.map(inet).collect::<io::Result<_>>()?;
                match endpoints.is_empty() {
                    true => Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address")),
                    false => Ok(endpoints),
                }
            }
            Address::Unix(path) => match Endpoint::Unix(path.clone()) {
                open if self.is_open(&open) => {
                    change.modes.push((path.clone(), wanted.mode));
                    Ok(vec![open])
                }
                _ => Ok(vec![bound(Listener::bind_unix(path, wanted.mode)?)]),
            },
            Address::Inherited(Descriptor::Number(number)) => Ok(vec![bound(Listener::inherited(i32::from(*number))?)]),
            Address::Inherited(Descriptor::Name(name)) => Ok(vec![bound(Listener::inherited(number_of(name)?)?)]),
        }
    }
}

impl Move {
    /// The new listeners, for a server that begins with them.
    pub(crate) fn begin(self) -> (Places, Vec<Listener>) {
        (self.next, self.new)
    }

    /// Has a running server listen there, and no longer at what is left.
    ///
    /// # Errors
    /// When descriptors run out; what is listened at by then stays.
    pub(crate) fn make(self, server: &Handle) -> io::Result<Places> {
        self.new.into_iter().try_for_each(|listener| server.listen(listener))?;
        for (path, mode) in self.modes {
            fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        for endpoint in &self.left {
            server.leave(endpoint);
            if let Endpoint::Unix(path) = endpoint {
                // Somebody else may have taken it away.
                let _ = fs::remove_file(path);
            }
        }
        Ok(self.next)
    }
}

/// The number of a descriptor that a service manager has given a name.
fn number_of(name: &str) -> io::Result<i32> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let place = names.split(':').position(|known| known == name);
    let number = place.and_then(|place| i32::try_from(place).ok()).map(|place| place + INHERITED_FIRST);
    number.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no descriptor of this name was handed over"))
}
