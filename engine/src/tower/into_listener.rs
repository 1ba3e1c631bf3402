//! Listeners of the standard library and of tokio.

use crate::net::listen::Listener;
use std::io;
use std::os::fd::OwnedFd;

/// A type that converts to a [`Listener`]: a listening TCP or Unix socket of the standard library or
/// of tokio.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no listening socket",
    label = "this is no listener of the standard library, of tokio or of this library",
    note = "bind an address first: `tokio::net::TcpListener::bind(\"127.0.0.1:3000\").await?`",
    note = "a listener with streams of its own type implements `selvedge::StreamListener`, and belongs to \
            `selvedge::serve_streams(listener, app)`"
)]
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
