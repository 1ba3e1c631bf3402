//! Where a request goes: an address, how its connection is secured, and the protocol.

use crate::net::client_session::ClientTls;
use bytes::Bytes;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// The address of an upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Address {
    /// An address and port of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The HTTP version of the connections to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1. Each connection has one request at a time.
    #[default]
    Http1,
    /// HTTP/2: by ALPN with TLS, else by prior knowledge (RFC 9113 §3.3). A connection has many requests at once.
    Http2,
}

/// Where a request goes. Connections are pooled for each value of this type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The address.
    pub address: Address,
    /// The session that secures the connections; `None` for plain ones.
    pub tls: Option<Arc<ClientTls>>,
    /// The HTTP version.
    pub protocol: Protocol,
    /// Bytes that are sent first on each connection, before TLS, such as a header of the PROXY protocol. A connection
    /// with such bytes is closed after its request, because they describe one client.
    pub first_bytes: Option<Bytes>,
}

impl Destination {
    /// Creates a destination for plain HTTP/1.1.
    pub const fn plain(address: Address) -> Self {
        Self { address, tls: None, protocol: Protocol::Http1, first_bytes: None }
    }
}
