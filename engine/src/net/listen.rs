//! Listening sockets: one for each worker and address, so that the kernel spreads
//! connections and no worker touches another's queue.

use crate::limits::BACKLOG;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Binds `count` listeners to one address. Port 0 becomes one free port for all of them.
pub(crate) fn bind(address: SocketAddr, count: usize) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
    // Sockets that share a port would share it with another process of the same user, too.
    // So the first one listens without sharing, which fails beside any other, and is opened
    // to sharing only then.
    let first = bind_one(address, Sharing::Refused)?;
    let bound = local_address(&first)?;
    rustix::net::listen(&first, BACKLOG)?;
    sockopt::set_socket_reuseport(&first, true)?;
    let mut listeners = vec![first];
    for _ in 1..count {
        let next = bind_one(bound, Sharing::Wanted)?;
        rustix::net::listen(&next, BACKLOG)?;
        listeners.push(next);
    }
    Ok((bound, listeners))
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
    // Accepted sockets inherit it, which saves a call for each connection.
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn local_address(socket: &OwnedFd) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(rustix::net::getsockname(socket)?)?)
}
