//! The ends of a connection, as applications and sockets know them.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Placeholder for the peer address of a Unix socket connection: 127.0.0.1 with port 0, which no
/// TCP connection has.
pub const UNIX_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The two ends of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    /// The remote end; [`UNIX_PEER`] for a Unix socket.
    pub(crate) peer: SocketAddr,
    /// The address that the client connected to; `None` for a Unix socket. Connections share it, so that an idle one
    /// has no more than a pointer.
    pub(crate) local: Option<Rc<SocketAddr>>,
}

/// Resolves when the server stops. Can be awaited on any thread.
pub type StoppingFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What the TLS handshake of a connection agreed on. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsInfo(Arc<TlsFacts>);

/// The facts of a [`TlsInfo`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFacts {
    pub(crate) version: &'static str,
    pub(crate) cipher_suite: &'static str,
    pub(crate) key_exchange: &'static str,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) protocol: Option<Box<[u8]>>,
    pub(crate) peer_certificates: Vec<Vec<u8>>,
    pub(crate) peer_subject: Option<Box<str>>,
    pub(crate) is_resumed: bool,
    pub(crate) host_tag: u32,
}

impl TlsInfo {
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only a TLS session makes one"))]
    pub(crate) fn new(facts: TlsFacts) -> Self {
        Self(Arc::new(facts))
    }

    /// Creates what a handshake with this server name would agree on, for a request that does not arrive over a
    /// connection. A client with a certificate has its subject.
    pub fn assumed(server_name: Option<&str>, host_tag: u32, peer_subject: Option<&str>) -> Self {
        let facts = TlsFacts {
            version: "TLSv1.3",
            server_name: server_name.map(|name| name.to_ascii_lowercase().into()),
            host_tag,
            peer_subject: peer_subject.map(Into::into),
            ..TlsFacts::default()
        };
        Self(Arc::new(facts))
    }

    /// Returns the version: `TLSv1.2` or `TLSv1.3`.
    pub fn version(&self) -> &'static str {
        self.0.version
    }

    /// Returns the registered name of the cipher suite, such as `TLS13_AES_128_GCM_SHA256`.
    pub fn cipher_suite(&self) -> &'static str {
        self.0.cipher_suite
    }

    /// Returns the registered name of the key exchange, such as `X25519MLKEM768`. Empty for a session of TLS 1.2 that
    /// was resumed.
    pub fn key_exchange(&self) -> &'static str {
        self.0.key_exchange
    }

    /// Returns the server name (SNI) in lower case, if the client sent one.
    pub fn server_name(&self) -> Option<&str> {
        self.0.server_name.as_deref()
    }

    /// Returns the application protocol (ALPN), such as `http/1.1`, if the client offered one.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.0.protocol.as_deref()
    }

    /// Returns the client's verified certificate chain in DER, its own first. Empty without one.
    pub fn peer_certificates(&self) -> &[Vec<u8>] {
        &self.0.peer_certificates
    }

    /// Returns the subject of the client's certificate, such as `CN=alice, O=Example`. `None` without a certificate.
    pub fn peer_subject(&self) -> Option<&str> {
        self.0.peer_subject.as_deref()
    }

    /// Returns whether the session was resumed with a ticket.
    pub fn is_resumed(&self) -> bool {
        self.0.is_resumed
    }

    /// Returns the number of the host that the handshake chose, 0 unless it was set.
    pub fn host_tag(&self) -> u32 {
        self.0.host_tag
    }
}

impl fmt::Debug for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Both directions of a connection that was upgraded to another protocol. It can move to any
/// thread. Dropping it closes the connection.
pub trait Duplex: Send {
    /// Reads available bytes into `into`; returns 0 at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes the slices in order, or as much of them as the socket accepts now.
    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Shuts down the sending direction.
    ///
    /// # Errors
    /// If the connection is closed.
    fn shutdown_write(&mut self) -> io::Result<()>;

    /// Resolves when the server stops or the application is replaced. The engine closes the
    /// connection soon afterwards.
    fn stopping(&self) -> StoppingFuture;
}
