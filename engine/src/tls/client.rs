//! TLS of connections that this process opens.

use super::certificate::{CertificateError, parse_chain};
use super::host::provider;
use rustls::{ClientConfig, RootCertStore};

/// Which authorities may sign the certificate of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootCertificates<'a> {
    /// Those that the system trusts.
    System,
    /// Those of a PEM text.
    Pem(&'a [u8]),
}

/// Returns the configuration of a client that verifies servers, for libraries that take one of rustls.
///
/// # Errors
/// If a certificate is invalid, or none exists.
pub fn client_config(roots: RootCertificates<'_>) -> Result<ClientConfig, CertificateError> {
    let invalid = |error: &dyn std::fmt::Display| CertificateError::InvalidChain(error.to_string());
    let mut store = RootCertStore::empty();
    match roots {
        RootCertificates::Pem(text) => {
            for certificate in parse_chain(text)? {
                store.add(certificate).map_err(|error| invalid(&error))?;
            }
        }
        RootCertificates::System => {
            let found = rustls_native_certs::load_native_certs();
            // Systems have a few roots that the library does not accept.
            store.add_parsable_certificates(found.certs);
            if store.is_empty() {
                let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
                return Err(invalid(&format!("the system has no trusted roots{why}")));
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    Ok(builder.map_err(|error| invalid(&error))?.with_root_certificates(store).with_no_client_auth())
}
