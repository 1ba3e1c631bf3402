//! Listening sockets: one for each worker and address, so that the kernel spreads
//! connections and no worker touches another's queue.

use crate::limits::{BACKLOG, DEFER_ACCEPT_SECONDS, UNSENT_BYTES_MAX};
use crate::net::sys;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

/// Binds `count` listeners to one address. Port 0 becomes one free port for all of them.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    // Sockets that share a port would share it with another process of the same user, too.
    // So the first one listens without sharing, which fails beside any other, and is opened
    // to sharing only then.
    let first = listen_at(address, Sharing::Refused)?;
    let bound = local_address(&first)?;
    sockopt::set_socket_reuseport(&first, true)?;
    let mut listeners = vec![first];
    for _ in 1..count {
        listeners.push(listen_at(bound, Sharing::Wanted)?);
    }
    Ok((bound, listeners))
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

fn bind_one(address: SocketAddr, sharing: Sharing) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, sharing == Sharing::Wanted)?;
    // Accepted sockets inherit what is set here, which saves calls for each connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    // Where the system does not have these, a client costs more and is served all the same.
    let _ = sys::set_tcp_option(socket.as_fd(), libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX);
    let _ = sys::set_tcp_option(socket.as_fd(), libc::TCP_DEFER_ACCEPT, DEFER_ACCEPT_SECONDS);
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(socket)?)?)
}
