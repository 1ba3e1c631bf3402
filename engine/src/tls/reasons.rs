//! Errors of the TLS library in words, for logs.

use rustls::{AlertDescription, CertificateError};

/// Why a certificate is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateReason {
    /// It is not for this end of a connection.
    WrongPurpose,
    /// Another reason, in words.
    Other(&'static str),
}

/// Returns why a certificate is invalid.
pub(super) fn of_certificate(error: &CertificateError) -> CertificateReason {
    CertificateReason::Other(match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet",
        CertificateError::Revoked => "it is revoked",
        CertificateError::UnknownIssuer => "no trusted authority has signed it",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => "it is for another name",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::BadEncoding => "it is malformed",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            return CertificateReason::WrongPurpose;
        }
        // The TLS library has no kind for it.
        CertificateError::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority"
        }
        _ => "it cannot be verified",
    })
}

/// Returns in words why a server refuses the certificate of its client; `None` for an alert about anything else.
pub(super) fn of_refused_certificate(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::CertificateRequired => "it requires one",
        AlertDescription::CertificateExpired => "it has expired or is not valid yet",
        AlertDescription::CertificateRevoked => "it is revoked",
        AlertDescription::UnknownCA => "no authority that it trusts has signed it",
        AlertDescription::UnsupportedCertificate => "its kind is not supported",
        AlertDescription::BadCertificate => "it is malformed, or its signature is wrong",
        AlertDescription::CertificateUnknown => "no reason was given",
        AlertDescription::AccessDenied => "it has no access",
        _ => return None,
    })
}

/// Returns in words why a client refuses the handshake of its server.
pub(super) fn of_refused_handshake(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateExpired => "the certificate has expired or is not valid yet (certificate_expired)",
        AlertDescription::CertificateRevoked => "the certificate is revoked (certificate_revoked)",
        AlertDescription::UnknownCA => "no authority that it trusts has signed the certificate (unknown_ca)",
        AlertDescription::UnsupportedCertificate => "it does not support the certificate (unsupported_certificate)",
        AlertDescription::BadCertificate => {
            "the certificate is malformed, for another name, or wrongly signed (bad_certificate)"
        }
        AlertDescription::CertificateUnknown => "it does not accept the certificate (certificate_unknown)",
        AlertDescription::ProtocolVersion => "it does not accept the TLS version (protocol_version)",
        AlertDescription::HandshakeFailure => "it does not accept what the server chose (handshake_failure)",
        other => alert_name(other),
    }
}

/// Returns the name of an alert in the TLS library.
pub(super) fn alert_name(alert: AlertDescription) -> &'static str {
    alert.as_str().unwrap_or("an unknown alert")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::Authority;
    use rustls::Error;
    use rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
    use rustls::server::WebPkiClientVerifier;

    #[test]
    fn the_certificate_of_an_authority_is_none_of_a_client() {
        let authority = Authority::new();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(authority.store(), provider).build().unwrap();
        let own = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
        let Err(Error::InvalidCertificate(error)) = verifier.verify_client_cert(&own, &[], UnixTime::now()) else {
            panic!("it is valid")
        };
        assert_eq!(of_certificate(&error), CertificateReason::Other("it is the certificate of an authority"));
    }
}
