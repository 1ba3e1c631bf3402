//! The remote end of a connection, as applications and sockets know it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Placeholder for the peer address of a Unix socket connection: 127.0.0.1 with port 0, which no
/// TCP connection has.
pub const UNIX_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Resolves when the server stops. Can be awaited on any thread.
pub type StoppingFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

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
