//! Records of names that decide whether a certificate authority may issue a certificate: CAA (RFC 8659), and the TXT
//! records of validations.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use std::net::SocketAddr;
use std::time::Duration;

const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Looks up records.
#[derive(Clone)]
pub(super) struct NameRecords(TokioResolver);

/// Which names a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameKind {
    /// One name.
    Exact,
    /// All names one label below it.
    Wildcard,
}

/// Splits a name into its kind and the name without `*.`.
pub(super) fn split_wildcard(name: &str) -> (NameKind, &str) {
    match name.strip_prefix("*.") {
        Some(base) => (NameKind::Wildcard, base),
        None => (NameKind::Exact, name),
    }
}

/// A property of a CAA record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CaaProperty {
    /// In lower case.
    tag: String,
    value: String,
}

impl NameRecords {
    /// Creates it for a name server; `None` for those of the system.
    ///
    /// # Errors
    /// If the system has no name server.
    pub(super) fn new(name_server: Option<SocketAddr>) -> Result<Self, String> {
        let builder = match name_server {
            None => TokioResolver::builder_tokio().map_err(|error| format!("no name server is known: {error}"))?,
            Some(address) => {
                let connection = |mut connection: ConnectionConfig| {
                    connection.port = address.port();
                    connection
                };
                let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(connection);
                let server = NameServerConfig::new(address.ip(), true, connections.into());
                let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
                TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
            }
        };
        let mut builder = builder;
        let options = builder.options_mut();
        // A record that was just set has to be seen.
        options.cache_size = 0;
        options.timeout = QUERY_TIMEOUT;
        options.attempts = 2;
        builder.build().map(Self).map_err(|error| format!("names cannot be looked up: {error}"))
    }

    /// Returns the records of a name; none if the name does not exist.
    async fn lookup(&self, name: &str, kind: RecordType) -> Result<Vec<RData>, String> {
        match self.0.lookup(format!("{name}."), kind).await {
            Ok(found) => Ok(found.answers().iter().map(|record| record.data.clone()).collect()),
            Err(error) if error.is_no_records_found() => Ok(Vec::new()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the texts of the TXT records of a name.
    pub(super) async fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let text = |data: RData| match data {
            RData::TXT(text) => Some(String::from_utf8_lossy(&text.txt_data.concat()).into_owned()),
            _ => None,
        };
        Ok(self.lookup(name, RecordType::TXT).await?.into_iter().filter_map(text).collect())
    }

    /// Checks that a certificate authority may issue a certificate for a name, which may begin with `*.`.
    ///
    /// A look-up that fails refuses nothing: the certificate authority looks for itself.
    ///
    /// # Errors
    /// The record that refuses it.
    pub(super) async fn check_caa(&self, name: &str, issuer_names: &[String]) -> Result<(), String> {
        if issuer_names.is_empty() {
            return Ok(());
        }
        let (kind, base) = split_wildcard(name);
        let mut rest = Some(base);
        while let Some(domain) = rest {
            let Ok(records) = self.lookup(domain, RecordType::CAA).await else { return Ok(()) };
            let property = |data: &RData| match data {
                RData::CAA(caa) => Some(CaaProperty {
                    tag: caa.tag.to_ascii_lowercase(),
                    value: String::from_utf8_lossy(&caa.value).into_owned(),
                }),
                _ => None,
            };
            let properties: Vec<CaaProperty> = records.iter().filter_map(property).collect();
            if !properties.is_empty() {
                let own = issuer_names.join(", ");
                return allow(&properties, issuer_names, kind).map_err(|issuers| match issuers.as_slice() {
                    [] => format!("the CAA record of {domain} forbids certificates"),
                    _ => format!("the CAA record of {domain} allows {} only, not {own}", issuers.join(", ")),
                });
            }
            rest = domain.split_once('.').map(|(_, parent)| parent);
        }
        Ok(())
    }
}

/// Applies the CAA records of the closest name that has some (RFC 8659 §4.2 and §4.3). Fails with the issuers that are
/// allowed.
fn allow(properties: &[CaaProperty], issuer_names: &[String], kind: NameKind) -> Result<(), Vec<String>> {
    let of = |tag: &str| -> Vec<String> {
        let tagged = properties.iter().filter(|property| property.tag == tag);
        tagged.map(|property| issuer(&property.value)).collect()
    };
    let wild = of("issuewild");
    let issuers = if kind == NameKind::Wildcard && !wild.is_empty() { wild } else { of("issue") };
    match issuers.is_empty() || issuers.iter().any(|issuer| issuer_names.contains(issuer)) {
        true => Ok(()),
        false => Err(issuers.into_iter().filter(|issuer| !issuer.is_empty()).collect()),
    }
}

/// Returns the issuer of a value, without its parameters. Empty if no authority is allowed.
fn issuer(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim_matches([' ', '\t']).to_ascii_lowercase()
}

/// A record with which the owner of a name allows an account to get certificates for it: `dns-persist-01`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PersistentRecord {
    pub(super) name: String,
    pub(super) value: String,
    issuer_names: Vec<String>,
    account: String,
    kind: NameKind,
}

impl PersistentRecord {
    /// Returns the record for a name, which may begin with `*.`; `None` if the authority names no issuer.
    pub(super) fn new(name: &str, issuer_names: &[String], account: &str) -> Option<Self> {
        let (kind, base) = split_wildcard(name);
        let policy = match kind {
            NameKind::Exact => "",
            NameKind::Wildcard => "; policy=wildcard",
        };
        Some(Self {
            name: format!("_validation-persist.{base}"),
            value: format!("{}; accounturi={account}{policy}", issuer_names.first()?),
            issuer_names: issuer_names.to_vec(),
            account: account.to_owned(),
            kind,
        })
    }

    /// Whether one of some texts is the record, or one that allows more.
    pub(super) fn is_among(&self, texts: &[String], now: i64) -> bool {
        texts.iter().any(|text| self.is_allowed_by(text, now))
    }

    fn is_allowed_by(&self, text: &str, now: i64) -> bool {
        if !self.issuer_names.contains(&issuer(text)) {
            return false;
        }
        let parameters = text.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
        let (mut has_account, mut has_policy, mut is_valid) = (false, self.kind == NameKind::Exact, true);
        for (name, value) in parameters {
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "accounturi" => has_account = value == self.account,
                "policy" => has_policy |= value.eq_ignore_ascii_case("wildcard"),
                "persistuntil" => is_valid = value.parse::<i64>().is_ok_and(|until| until >= now),
                _ => {}
            }
        }
        has_account && has_policy && is_valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_caa_records_decide() {
        let own = ["ca.example".to_owned()];
        for (records, kind, expected) in [
            (&[("issue", "ca.example")][..], NameKind::Exact, true),
            (&[("issue", " CA.example ; validationmethods=dns-01")], NameKind::Exact, true),
            (&[("issue", "other.example")], NameKind::Exact, false),
            (&[("issue", ";")], NameKind::Exact, false),
            (&[("issue", "other.example"), ("issue", "ca.example")], NameKind::Exact, true),
            (&[("iodef", "mailto:a@example.com")], NameKind::Exact, true),
            (&[("issue", "ca.example"), ("issuewild", ";")], NameKind::Exact, true),
            (&[("issue", "ca.example"), ("issuewild", ";")], NameKind::Wildcard, false),
            (&[("issue", "ca.example")], NameKind::Wildcard, true),
            (&[("issue", ";"), ("issuewild", "ca.example")], NameKind::Wildcard, true),
        ] {
            let property =
                |(tag, value): &(&str, &str)| CaaProperty { tag: (*tag).to_owned(), value: (*value).to_owned() };
            let properties: Vec<_> = records.iter().map(property).collect();
            assert_eq!(allow(&properties, &own, kind).is_ok(), expected, "{records:?} {kind:?}");
        }
    }

    #[test]
    fn a_persistent_record_names_authority_account_and_policy() {
        const NOW: i64 = 1_800_000_000;
        let issuers = ["ca.example".to_owned(), "ca.test".to_owned()];
        let record = |name| PersistentRecord::new(name, &issuers, "https://ca.example/acct/1").unwrap();
        let exact = record("a.example.com");
        assert_eq!(exact.name, "_validation-persist.a.example.com");
        assert_eq!(exact.value, "ca.example; accounturi=https://ca.example/acct/1");
        let wildcard = record("*.example.com");
        assert_eq!(wildcard.name, "_validation-persist.example.com");
        for (text, for_exact, for_wildcard) in [
            (exact.value.as_str(), true, false),
            (&wildcard.value, true, true),
            ("ca.test;accounturi=https://ca.example/acct/1;policy=WILDCARD", true, true),
            ("ca.example; accounturi=https://ca.example/acct/2; policy=wildcard", false, false),
            ("other.example; accounturi=https://ca.example/acct/1", false, false),
            ("ca.example; accounturi=https://ca.example/acct/1; persistUntil=1799999999", false, false),
            ("ca.example; accounturi=https://ca.example/acct/1; persistUntil=1800000000", true, false),
            ("v=spf1 -all", false, false),
        ] {
            let texts = [text.to_owned()];
            assert_eq!(exact.is_among(&texts, NOW), for_exact, "{text}");
            assert_eq!(wildcard.is_among(&texts, NOW), for_wildcard, "{text}");
        }
        assert_eq!(PersistentRecord::new("a", &[], "x"), None);
    }
}
