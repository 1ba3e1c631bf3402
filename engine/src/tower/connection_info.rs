//! What a service that is made for each connection can learn about it.

use crate::peer::TlsInfo;
use crate::service::{Request, local_address};
use std::net::SocketAddr;

/// A connection, for a service that is made for it; see [`WithConnection`].
#[derive(Clone, Debug)]
pub struct ConnectionInfo {
    peer: SocketAddr,
    local: Option<SocketAddr>,
    tls: Option<TlsInfo>,
}

impl ConnectionInfo {
    /// Returns the address of the client; [`UNIX_PEER`](crate::service::UNIX_PEER) for a Unix socket.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the address that the client connected to: that of the accepted connection, or the destination in the header
    /// of the PROXY protocol. `None` for a Unix socket, and for a stream of a [`StreamListener`](crate::StreamListener).
    pub fn local(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Returns what the TLS handshake agreed on; `None` for a plain connection.
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.tls.as_ref()
    }
}

/// A service that is made for each connection from its [`ConnectionInfo`], such as axum's
/// `into_make_service_with_connect_info` with own connect info:
///
/// ```
/// use axum::extract::connect_info::{ConnectInfo, Connected};
/// use axum::{Router, routing::get};
/// use selvedge::tower::{ConnectionInfo, WithConnection};
///
/// #[derive(Clone)]
/// struct Client {
///     address: String,
///     is_secure: bool,
/// }
///
/// impl Connected<ConnectionInfo> for Client {
///     fn connect_info(connection: ConnectionInfo) -> Self {
///         Self { address: connection.peer().to_string(), is_secure: connection.tls().is_some() }
///     }
/// }
///
/// # fn start() -> std::io::Result<()> {
/// let app = Router::new().route("/", get(async |ConnectInfo(client): ConnectInfo<Client>| client.address));
/// let app = WithConnection(app.into_make_service_with_connect_info::<Client>());
/// let running = selvedge::Server::bind("127.0.0.1:3000")?.serve(app)?;
/// # running.handle().stop_now();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct WithConnection<M>(pub M);

/// What a service for a connection is made from.
pub trait ConnectionTarget: Sized + 'static {
    /// Returns it for the connection of a request.
    fn of(request: &Request) -> Self;
}

impl ConnectionTarget for SocketAddr {
    fn of(request: &Request) -> Self {
        request.peer()
    }
}

impl ConnectionTarget for ConnectionInfo {
    fn of(request: &Request) -> Self {
        Self { peer: request.peer(), local: local_address(request), tls: request.tls().cloned() }
    }
}
