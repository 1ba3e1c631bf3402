//! The names of sites.

use super::Wrong;
use std::fmt;

/// Which names a site answers to. Names are in lower case, without a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostPattern {
    /// This name.
    Exact(String),
    /// Every name that ends so, behind a dot: `*.example.com` is `Below("example.com")`.
    Below(String),
    /// Every name that no other site has.
    Any,
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Any => f.write_str("*"),
        }
    }
}

pub(super) fn read(text: &str) -> Result<HostPattern, Wrong> {
    if text == "*" {
        return Ok(HostPattern::Any);
    }
    for scheme in ["http://", "https://"] {
        if let Some(name) = text.strip_prefix(scheme) {
            let name = name.trim_end_matches('/');
            return Err(Wrong::new("a URL where a name is expected", format!("write \"{name}\"")));
        }
    }
    if let Some((name, _)) = text.split_once('/') {
        return Err(Wrong::new("a name with a path", format!("write \"{name}\", and the path in a `route`")));
    }
    if let Some(address) = ipv6(text) {
        return Ok(HostPattern::Exact(format!("[{address}]")));
    }
    if let Some((name, port)) = text.rsplit_once(':')
        && port.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(Wrong::new("a name with a port", format!("write \"{name}\"; ports belong to `listen`")));
    }
    let (below, name) = match text.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, text),
    };
    if name.contains('*') {
        return Err(Wrong::new(
            "a wildcard in the wrong place",
            "it may stand for the first labels only, as in \"*.example.com\", or alone",
        ));
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    check_name(&name)?;
    Ok(if below { HostPattern::Below(name) } else { HostPattern::Exact(name) })
}

/// An IPv6 address as it stands in a Host field; however it is written, it is one name.
fn ipv6(text: &str) -> Option<std::net::Ipv6Addr> {
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).and_then(|address| address.parse().ok())
}

fn check_name(name: &str) -> Result<(), Wrong> {
    if !name.is_ascii() {
        return Err(Wrong::new("a name that is not ASCII", "write it as clients send it, in Punycode (xn--...)"));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if name.len() <= 253 && name.split('.').all(is_label) {
        Ok(())
    } else {
        Err(Wrong::new(
            format!("`{name}` is no host name"),
            "labels of letters, digits and hyphens with dots between, as in \"www.example.com\"",
        ))
    }
}
