//! Listeners whose connections begin with a header of the PROXY protocol, in which a proxy names its client.

use crate::net::listen::Endpoint;
use crate::net::prefix::receive_prefix;
use selvedge_proto::proxy_protocol::{HEADER_BYTES_MAX, ProxiedPeer, parse};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// At which listeners connections begin with a header of the PROXY protocol (version 1 or 2). The client that it names is
/// the peer of the connection. A connection from another address than that of a trusted proxy, and one without a valid
/// header within [`crate::Limits::header_timeout`], is closed without a response.
#[derive(Clone, Default)]
pub struct ProxyHeaders(Option<Arc<TrustedListeners>>);

struct TrustedListeners {
    endpoints: Vec<Endpoint>,
    trusts: Box<dyn Fn(SocketAddr) -> bool + Send + Sync>,
}

impl ProxyHeaders {
    /// No listener. Default.
    pub fn never() -> Self {
        Self::default()
    }

    /// These listeners. `trusts` decides about the address of a proxy: that of its connection, or
    /// [`crate::service::UNIX_PEER`].
    pub fn at(endpoints: Vec<Endpoint>, trusts: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(TrustedListeners { endpoints, trusts: Box::new(trusts) })))
    }

    /// Returns what a connection begins with.
    pub(crate) fn origin(&self, endpoint: &Endpoint, peer: SocketAddr) -> Origin {
        match &self.0 {
            Some(listeners) if listeners.endpoints.contains(endpoint) => match (listeners.trusts)(peer) {
                true => Origin::Proxy,
                false => Origin::Stranger,
            },
            _ => Origin::Client,
        }
    }
}

impl fmt::Debug for ProxyHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoints = self.0.as_ref().map(|listeners| &listeners.endpoints);
        f.debug_tuple("ProxyHeaders").field(&endpoints).finish()
    }
}

/// What opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client; no header is expected.
    Client,
    /// A trusted proxy, which sends a header first.
    Proxy,
    /// Something else at a listener for trusted proxies.
    Stranger,
}

/// What a header states of a connection: its client, and the address that the client connected to. `None` if it names no client,
/// as that of a health check.
pub(crate) type NamedEnds = Option<(SocketAddr, SocketAddr)>;

/// Receives the header of a connection.
///
/// # Errors
/// If the connection begins with no valid header, or the header is not complete in time.
pub(crate) async fn receive(fd: OwnedFd, time: Duration) -> io::Result<(OwnedFd, NamedEnds)> {
    let parse = |bytes: &[u8]| match parse(bytes) {
        Ok(header) => Ok(header.map(|header| (header.len, header.peer))),
        Err(malformed) => Err(io::Error::new(ErrorKind::InvalidData, malformed)),
    };
    let (fd, peer) = receive_prefix(fd, (HEADER_BYTES_MAX, time), parse).await?;
    Ok(match peer {
        ProxiedPeer::Client { source, destination } => (fd, Some((source, destination))),
        ProxiedPeer::Unknown => (fd, None),
    })
}
