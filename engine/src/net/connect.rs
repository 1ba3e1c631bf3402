//! Opens connections of this process without blocking.

use crate::net::epoll::EpollSocket;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Silence after which the kernel probes whether a peer is still there. Its default of 2 hours is too long.
const KEEP_ALIVE_PROBE_AFTER: Duration = Duration::from_secs(60);

/// The result of starting a connection.
pub(crate) enum Started {
    /// It is open, or will be once the socket is writable and has no error.
    Begun(EpollSocket),
    /// The accept queue of the Unix socket is full.
    QueueFull,
}

/// Starts a connection of TCP.
///
/// # Errors
/// As `socket(2)` and `connect(2)`.
pub(crate) fn start_tcp(address: SocketAddr) -> io::Result<Started> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = new_socket(family)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    // Finds a peer that has vanished while a connection of another protocol is silent.
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_PROBE_AFTER)?;
    begun(rustix::net::connect(&socket, &address), socket)
}

/// Starts a connection to a Unix socket.
///
/// # Errors
/// As `socket(2)` and `connect(2)`.
pub(crate) fn start_unix(path: &Path) -> io::Result<Started> {
    let socket = new_socket(AddressFamily::UNIX)?;
    begun(rustix::net::connect(&socket, &SocketAddrUnix::new(path)?), socket)
}

fn new_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn begun(connected: rustix::io::Result<()>, socket: OwnedFd) -> io::Result<Started> {
    match connected {
        // An interrupted attempt continues in the kernel.
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(Started::Begun(EpollSocket::new(socket))),
        Err(Errno::AGAIN) => Ok(Started::QueueFull),
        Err(error) => Err(error.into()),
    }
}
