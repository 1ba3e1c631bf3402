//! TLS to servers: whose certificates are trusted, the name, and the certificate of the client.

use super::certificate::{Certificate, CertificateError};
use super::client::{RootCertificates, client_config};
use super::client_session::{ClientSession, failure_of};
use super::host::provider;
use super::pinned::PinnedOrSigned;
use crate::net::client_session::{ApplicationProtocol, ClientTls, MakeClientSession};
use crate::net::link::Session;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};
use std::fmt;
use std::io;
use std::sync::Arc;

/// Builds a [`ClientTls`]. The certificate of the server is verified by default, with the authorities that the system
/// trusts.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing by itself"]
pub struct ClientTlsBuilder<'a> {
    server_name: &'a str,
    roots: RootCertificates<'a>,
    certificate: Option<Certificate>,
    verification: Verification,
}

/// Whether the certificate of a server is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// A trusted authority has to have signed it for the server name. Default.
    #[default]
    Required,
    /// Any certificate is accepted, so anyone on the way to the server can read and change everything.
    Skipped,
}

impl<'a> ClientTlsBuilder<'a> {
    /// Begins with the name or IP address of the server: its certificate has to be valid for it. A name is sent as the
    /// server name (SNI).
    pub fn new(server_name: &'a str) -> Self {
        Self { server_name, roots: RootCertificates::System, certificate: None, verification: Verification::Required }
    }

    /// Sets the trusted authorities. Default: those of the system.
    pub fn roots(self, roots: RootCertificates<'a>) -> Self {
        Self { roots, ..self }
    }

    /// Sets the certificate of the client, for servers that request one. Default: none.
    pub fn certificate(self, certificate: Certificate) -> Self {
        Self { certificate: Some(certificate), ..self }
    }

    /// Sets whether the certificate of the server is verified. Default: it is.
    pub fn verification(self, verification: Verification) -> Self {
        Self { verification, ..self }
    }

    /// Creates the value. Sessions are resumed: up to 256 servers are remembered.
    ///
    /// # Errors
    /// If an authority is invalid or none exists, or the server name is neither a name nor an address.
    pub fn build(self) -> Result<ClientTls, ClientTlsError> {
        let name = ServerName::try_from(self.server_name.to_owned())
            .map_err(|_| ClientTlsError::InvalidServerName(self.server_name.to_owned()))?;
        let mut config = match self.verification {
            Verification::Required => verified_config(self.roots).map_err(ClientTlsError::Roots)?,
            Verification::Skipped => unverified_config().map_err(|error| ClientTlsError::Library(error.to_string()))?,
        };
        if let Some(certificate) = self.certificate {
            config.client_auth_cert_resolver = Arc::new(OneCertificate(certificate.certified()));
        }
        let with = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            Arc::new(config)
        };
        let sessions = Sessions { name, http1: with(&[b"http/1.1"]), http2: with(&[b"h2"]), none: with(&[]) };
        Ok(ClientTls::new(Box::new(sessions)))
    }
}

/// Why a [`ClientTls`] cannot be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientTlsError {
    /// The server name is neither a host name nor an IP address.
    InvalidServerName(String),
    /// The trusted authorities cannot be used.
    Roots(CertificateError),
    /// The cryptography of the TLS library cannot be used.
    Library(String),
}

impl fmt::Display for ClientTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidServerName(name) => write!(f, "`{name}` is neither a host name nor an IP address"),
            Self::Roots(error) => write!(f, "the trusted authorities cannot be used: {error}"),
            Self::Library(error) => write!(f, "TLS cannot be used: {error}"),
        }
    }
}

impl std::error::Error for ClientTlsError {}

/// Creates the sessions of connections to one server.
struct Sessions {
    name: ServerName<'static>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    none: Arc<ClientConfig>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientTls({})", self.name.to_str())
    }
}

impl MakeClientSession for Sessions {
    fn make(&self, protocol: ApplicationProtocol) -> io::Result<Box<dyn Session>> {
        let config = match protocol {
            ApplicationProtocol::Http1 => &self.http1,
            ApplicationProtocol::Http2 => &self.http2,
            ApplicationProtocol::None => &self.none,
        };
        let connection =
            ClientConnection::new(config.clone(), self.name.clone()).map_err(|error| failure_of(&error))?;
        Ok(Box::new(ClientSession::new(connection)))
    }
}

/// The certificate of the client, whatever the server requests.
struct OneCertificate(Arc<CertifiedKey>);

impl fmt::Debug for OneCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneCertificate")
    }
}

impl ResolvesClientCert for OneCertificate {
    fn resolve(&self, _authorities: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).map(|_| self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Returns a configuration that accepts what the roots have signed, and a root as the certificate of the server itself.
fn verified_config(roots: RootCertificates<'_>) -> Result<ClientConfig, CertificateError> {
    let mut config = client_config(roots)?;
    if let RootCertificates::Pem(text) = roots {
        config.dangerous().set_certificate_verifier(Arc::new(PinnedOrSigned::of_pem(text)?));
    }
    Ok(config)
}

fn unverified_config() -> Result<ClientConfig, rustls::Error> {
    let provider = provider();
    let verifier = AcceptAny(provider.signature_verification_algorithms);
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

/// Accepts any certificate, if the server has its key.
#[derive(Debug)]
struct AcceptAny(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
