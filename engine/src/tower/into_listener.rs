//! Listeners of the standard library and of tokio.

use crate::net::listen::Listener;
use std::io;
use std::os::fd::OwnedFd;

/// A type that converts to a [`Listener`]: a listening TCP or Unix socket of the standard library or
/// of tokio.
pub trait IntoListener {
    /// Converts to a listener.
    ///
    /// # Errors
    /// If [`Listener::from_sockets`] fails.
    fn into_listener(self) -> io::Result<Listener>;
}

impl IntoListener for Listener {
    fn into_listener(self) -> io::Result<Listener> {
        Ok(self)
    }
}

impl IntoListener for std::net::TcpListener {
    fn into_listener(self) -> io::Result<Listener> {
        Listener::from_sockets(vec![OwnedFd::from(self)])
    }
}

impl IntoListener for std::os::unix::net::UnixListener {
    fn into_listener(self) -> io::Result<Listener> {
        Listener::from_sockets(vec![OwnedFd::from(self)])
    }
}

impl IntoListener for tokio::net::TcpListener {
    fn into_listener(self) -> io::Result<Listener> {
        self.into_std()?.into_listener()
    }
}

impl IntoListener for tokio::net::UnixListener {
    fn into_listener(self) -> io::Result<Listener> {
        self.into_std()?.into_listener()
    }
}
