//! A host of TLS connections: what a handshake with its names uses.

use super::certificate::{Certificates, CertificatesByName};
use super::client_certificates::ClientCertificates;
use super::tickets::{HostTickets, TicketKeys};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// The application protocols that a handshake can agree on, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// The protocol of a validation by a certificate authority (RFC 8737).
pub(super) const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// Certificates, rules for client certificates, and session tickets of one or more names.
#[derive(Clone)]
pub struct TlsHost {
    pub(super) config: Arc<ServerConfig>,
    pub(super) tag: u32,
}

impl fmt::Debug for TlsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHost").field("tag", &self.tag).finish_non_exhaustive()
    }
}

/// Why a host cannot be created.
#[derive(Clone, Debug)]
pub struct HostError(String);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostError {}

impl TlsHost {
    /// Begins a host.
    pub fn builder() -> TlsHostBuilder {
        TlsHostBuilder {
            resolver: Arc::new(Certificates::new(Vec::new())),
            clients: None,
            tickets: None,
            identity: String::new(),
            tag: 0,
            protocols: &PROTOCOLS,
        }
    }

    /// Uses a configuration of the TLS library, with the application protocols of this server.
    pub fn from_rustls(mut config: ServerConfig) -> Self {
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        config.max_early_data_size = 0;
        Self { config: Arc::new(config), tag: 0 }
    }
}

/// Builds a [`TlsHost`].
#[must_use = "a builder does nothing by itself"]
pub struct TlsHostBuilder {
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Option<ClientCertificates>,
    tickets: Option<TicketKeys>,
    identity: String,
    tag: u32,
    protocols: &'static [&'static [u8]],
}

impl fmt::Debug for TlsHostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHostBuilder").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl TlsHostBuilder {
    /// Sets the certificates.
    pub fn certificates(self, certificates: Certificates) -> Self {
        self.resolver(Arc::new(certificates))
    }

    /// Sets certificates for each name, in lower case. A name that begins with `*.` covers one more label. A client that sends no name, because it connects to an address, gets
    /// those of the first address, or else of the first name.
    pub fn certificates_by_name(self, sets: Vec<(String, Certificates)>) -> Self {
        let address = sets.iter().find(|(name, _)| name.parse::<IpAddr>().is_ok());
        let first = address.or(sets.first()).map(|(_, certificates)| certificates.clone());
        self.resolver(Arc::new(CertificatesByName { sets: sets.into_iter().collect(), first, further: None }))
    }

    /// Sets certificates for each name, and a function for names that are not among them, which must not block.
    pub fn certificates_by_name_or(
        self,
        sets: Vec<(String, Certificates)>,
        further: impl Fn(&str) -> Option<Certificates> + Send + Sync + 'static,
    ) -> Self {
        let sets = sets.into_iter().collect();
        self.resolver(Arc::new(CertificatesByName { sets, first: None, further: Some(Arc::new(further)) }))
    }

    /// Sets a resolver of the TLS library for the certificates.
    pub fn resolver(self, resolver: Arc<dyn ResolvesServerCert>) -> Self {
        Self { resolver, ..self }
    }

    /// Sets the rules for client certificates. By default, a handshake requests none.
    pub fn client_certificates(self, clients: ClientCertificates) -> Self {
        Self { clients: Some(clients), ..self }
    }

    /// Sets the keys of session tickets. By default, the keys are those of the process.
    pub fn ticket_keys(self, keys: TicketKeys) -> Self {
        Self { tickets: Some(keys), ..self }
    }

    /// Sets what session tickets are bound to, beside the rules for client certificates. A ticket is not accepted by a
    /// host with another identity.
    pub fn identity(self, identity: impl Into<String>) -> Self {
        Self { identity: identity.into(), ..self }
    }

    /// Sets a number that requests get as [`TlsInfo::host_tag`](crate::service::TlsInfo::host_tag). Default 0.
    pub fn tag(self, tag: u32) -> Self {
        Self { tag, ..self }
    }

    /// Makes a host for validations by a certificate authority (RFC 8737), which has no other protocol.
    pub fn for_acme_challenge(self) -> Self {
        Self { protocols: &[ACME_PROTOCOL], ..self }
    }

    /// Creates the host.
    ///
    /// # Errors
    /// If the rules for client certificates cannot be used.
    pub fn build(self) -> Result<TlsHost, HostError> {
        let provider = provider();
        let identity = match &self.clients {
            Some(clients) => [self.identity.as_bytes(), b"\n", &clients.identity()].concat(),
            None => self.identity.into_bytes(),
        };
        let verifier = match &self.clients {
            Some(clients) => clients.verifier(&provider).map_err(HostError)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| HostError(error.to_string()))?;
        let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(self.resolver);
        config.alpn_protocols = self.protocols.iter().map(|protocol| protocol.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let keys = self.tickets.unwrap_or_else(|| TicketKeys::of_process().clone());
        config.ticketer = Arc::new(HostTickets::new(keys, &identity));
        Ok(TlsHost { config: Arc::new(config), tag: self.tag })
    }
}

/// Returns the cryptography, which all hosts share.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(default_provider())).clone()
}
