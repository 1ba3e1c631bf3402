//! Listening sockets. Each worker and address has its own socket (`SO_REUSEPORT`), so that the kernel distributes
//! connections and workers do not share a queue.
//!
//! Sockets that another process opened keep their options except the backlog. If they are fewer than the workers,
//! workers share them.

use crate::limits::{BACKLOG, DEFER_ACCEPT_SECONDS, SEND_BUFFER_BYTES};
use crate::net::sys;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, ipproto, sockopt};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port.
    Inet(SocketAddr),
    /// A Unix socket with the path that it was bound to.
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One or more sockets that listen at one endpoint. Each has its own accept queue, so a worker must accept at
/// each.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    sockets: Vec<OwnedFd>,
}

impl Listener {
    /// Binds `count` sockets to one address. Port 0 selects one free port for all of them.
    ///
    /// # Errors
    /// When the address cannot be bound, for example because another process uses it.
    pub fn bind(address: SocketAddr, count: usize) -> io::Result<Self> {
        Self::bind_family(address, count, Sharing::Exclusive, Ipv4Clients::AsOfSystem)
    }

    /// Binds like [`Self::bind`], also if a listener of this process has the port at an address that overlaps, such as
    /// `0.0.0.0` and `127.0.0.1`. Connections go to the one with the narrower address.
    ///
    /// # Errors
    /// When the address cannot be bound, for example because another process uses it.
    pub fn bind_beside(address: SocketAddr, count: usize) -> io::Result<Self> {
        Self::bind_family(address, count, Sharing::Shared, Ipv4Clients::AsOfSystem)
    }

    /// Binds `count` sockets to an IPv6 address, at which no IPv4 client connects: `[::]` beside a listener at
    /// `0.0.0.0` with its port.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind_ipv6_only(address: SocketAddr, count: usize) -> io::Result<Self> {
        Self::bind_family(address, count, Sharing::Exclusive, Ipv4Clients::Refused)
    }

    /// Binds like [`Self::bind_ipv6_only`], also if a listener of this process has the port at an address that overlaps.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn bind_ipv6_only_beside(address: SocketAddr, count: usize) -> io::Result<Self> {
        Self::bind_family(address, count, Sharing::Shared, Ipv4Clients::Refused)
    }

    fn bind_family(address: SocketAddr, count: usize, sharing: Sharing, ipv4: Ipv4Clients) -> io::Result<Self> {
        // With `SO_REUSEPORT`, another process of the user could bind the port, too. Without a listener that overlaps, the
        // first socket therefore binds without it, which fails if the port is in use, and sets it afterwards.
        let first = bind_and_listen(address, sharing, ipv4)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
        sockopt::set_socket_reuseport(&first, true)?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(bind_and_listen(bound, Sharing::Shared, ipv4)?);
        }
        Ok(Self { endpoint: Endpoint::Inet(bound), sockets })
    }

    /// Binds a Unix socket with a file mode that controls which users may connect. A stale socket file, at which
    /// no process listens, is replaced.
    ///
    /// # Errors
    /// When the socket cannot be created, for example because another process listens there.
    pub fn bind_unix(path: &Path, mode: u32) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_stale_socket(path, &address)? => {
                fs::remove_file(path)?;
                rustix::net::bind(&socket, &address)?;
            }
            bound => bound?,
        }
        // No client can connect before `listen`, so the initial mode is never effective.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { endpoint: Endpoint::Unix(path.to_owned()), sockets: vec![socket] })
    }

    /// Takes listening sockets of one endpoint. If a worker has a TCP socket to itself, the server sets its
    /// backlog from then on: 4,096, and less under overload.
    ///
    /// # Errors
    /// When `sockets` is empty, a socket is not a listening stream socket, or the endpoints differ.
    pub fn from_sockets(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let mut endpoint = None;
        for socket in &sockets {
            let socket_endpoint = endpoint_of(socket)?;
            if *endpoint.get_or_insert_with(|| socket_endpoint.clone()) != socket_endpoint {
                return invalid("cannot use the sockets as one listener: they listen at different endpoints");
            }
            ioctl_fionbio(socket, true)?;
            if matches!(socket_endpoint, Endpoint::Inet(_)) {
                set_tcp_options(socket)?;
            }
        }
        match endpoint {
            Some(endpoint) => Ok(Self { endpoint, sockets }),
            None => invalid("cannot create a listener without sockets"),
        }
    }

    /// Takes an inherited listening socket by its descriptor number.
    ///
    /// # Errors
    /// When the descriptor is not open or is not a listening stream socket.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        Self::from_sockets(vec![sys::duplicate_inherited(number)?])
    }

    /// Returns the endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the sockets, for example to pass them to another process.
    pub fn sockets(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// Duplicates the descriptors. The sockets listen until both listeners are dropped.
    ///
    /// # Errors
    /// When the process has no free descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Self { endpoint: self.endpoint.clone(), sockets })
    }

    /// Distributes the sockets to workers. Each socket has at least one worker, and each worker has at least one
    /// socket.
    pub(crate) fn distribute(self, workers: usize) -> io::Result<Vec<WorkerSockets>> {
        let adapts_backlog = matches!(self.endpoint, Endpoint::Inet(_)) && self.sockets.len() >= workers;
        let mut distributed: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
        for (worker, number) in (self.sockets.len()..workers).zip(0..) {
            distributed[worker].push(self.sockets[number % self.sockets.len()].try_clone()?);
        }
        for (number, socket) in self.sockets.into_iter().enumerate() {
            distributed[number % workers].push(socket);
        }
        Ok(distributed.into_iter().map(|sockets| WorkerSockets { sockets, adapts_backlog }).collect())
    }
}

/// The sockets at which one worker accepts.
pub(crate) struct WorkerSockets {
    pub(crate) sockets: Vec<OwnedFd>,
    /// Whether the worker adapts the length of the accept queue
    /// ([`AdaptiveBacklog`](crate::net::adaptive_backlog::AdaptiveBacklog)). Not for shared sockets: a worker does not see
    /// how many connections the other workers accept. Not for Unix sockets: `connect` fails at once when the queue
    /// is full.
    pub(crate) adapts_backlog: bool,
}

/// Binds a socket and listens.
///
/// If two processes bind the address concurrently, `listen` can fail in both. Each then closes its socket and
/// retries after a random pause, so that one of them succeeds. The other one's `bind` fails.
fn bind_and_listen(address: SocketAddr, sharing: Sharing, ipv4: Ipv4Clients) -> io::Result<OwnedFd> {
    const TRIES_MAX: u32 = 20;
    const PAUSE_MAX_MS: u64 = 16;
    let mut tries = 0;
    loop {
        let socket = bind_one(address, sharing, ipv4)?;
        match rustix::net::listen(&socket, BACKLOG) {
            Ok(()) => return Ok(socket),
            Err(Errno::ADDRINUSE) if tries < TRIES_MAX => tries += 1,
            Err(error) => return Err(error.into()),
        }
        drop(socket);
        thread::sleep(Duration::from_millis(1 + RandomState::new().hash_one(tries) % PAUSE_MAX_MS));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Shared,
    Exclusive,
}

/// Whether IPv4 clients may connect to an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ipv4Clients {
    /// To `[::]`, unless `net.ipv6.bindv6only` forbids it.
    AsOfSystem,
    Refused,
}

/// A congestion control without pacing, which every Linux has.
const UNPACED_CONGESTION_CONTROL: &str = "reno";

fn bind_one(address: SocketAddr, sharing: Sharing, ipv4: Ipv4Clients) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, sharing == Sharing::Shared)?;
    if ipv4 == Ipv4Clients::Refused {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    set_tcp_options(&socket)?;
    if address.ip().is_loopback() {
        // Loopback clients need no congestion control. A pacing algorithm such as BBR only slows them down and
        // costs the worker CPU time.
        let _ = sockopt::set_tcp_congestion(&socket, UNPACED_CONGESTION_CONTROL);
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Sets TCP options, which accepted sockets inherit. This saves system calls per connection.
fn set_tcp_options(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    // Optional: without these options, a connection costs more.
    let _ = sys::set_tcp_option(socket.as_fd(), libc::TCP_NOTSENT_LOWAT, SEND_BUFFER_BYTES);
    let _ = sys::set_tcp_option(socket.as_fd(), libc::TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS);
    Ok(())
}

/// Returns whether `path` is a Unix socket at which no process listens.
fn is_stale_socket(path: &Path, address: &SocketAddrUnix) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}

/// Returns the endpoint of a listening stream socket.
///
/// # Errors
/// When the descriptor is not a listening stream socket, or a Unix socket has no path.
fn endpoint_of(socket: &OwnedFd) -> io::Result<Endpoint> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
    if sockopt::socket_type(socket)? != SocketType::STREAM || !sockopt::socket_acceptconn(socket)? {
        return Err(invalid("the descriptor is not a listening stream socket"));
    }
    let name = rustix::net::getsockname(socket)?;
    if name.address_family() != AddressFamily::UNIX {
        return Ok(Endpoint::Inet(SocketAddr::try_from(name)?));
    }
    let name = SocketAddrUnix::try_from(name)?;
    match name.path_bytes() {
        Some(path) => Ok(Endpoint::Unix(OsStr::from_bytes(path).into())),
        None => Err(invalid("the Unix socket has no path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_listeners_disable_pacing() {
        let congestion = |address: &str| {
            let listener = Listener::bind(address.parse().expect("the address is valid"), 2).expect("a port is free");
            let read = |socket| sockopt::tcp_congestion(socket).expect("Linux has TCP_CONGESTION");
            let all: Vec<_> = listener.sockets.iter().map(read).collect();
            assert_eq!(all[0], all[1]);
            all[0].clone()
        };
        let flags = SocketFlags::CLOEXEC;
        let other = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP));
        let default =
            sockopt::tcp_congestion(other.expect("a socket can be created")).expect("Linux has TCP_CONGESTION");
        assert_eq!(congestion("127.0.0.1:0"), UNPACED_CONGESTION_CONTROL);
        assert_eq!(congestion("127.1.2.3:0"), UNPACED_CONGESTION_CONTROL);
        assert_eq!(congestion("0.0.0.0:0"), default);
    }
}
