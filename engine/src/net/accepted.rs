//! Accepted connections.

use crate::net::listen::Endpoint;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use tokio::sync::OwnedSemaphorePermit;

/// An accepted connection that is not yet served.
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: SocketAddr,
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Serves a connection that was accepted at an endpoint.
pub(crate) type ServeAccepted = dyn Fn(Accepted, &Endpoint);

impl Accepted {
    /// Sends the client `refusal` and closes the connection.
    pub(crate) fn refuse(self, refusal: &[u8]) {
        send_refusal(&self.fd, refusal);
    }
}

/// Sends `refusal` and shuts down the sending side. Errors are ignored: the client may have closed the connection.
pub(super) fn send_refusal(fd: &OwnedFd, refusal: &[u8]) {
    let _ = rustix::net::send(fd, refusal, rustix::net::SendFlags::NOSIGNAL);
    let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
}
