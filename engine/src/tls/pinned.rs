//! Servers whose own certificate is trusted: it is one of those that the configuration names.

use super::certificate::{CertificateError, parse_chain};
use super::host::provider;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError as Reason, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;
use x509_parser::time::ASN1Time;

/// Accepts a certificate that a trusted authority has signed, and one that is trusted itself.
///
/// A self-signed certificate is that of an authority, if it was made as by `openssl req -x509`, and no chain may end with the
/// certificate of an authority. So the certificate of the server is compared with the trusted ones first.
#[derive(Debug)]
pub(super) struct PinnedOrSigned {
    trusted: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

impl PinnedOrSigned {
    /// Trusts the certificates of a PEM text.
    pub(super) fn of_pem(text: &[u8]) -> Result<Self, CertificateError> {
        let invalid = |error: &dyn std::fmt::Display| CertificateError::InvalidChain(error.to_string());
        let trusted = parse_chain(text)?;
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone()).map_err(|error| invalid(&error))?;
        }
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
        Ok(Self { trusted, signed: signed.map_err(|error| invalid(&error))? })
    }
}

impl ServerCertVerifier for PinnedOrSigned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.trusted.iter().any(|trusted| trusted.as_ref() == certificate.as_ref()) {
            return self.signed.verify_server_cert(certificate, intermediates, name, ocsp_response, now);
        }
        verify_validity(certificate, now)?;
        rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

fn verify_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|_| Reason::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    let now = now.ok_or(Error::FailedToGetCurrentTime)?;
    let validity = parsed.validity();
    if now < validity.not_before {
        return Err(Reason::NotValidYet.into());
    }
    if now > validity.not_after {
        return Err(Reason::Expired.into());
    }
    Ok(())
}
