//! Listen addresses as configured, before they are bound. Supervisor and serving process exchange them, possibly
//! between different versions.

use crate::config::model;
use crate::config::value::{Address, Descriptor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ListenAddress {
    /// An IP address and a port.
    Inet(SocketAddr),
    /// An IPv6 address and a port, for IPv6 clients only.
    Ipv6Only(SocketAddr),
    /// A host name and a port; each of its addresses is bound.
    Name { host: String, port: u16 },
    /// A Unix socket and the mode of its file.
    Unix { path: PathBuf, mode: u32 },
    /// A socket that the program was started with, by number.
    Descriptor(u16),
    /// Sockets that systemd opened, by name.
    Named(String),
}

impl ListenAddress {
    /// Whether both addresses name one socket. The mode of a Unix socket may differ.
    pub(super) fn is_same_socket(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix { path, .. }, Self::Unix { path: other, .. }) => path == other,
            _ => self == other,
        }
    }
}

impl From<&model::Listener> for ListenAddress {
    fn from(listener: &model::Listener) -> Self {
        match &listener.address {
            Address::Inet(address) if listener.is_ipv6_only => Self::Ipv6Only(*address),
            Address::Inet(address) => Self::Inet(*address),
            Address::Name { host, port } => Self::Name { host: host.clone(), port: *port },
            Address::Unix(path) => Self::Unix { path: path.clone(), mode: listener.mode },
            Address::Inherited(Descriptor::Number(number)) => Self::Descriptor(*number),
            Address::Inherited(Descriptor::Name(name)) => Self::Named(name.clone()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) | Self::Ipv6Only(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Descriptor(number) => write!(f, "fd:{number}"),
            Self::Named(name) => write!(f, "fd:{name}"),
        }
    }
}
