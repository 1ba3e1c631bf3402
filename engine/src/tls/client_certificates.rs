//! The rules for certificates of clients.

use super::certificate::{CertificateError, parse_chain};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use std::sync::Arc;

/// Whether a client needs a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// A handshake without a valid certificate fails.
    Required,
    /// A client may have none. One that is sent has to be valid.
    Optional,
}

/// Which certificates of clients are valid.
#[derive(Clone, Debug)]
pub struct ClientCertificates {
    auth: ClientAuth,
    authorities: Arc<RootCertStore>,
    /// The certificates of the authorities as text, which session tickets are bound to.
    text: Vec<u8>,
}

impl ClientCertificates {
    /// Accepts the certificates that the authorities of a PEM text have signed.
    ///
    /// # Errors
    /// If the text is not PEM, or has no certificate or an invalid one.
    pub fn from_pem(auth: ClientAuth, authorities: &[u8]) -> Result<Self, CertificateError> {
        let mut store = RootCertStore::empty();
        for certificate in parse_chain(authorities)? {
            store.add(certificate).map_err(|error| CertificateError::InvalidChain(error.to_string()))?;
        }
        Ok(Self { auth, authorities: Arc::new(store), text: authorities.to_vec() })
    }

    /// Returns the verifier of the TLS library.
    pub(super) fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
        let builder = WebPkiClientVerifier::builder_with_provider(self.authorities.clone(), provider.clone());
        let builder = match self.auth {
            ClientAuth::Required => builder,
            ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        builder.build().map_err(|error| error.to_string())
    }

    /// Returns bytes that differ if the rules do.
    pub(super) fn identity(&self) -> Vec<u8> {
        let auth: &[u8] = match self.auth {
            ClientAuth::Required => b"required\n",
            ClientAuth::Optional => b"optional\n",
        };
        [auth, &self.text].concat()
    }
}
