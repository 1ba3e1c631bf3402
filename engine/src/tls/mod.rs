//! TLS: the handshake chooses a host by its server name, and the host has the certificates, the rules for client
//! certificates and the keys of session tickets. Only this module knows the TLS library.

mod certificate;
mod client;
mod client_certificates;
mod client_session;
mod client_tls;
mod host;
mod pinned;
mod reasons;
mod session;
mod subject;
#[cfg(test)]
mod tests;
mod tickets;

pub use certificate::{Certificate, CertificateError, Certificates};
pub use client::{RootCertificates, client_config};
pub use client_certificates::{ClientAuth, ClientCertificates};
pub use client_tls::{ClientTlsBuilder, ClientTlsError, Verification};
pub use host::{HostError, TlsHost, TlsHostBuilder};
pub use rustls;
pub use tickets::TicketKeys;

use crate::net::link::{MakeSession, Session};
use crate::net::listen::Endpoint;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

/// What a client offers at the start of a handshake.
#[derive(Clone, Copy, Debug)]
pub struct ClientOffer<'a> {
    /// The server name (SNI), in lower case. `None` if the client sends none, such as for an IP address.
    pub server_name: Option<&'a str>,
    /// Whether the client offers only this application protocol: a certificate authority that validates the name
    /// (RFC 8737).
    pub is_acme_challenge: bool,
}

/// Chooses the host of a handshake. Called on a worker; it must not block.
pub trait SelectHost: Send + Sync {
    /// Returns the host for an offer; `None` to refuse the handshake.
    fn select(&self, offer: &ClientOffer<'_>) -> Option<Arc<TlsHost>>;

    /// Prepares what the handshake needs, such as a certificate for a new name. [`SelectHost::select`] is called when the
    /// result has completed. By default, nothing is to be prepared.
    fn prepare(&self, _offer: &ClientOffer<'_>) -> Option<Preparation> {
        None
    }
}

/// What completes when a handshake can go on.
pub type Preparation = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<T: SelectHost + ?Sized> SelectHost for Arc<T> {
    fn select(&self, offer: &ClientOffer<'_>) -> Option<Arc<TlsHost>> {
        (**self).select(offer)
    }

    fn prepare(&self, offer: &ClientOffer<'_>) -> Option<Preparation> {
        (**self).prepare(offer)
    }
}

/// TLS for the listeners of a server.
#[derive(Clone)]
pub struct Tls {
    hosts: Arc<dyn SelectHost>,
    /// The listeners with TLS; `None` for all.
    endpoints: Option<Arc<[Endpoint]>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Tls {
    /// Uses one host for all names.
    pub fn new(host: TlsHost) -> Self {
        Self::selecting(OneHost(Arc::new(host)))
    }

    /// Uses a certificate chain and its private key, in PEM files. The files are read now.
    ///
    /// # Errors
    /// If a file cannot be read, or the certificate and the key do not belong together.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> io::Result<Self> {
        let certificate = Certificate::from_files(chain, key)?;
        let host = TlsHost::builder().certificates(Certificates::new(vec![certificate])).build();
        Ok(Self::new(host.map_err(io::Error::other)?))
    }

    /// Uses a configuration of the TLS library. Its application protocols are replaced by those that the server has.
    pub fn from_rustls(config: rustls::ServerConfig) -> Self {
        Self::new(TlsHost::from_rustls(config))
    }

    /// Uses a resolver of the TLS library for the certificates of all names.
    ///
    /// # Errors
    /// If the cryptography of the TLS library cannot be used.
    pub fn from_resolver(resolver: Arc<dyn rustls::server::ResolvesServerCert>) -> Result<Self, HostError> {
        TlsHost::builder().resolver(resolver).build().map(Self::new)
    }

    /// Uses a host for each name, and perhaps one for all other names. A name is exact, such as `www.example.com`, or
    /// begins with `*.` and covers one more label.
    pub fn by_name(hosts: impl IntoIterator<Item = (String, Arc<TlsHost>)>, other: Option<Arc<TlsHost>>) -> Self {
        let hosts = hosts.into_iter().map(|(name, host)| (name.to_ascii_lowercase(), host));
        Self::selecting(HostsByName { hosts: hosts.collect(), other })
    }

    /// Uses a function of its own to choose the host.
    pub fn selecting(hosts: impl SelectHost + 'static) -> Self {
        Self { hosts: Arc::new(hosts), endpoints: None }
    }

    /// Uses TLS only at these listeners. The others stay plain.
    #[must_use]
    pub fn only_at(self, endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self { endpoints: Some(endpoints.into_iter().collect()), ..self }
    }
}

impl MakeSession for Tls {
    fn make(&self, endpoint: &Endpoint, plain_text_response: &'static [u8]) -> Option<Box<dyn Session>> {
        match &self.endpoints {
            Some(endpoints) if !endpoints.contains(endpoint) => None,
            _ => Some(Box::new(session::TlsSession::new(self.hosts.clone(), plain_text_response))),
        }
    }
}

struct OneHost(Arc<TlsHost>);

impl SelectHost for OneHost {
    fn select(&self, _offer: &ClientOffer<'_>) -> Option<Arc<TlsHost>> {
        Some(self.0.clone())
    }
}

struct HostsByName {
    hosts: HashMap<String, Arc<TlsHost>>,
    other: Option<Arc<TlsHost>>,
}

impl SelectHost for HostsByName {
    fn select(&self, offer: &ClientOffer<'_>) -> Option<Arc<TlsHost>> {
        let named = offer.server_name.and_then(|name| {
            let wildcard = || self.hosts.get(&format!("*.{}", name.split_once('.')?.1));
            self.hosts.get(name).or_else(wildcard)
        });
        named.or(self.other.as_ref()).cloned()
    }
}
