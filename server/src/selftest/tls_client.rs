//! TLS of the attacking client. Certificates are not verified: the attacks do not depend on who the server is.

use super::attack_connection::AttackConnection;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use selvedge::tls::rustls;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

/// Makes handshakes with one server.
#[derive(Clone, Debug)]
pub(super) struct TlsClient {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Makes a client for the host of a URL.
    ///
    /// # Errors
    /// If the host is no name and no address, or the TLS library cannot be used.
    pub(super) fn new(host: &str) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("{host}: {error}"))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| format!("cannot use TLS: {error}"))?;
        let verifier = Arc::new(AnyCertificate(provider));
        let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        Ok(Self { name, config: Arc::new(config) })
    }

    /// Completes a handshake for an application protocol, and for another server name than that of the URL.
    pub(super) fn encrypt(
        &self,
        mut socket: TcpStream,
        protocol: &[u8],
        name: Option<&str>,
    ) -> io::Result<AttackConnection> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.to_vec()];
        // A resumed session would hide what a full handshake shows.
        config.resumption = rustls::client::Resumption::disabled();
        let name = match name {
            Some(name) => ServerName::try_from(name.to_owned()).map_err(io::Error::other)?,
            None => self.name.clone(),
        };
        let mut session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(AttackConnection::encrypted(StreamOwned::new(session, socket)))
    }
}

/// Accepts every certificate. The signature of the handshake has to be that of its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
