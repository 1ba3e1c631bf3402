//! Host names of sites.

use super::ValueError;
use std::fmt;

/// The host names of a site, in lower case and without a final dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// This name.
    Exact(String),
    /// Every subdomain: `*.example.com` is `Subdomains("example.com")`.
    Subdomains(String),
    /// Every name that no other site has.
    Any,
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Subdomains(name) => write!(f, "*.{name}"),
            Self::Any => f.write_str("*"),
        }
    }
}

pub(super) fn read(text: &str) -> Result<HostPattern, ValueError> {
    if text == "*" {
        return Ok(HostPattern::Any);
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
        return Ok(HostPattern::Exact(format!("[{address}]")));
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
    Ok(if below { HostPattern::Subdomains(name) } else { HostPattern::Exact(name) })
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
