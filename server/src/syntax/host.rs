//! Host names of sites.

use super::ValueError;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A host name of a site, in lower case and without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostName {
    /// This name or address.
    Exact(Box<str>),
    /// `*.example.com`: every name with at least one label before this one.
    Wildcard(Box<str>),
    /// `*`: every name that no other site has.
    Any,
}

/// Domains that are not in the public name system: special-use domains (RFC 6761, RFC 8375, ICANN's `internal`) and usual
/// names of local networks.
pub(crate) const INTERNAL_DOMAINS: [&str; 8] =
    ["localhost", "internal", "test", "local", "lan", "home.arpa", "example", "invalid"];

/// Who can look up a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameReach {
    /// Everyone: a certificate authority can validate it.
    Public,
    /// Only machines of a local network.
    Internal,
    /// Everyone, but it is a wildcard: a certificate authority can validate it by records only.
    PublicWildcard,
    /// It is not a name that a certificate can have.
    Unknown,
}

impl HostName {
    /// Returns who can look up the name.
    pub(crate) fn reach(&self) -> NameReach {
        let (name, is_wildcard) = match self {
            Self::Exact(name) => (name, false),
            Self::Wildcard(name) => (name, true),
            Self::Any => return NameReach::Unknown,
        };
        if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
            return if is_internal(address) { NameReach::Internal } else { NameReach::Public };
        }
        let is_beneath =
            |domain: &&str| name.strip_suffix(*domain).is_some_and(|before| before.is_empty() || before.ends_with('.'));
        if INTERNAL_DOMAINS.iter().any(is_beneath) {
            return NameReach::Internal;
        }
        match name.contains('.') && !name.contains('_') {
            true if is_wildcard => NameReach::PublicWildcard,
            true => NameReach::Public,
            false => NameReach::Unknown,
        }
    }

    /// Returns the name as a certificate has it: an IPv6 address without brackets.
    pub(crate) fn certificate_name(&self) -> String {
        self.to_string().trim_matches(['[', ']']).to_owned()
    }
}

fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(name) => write!(f, "*.{name}"),
            Self::Any => f.write_str("*"),
        }
    }
}

impl FromStr for HostName {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        for scheme in ["http://", "https://"] {
            if let Some(name) = text.strip_prefix(scheme) {
                let name = name.trim_end_matches('/');
                return Err(ValueError::new("a URL where a name is expected", format!("write \"{name}\"")));
            }
        }
        if let Some((name, _)) = text.split_once('/') {
            return Err(ValueError::new("a name with a path", format!("write \"{name}\", and the path in a `route`")));
        }
        if let Some(address) = ipv6(text) {
            return Ok(Self::Exact(format!("[{address}]").into()));
        }
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(ValueError::new("an IPv6 address without brackets", format!("write \"[{text}]\"")));
        }
        if let Some((name, port)) = text.rsplit_once(':')
            && port.bytes().all(|b| b.is_ascii_digit())
        {
            return Err(ValueError::new("a name with a port", format!("write \"{name}\"; ports belong to `listen`")));
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(ValueError::new(
                "a wildcard in the wrong place",
                "a wildcard replaces the first labels, as in \"*.example.com\", or is the whole name",
            ));
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        check_name(&name)?;
        Ok(if below { Self::Wildcard(name.into()) } else { Self::Exact(name.into()) })
    }
}

/// Parses an IPv6 address of a Host field, so that all spellings are one name.
fn ipv6(text: &str) -> Option<std::net::Ipv6Addr> {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).and_then(|address| address.parse().ok())
}

fn check_name(name: &str) -> Result<(), ValueError> {
    if !name.is_ascii() {
        return Err(ValueError::new("a name that is not ASCII", "write it in Punycode (xn--...), as clients send it"));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if name.len() <= 253 && name.split('.').all(is_label) {
        Ok(())
    } else {
        Err(ValueError::new(
            format!("`{name}` is not a host name"),
            "use labels of letters, digits and hyphens, separated by dots, as in \"www.example.com\"",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_public_internal_or_unknown() {
        for (text, expected) in [
            ("example.com", NameReach::Public),
            ("localhost.example.com", NameReach::Public),
            ("198.51.100.7", NameReach::Public),
            ("[2001:db8::1]", NameReach::Public),
            ("localhost", NameReach::Internal),
            ("a.b.test", NameReach::Internal),
            ("*.app.internal", NameReach::Internal),
            ("192.168.1.1", NameReach::Internal),
            ("[::1]", NameReach::Internal),
            ("latest", NameReach::Unknown),
            ("*.example.com", NameReach::PublicWildcard),
            ("*.com", NameReach::Unknown),
            ("a_b.example.com", NameReach::Unknown),
            ("*", NameReach::Unknown),
        ] {
            assert_eq!(text.parse::<HostName>().unwrap().reach(), expected, "{text}");
        }
    }

    #[test]
    fn invalid_names() {
        for (text, error) in [
            ("", "is not a host name"),
            ("a b", "is not a host name"),
            ("[::g]", "is not a host name"),
            ("::1", "an IPv6 address without brackets"),
            ("a..b", "is not a host name"),
            (".a", "is not a host name"),
            (".", "is not a host name"),
            ("*.[::1]", "is not a host name"),
            ("a:80", "a name with a port"),
            ("a.*", "a wildcard in the wrong place"),
            ("*a.com", "a wildcard in the wrong place"),
            ("*.*.com", "a wildcard in the wrong place"),
        ] {
            let message = text.parse::<HostName>().unwrap_err().message;
            assert!(message.contains(error), "{text}: {message}");
        }
        assert!("a.".repeat(128).parse::<HostName>().is_err());
    }
}
