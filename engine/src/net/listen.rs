//! Listening sockets: one for each worker and address, so that the kernel spreads
//! connections and no worker touches another's queue. Those that somebody else has opened
//! are taken as they are, but for the length of the queue, and shared where there are fewer than workers.

use crate::limits::{BACKLOG, DEFER_ACCEPT_SECONDS, UNSENT_BYTES_MAX};
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

/// Where a listener listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// An IP address and a port.
    Inet(SocketAddr),
    /// A Unix socket; its path as it was bound.
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

/// Sockets that listen at one endpoint: at least one. What is accepted at one is not seen at
/// another, so each has to be listened to by somebody.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
    sockets: Vec<OwnedFd>,
}

impl Listener {
    /// Binds `count` sockets to one address. Port 0 becomes one free port for all of them.
    ///
    /// # Errors
    /// When the address cannot be bound, also because another process has it.
    pub fn bind(address: SocketAddr, count: usize) -> io::Result<Self> {
        // Sockets that share a port would share it with another process of the same user, too.
        // So the first one listens without sharing, which fails beside any other, and is opened
        // to sharing only then.
        let first = listen_at(address, Sharing::Refused)?;
        let bound = SocketAddr::try_from(rustix::net::getsockname(&first)?)?;
        sockopt::set_socket_reuseport(&first, true)?;
        let mut sockets = vec![first];
        for _ in 1..count {
            sockets.push(listen_at(bound, Sharing::Wanted)?);
        }
        Ok(Self { endpoint: Endpoint::Inet(bound), sockets })
    }

    /// Makes a Unix socket that those may connect to whom the file mode lets write. One that
    /// was left behind, at which nobody listens, is replaced.
    ///
    /// # Errors
    /// When it cannot be made, also because somebody listens there.
    pub fn bind_unix(path: &Path, mode: u32) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match rustix::net::bind(&socket, &address) {
            Err(Errno::ADDRINUSE) if is_left_behind(path, &address)? => {
                fs::remove_file(path)?;
                rustix::net::bind(&socket, &address)?;
            }
            bound => bound?,
        }
        // Nobody can connect before it listens, so nobody slips in under the mode it was made with.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(Self { endpoint: Endpoint::Unix(path.to_owned()), sockets: vec![socket] })
    }

    /// Takes sockets that listen already, all at one endpoint. How many may wait to be accepted at one that a
    /// worker has to itself is the server's from then on: 4,096, and fewer while more come than it can accept.
    ///
    /// # Errors
    /// When there is none, or one is not a listening stream socket, or they differ in their
    /// endpoint.
    pub fn from_sockets(sockets: Vec<OwnedFd>) -> io::Result<Self> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let mut endpoint = None;
        for socket in &sockets {
            let own = endpoint_of(socket)?;
            if *endpoint.get_or_insert_with(|| own.clone()) != own {
                return invalid("the sockets listen at different endpoints");
            }
            ioctl_fionbio(socket, true)?;
            if matches!(own, Endpoint::Inet(_)) {
                set_tcp_options(socket)?;
            }
        }
        match endpoint {
            Some(endpoint) => Ok(Self { endpoint, sockets }),
            None => invalid("there is no socket"),
        }
    }

    /// Takes a listening socket that the process was started with, by its number.
    ///
    /// # Errors
    /// As [`Listener::from_sockets`]; and when there is no such descriptor.
    pub fn inherited(number: RawFd) -> io::Result<Self> {
        Self::from_sockets(vec![sys::duplicate_inherited(number)?])
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The sockets, as for handing them to another process.
    pub fn sockets(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(AsFd::as_fd)
    }

    /// The same sockets once more: they listen until both are gone.
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
        Ok(Self { endpoint: self.endpoint.clone(), sockets })
    }

    /// Deals the sockets out to workers: each socket to one at least, and each worker one at
    /// least.
    pub(crate) fn deal(self, workers: usize) -> io::Result<Vec<Dealt>> {
        let is_one_workers = matches!(self.endpoint, Endpoint::Inet(_)) && self.sockets.len() >= workers;
        let mut dealt: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
        for (worker, number) in (self.sockets.len()..workers).zip(0..) {
            dealt[worker].push(self.sockets[number % self.sockets.len()].try_clone()?);
        }
        for (number, socket) in self.sockets.into_iter().enumerate() {
            dealt[number % workers].push(socket);
        }
        Ok(dealt.into_iter().map(|sockets| Dealt { sockets, sets_queue: is_one_workers }).collect())
    }
}

/// What a worker has of a listener.
pub(crate) struct Dealt {
    pub(crate) sockets: Vec<OwnedFd>,
    /// Whether the worker says how many may wait ([`Queue`](crate::net::queue::Queue)): one that shares a
    /// socket does not know what the others accept there, and a Unix socket tells whoever comes beyond that
    /// nobody is there.
    pub(crate) sets_queue: bool,
}

/// Binds and listens.
///
/// Another process that has bound and not yet listened keeps this one from listening, and
/// this one it. Then both let go, and try again after unequal pauses, so that one of them
/// has the address; a bind fails once somebody listens.
fn listen_at(address: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    const TRIES_MAX: u32 = 20;
    const PAUSE_MAX_MS: u64 = 16;
    let mut tries = 0;
    loop {
        let socket = bind_one(address, sharing)?;
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
    Wanted,
    Refused,
}

/// A way to control congestion that sends at once whatever the other side has room for. Every Linux
/// has it.
const UNPACED: &str = "reno";

fn bind_one(address: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, sharing == Sharing::Wanted)?;
    set_tcp_options(&socket)?;
    if address.ip().is_loopback() {
        // Only programs of this machine connect here, and there is no network between that could
        // be flooded: what paces itself for one, as BBR does, costs them time and the worker half
        // of its strength.
        let _ = sockopt::set_tcp_congestion(&socket, UNPACED);
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Accepted sockets inherit what is set here, which saves calls for each connection.
fn set_tcp_options(socket: &OwnedFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    // Where the system does not have these, a client costs more and is served all the same.
    let _ = sys::set_tcp_option(socket.as_fd(), libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX);
    let _ = sys::set_tcp_option(socket.as_fd(), libc::TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS);
    Ok(())
}

/// Whether a Unix socket is there at which nobody listens.
fn is_left_behind(path: &Path, address: &SocketAddrUnix) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let caller = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&caller, address) == Err(Errno::CONNREFUSED))
}

/// Where a socket listens.
fn endpoint_of(socket: &OwnedFd) -> io::Result<Endpoint> {
    let invalid = |text| io::Error::new(io::ErrorKind::InvalidInput, text);
    if sockopt::socket_type(socket)? != SocketType::STREAM || !sockopt::socket_acceptconn(socket)? {
        return Err(invalid("the descriptor is not a stream socket that listens"));
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
    fn only_a_loopback_address_is_without_pacing() {
        let congestion = |address: &str| {
            let listener = Listener::bind(address.parse().expect("it is an address"), 2).expect("ports are free");
            let of = |socket| sockopt::tcp_congestion(socket).expect("the system has it");
            let all: Vec<_> = listener.sockets.iter().map(of).collect();
            assert_eq!(all[0], all[1]);
            all[0].clone()
        };
        let flags = SocketFlags::CLOEXEC;
        let other = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP));
        let usual = sockopt::tcp_congestion(other.expect("there are sockets")).expect("the system has it");
        assert_eq!(congestion("127.0.0.1:0"), UNPACED);
        assert_eq!(congestion("127.1.2.3:0"), UNPACED);
        assert_eq!(congestion("0.0.0.0:0"), usual);
    }
}
