//! What makes the sessions that secure connections of a client.

use crate::net::link::Session;
use std::fmt;
use std::hash::{Hash, Hasher};

/// Creates the sessions of connections that this process opens.
pub(crate) trait MakeClientSession: fmt::Debug + Send + Sync {
    /// Returns the session of a new connection. It begins the handshake.
    ///
    /// # Errors
    /// If the library cannot create one.
    fn make(&self, protocol: ApplicationProtocol) -> std::io::Result<Box<dyn Session>>;
}

/// The protocol that a client offers in the handshake (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApplicationProtocol {
    /// `http/1.1`. A server without ALPN is accepted.
    Http1,
    /// `h2`. The server has to select it.
    Http2,
    /// None: the bytes are not HTTP.
    None,
}

/// How the connections to a server are secured: which authorities are trusted, the name that the certificate has to
/// have, and the certificate of the client. [`crate::tls::ClientTlsBuilder`] creates one.
///
/// Two values are equal if they are one value: connections are pooled for each.
pub struct ClientTls {
    sessions: Box<dyn MakeClientSession>,
}

impl ClientTls {
    #[cfg_attr(not(any(test, feature = "tls")), expect(dead_code, reason = "only the TLS library makes sessions"))]
    pub(crate) fn new(sessions: Box<dyn MakeClientSession>) -> Self {
        Self { sessions }
    }

    pub(crate) fn session(&self, protocol: ApplicationProtocol) -> std::io::Result<Box<dyn Session>> {
        self.sessions.make(protocol)
    }
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for ClientTls {}

impl Hash for ClientTls {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self).hash(state);
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sessions.fmt(f)
    }
}
