//! Names, validity and chain of a certificate.

use selvedge::tls::Certificate;
use std::net::IpAddr;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::parse_x509_certificate;

/// Facts about a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateFacts {
    /// The names and addresses that it is for, in lower case.
    pub(crate) names: Vec<String>,
    /// First and last second in which it is valid, in Unix time.
    pub(crate) valid: (i64, i64),
    /// Number of certificates in its chain.
    pub(crate) chain_length: usize,
    /// Whether it is its own issuer.
    pub(crate) is_self_signed: bool,
    /// Key identifier of its issuer and its serial number, by which the issuer knows it (RFC 9773 §4.1).
    pub(crate) renewal_id: Option<(Vec<u8>, Vec<u8>)>,
}

impl CertificateFacts {
    /// Reads the facts of a certificate. `None` if its structure is unknown.
    pub(crate) fn of(certificate: &Certificate) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate.chain().next()?).ok()?;
        let alternative = parsed.subject_alternative_name().ok().flatten();
        let names = alternative.iter().flat_map(|extension| &extension.value.general_names);
        let validity = parsed.validity();
        let issuer_key = parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(issuer) => issuer.key_identifier.as_ref().map(|id| id.0.to_vec()),
            _ => None,
        });
        Some(Self {
            names: names.filter_map(name_of).collect(),
            valid: (validity.not_before.timestamp(), validity.not_after.timestamp()),
            chain_length: certificate.chain().len(),
            is_self_signed: parsed.subject() == parsed.issuer(),
            renewal_id: issuer_key.map(|key| (key, parsed.tbs_certificate.raw_serial().to_vec())),
        })
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            16 => Some(IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether certificates with these names are valid for a host name. A wildcard stands for one label (RFC 9525 §6.3), so
/// `*.example.com` is covered only by itself.
pub(crate) fn is_covered(names: &[String], host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let by_wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
    names.iter().any(|name| name == host || Some(name) == by_wildcard.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn names_and_times_are_read() {
        let key = KeyPair::generate().unwrap();
        let names = ["a.test", "*.b.test", "192.0.2.1", "2001:db8::1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2030, 1, 1), rcgen::date_time_ymd(2030, 1, 2));
        let pem = params.self_signed(&key).unwrap().pem();
        let certificate = Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
        let facts = CertificateFacts::of(&certificate).unwrap();
        assert_eq!(facts.names, ["a.test", "*.b.test", "192.0.2.1", "2001:db8::1"]);
        assert_eq!(facts.valid, (1_893_456_000, 1_893_542_400));
        assert_eq!((facts.chain_length, facts.is_self_signed), (1, true));
    }

    #[test]
    fn wildcards_cover_one_label() {
        let names = ["a.test", "*.b.test", "2001:db8::1"].map(str::to_owned);
        for (host, expected) in [
            ("a.test", true),
            ("x.a.test", false),
            ("x.b.test", true),
            ("*.b.test", true),
            ("b.test", false),
            ("x.y.b.test", false),
            ("[2001:db8::1]", true),
            ("test", false),
        ] {
            assert_eq!(is_covered(&names, host), expected, "{host}");
        }
    }
}
