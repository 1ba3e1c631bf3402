//! Where to listen, as it is wanted: what a configuration says, before it is bound. It passes
//! between the supervisor and the serving process, which may be of different versions.

use crate::config::model;
use crate::config::value::{Address, Descriptor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A place to listen at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// An IP address and a port.
    Inet(SocketAddr),
    /// A host name and a port; each of its addresses.
    Name { host: String, port: u16 },
    /// A Unix socket, and the mode of its file.
    Unix { path: PathBuf, mode: u32 },
    /// A socket that the program was started with, by its number.
    Descriptor(u16),
    /// Sockets that systemd has opened, by their name.
    Named(String),
}

impl Place {
    /// Whether two cannot be listened at at once: a Unix socket may change its mode.
    pub(super) fn is_where(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix { path, .. }, Self::Unix { path: other, .. }) => path == other,
            _ => self == other,
        }
    }
}

impl From<&model::Listener> for Place {
    fn from(listener: &model::Listener) -> Self {
        match &listener.address {
            Address::Inet(address) => Self::Inet(*address),
            Address::Name { host, port } => Self::Name { host: host.clone(), port: *port },
            Address::Unix(path) => Self::Unix { path: path.clone(), mode: listener.mode },
            Address::Inherited(Descriptor::Number(number)) => Self::Descriptor(*number),
            Address::Inherited(Descriptor::Name(name)) => Self::Named(name.clone()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Descriptor(number) => write!(f, "fd:{number}"),
            Self::Named(name) => write!(f, "fd:{name}"),
        }
    }
}
