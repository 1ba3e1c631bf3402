//! Which site a request is for.
//!
//! One look-up by the hash of the name, in lower case and without allocation, however many
//! sites there are; wildcards cost one for each label that they may have.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use selvedge::proto::target::Host;
use std::fmt;
use std::io::Write;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Octets of a name (RFC 1035 §2.3.4). A longer one is nobody's.
const NAME_BYTES_MAX: usize = 255;

/// A name that a site goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostName {
    /// A name or an address, in lower case.
    Exact(Box<str>),
    /// `*.example.com`: whatever has one label or more before this.
    Beneath(Box<str>),
    /// `*`: every name that is no other site's.
    Any,
}

/// Why a text is no name of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostNameError {
    /// It is no host.
    Invalid,
    /// It has a port, which is a matter of listeners.
    Port,
    /// A star stands elsewhere than as the first label.
    Star,
    /// It is too long.
    TooLong,
}

impl fmt::Display for HostNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => {
                "this is no host name: letters, digits, hyphens and dots, or an address (IPv6 in brackets)"
            }
            Self::Port => "a site has a name without a port; ports belong to listeners",
            Self::Star => "a star stands for whole labels at the beginning, as in *.example.com, or alone",
            Self::TooLong => "a host name has at most 255 octets",
        })
    }
}

impl std::error::Error for HostNameError {}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (name, is_wildcard) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        if name.contains('*') {
            return Err(HostNameError::Star);
        }
        let host = Host::parse(name.as_bytes()).map_err(|_| HostNameError::Invalid)?;
        if host.name.len() < name.len() {
            return Err(HostNameError::Port);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(HostNameError::TooLong);
        }
        let mut lowered = Lowered::default();
        let name = lowered.set(host.name).and_then(|name| std::str::from_utf8(name).ok());
        let name = name.filter(|name| !name.starts_with('.') && !name.contains("..") && !name.is_empty());
        let name: Box<str> = name.ok_or(HostNameError::Invalid)?.into();
        match is_wildcard {
            true if name.starts_with('[') => Err(HostNameError::Invalid),
            true => Ok(Self::Beneath(name)),
            false => Ok(Self::Exact(name)),
        }
    }
}

/// The sites by their names.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    exact: HashMap<Box<[u8]>, u32, FixedState>,
    beneath: HashMap<Box<[u8]>, u32, FixedState>,
    /// The most labels of a name that has a star before it, which bounds the look-ups.
    labels_max: usize,
    any: Option<u32>,
}

impl Hosts {
    /// Adds a name; `Err` has the site that has it already.
    pub(super) fn add(&mut self, name: &HostName, site: u32) -> Result<(), u32> {
        let earlier = match name {
            HostName::Exact(name) => self.exact.insert(name.as_bytes().into(), site),
            HostName::Beneath(name) => {
                self.labels_max = self.labels_max.max(name.split('.').count());
                self.beneath.insert(name.as_bytes().into(), site)
            }
            HostName::Any => self.any.replace(site),
        };
        earlier.map_or(Ok(()), Err)
    }

    /// The site of a host, whose port does not matter. A name of its own goes before a
    /// wildcard, a longer wildcard before a shorter one, and `*` comes last.
    pub(super) fn find(&self, host: Option<&[u8]>) -> Option<u32> {
        let mut lowered = Lowered::default();
        host.and_then(|host| lowered.set(host)).and_then(|name| self.find_name(name)).or(self.any)
    }

    fn find_name(&self, name: &[u8]) -> Option<u32> {
        if let Some(site) = self.exact.get(name) {
            return Some(*site);
        }
        if self.labels_max == 0 || name.first() == Some(&b'[') {
            return None;
        }
        let labels = name.split(|&b| b == b'.').count();
        let dots = name.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| at);
        // The star stands for one label at least, and what is longer than any wildcard is passed over.
        let skipped = labels.saturating_sub(self.labels_max + 1);
        dots.skip(skipped).filter(|&at| at > 0).find_map(|at| self.beneath.get(&name[at + 1..])).copied()
    }
}

/// Room for a name in the one form that names are compared in: lower case, without the dot
/// of the root, and an IPv6 address as RFC 5952 writes it.
struct Lowered {
    bytes: [u8; NAME_BYTES_MAX],
}

impl Default for Lowered {
    fn default() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX] }
    }
}

impl Lowered {
    fn set(&mut self, name: &[u8]) -> Option<&[u8]> {
        if let Some(address) = name.strip_prefix(b"[") {
            let address = std::str::from_utf8(address.strip_suffix(b"]")?).ok()?;
            let address: Ipv6Addr = address.parse().ok()?;
            let mut rest = &mut self.bytes[..];
            write!(rest, "[{address}]").ok()?;
            let len = NAME_BYTES_MAX - rest.len();
            return Some(&self.bytes[..len]);
        }
        let name = name.strip_suffix(b".").unwrap_or(name);
        let lowered = self.bytes.get_mut(..name.len())?;
        lowered.copy_from_slice(name);
        lowered.make_ascii_lowercase();
        Some(lowered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Hosts {
        let mut hosts = Hosts::default();
        for (site, name) in names.iter().enumerate() {
            hosts.add(&name.parse().unwrap(), site as u32).unwrap();
        }
        hosts
    }

    fn find(hosts: &Hosts, host: &str) -> Option<u32> {
        hosts.find(Some(Host::parse(host.as_bytes()).unwrap().name))
    }

    #[test]
    fn names_and_their_sites() {
        let names =
            ["example.com", "*.example.com", "*.a.example.com", "b.a.example.com", "[2001:DB8::1]", "192.0.2.1"];
        let hosts = hosts(&names);
        for (host, expected) in [
            ("example.com", Some(0)),
            ("EXAMPLE.Com", Some(0)),
            ("example.com.", Some(0)),
            ("example.com:8080", Some(0)),
            ("example.com.:8080", Some(0)),
            ("www.example.com", Some(1)),
            ("x.www.EXAMPLE.com", Some(1)),
            ("a.example.com", Some(1)),
            ("x.a.example.com", Some(2)),
            ("x.y.z.a.example.com", Some(2)),
            ("b.a.example.com", Some(3)),
            (".example.com", None),
            ("com", None),
            ("wwwexample.com", None),
            ("example.com.evil", None),
            ("example%2ecom", None),
            ("[2001:db8::1]", Some(4)),
            ("[2001:0DB8:0:0:0:0:0:1]:443", Some(4)),
            ("[2001:db8::2]", None),
            ("192.0.2.1:80", Some(5)),
            ("192.0.2.2", None),
        ] {
            assert_eq!(find(&hosts, host), expected, "{host}");
        }
        let long = format!("{}.example.com", "a".repeat(300));
        assert_eq!(find(&hosts, &long), None);
        let many = format!("{}example.com", "b.".repeat(100));
        assert_eq!(find(&hosts, &many), Some(1));
        assert_eq!(hosts.find(None), None);
    }

    #[test]
    fn a_star_takes_what_is_left() {
        let hosts = hosts(&["*", "a"]);
        assert_eq!((find(&hosts, "a"), find(&hosts, "b"), find(&hosts, "[::1]")), (Some(1), Some(0), Some(0)));
        assert_eq!((hosts.find(None), find(&hosts, &"a".repeat(300))), (Some(0), Some(0)));
        let mut hosts = hosts;
        assert_eq!(hosts.add(&HostName::Any, 7), Err(0));
        assert_eq!(hosts.add(&"A.".parse().unwrap(), 8), Err(1));
    }

    #[test]
    fn each_of_ten_thousand_sites_goes_by_its_own_name() {
        let names: Vec<String> = (0..10_000).map(|number| format!("site-{number}.example.com")).collect();
        let many = hosts(&names.iter().map(|name| &**name).collect::<Vec<_>>());
        for (number, name) in (0..).zip(&names) {
            assert_eq!(find(&many, name), Some(number), "{name}");
        }
        assert_eq!(find(&many, "site-10000.example.com"), None);
    }

    #[test]
    fn texts_that_are_no_name() {
        for (text, error) in [
            ("", HostNameError::Invalid),
            ("a b", HostNameError::Invalid),
            ("[::g]", HostNameError::Invalid),
            ("::1", HostNameError::Invalid),
            ("a..b", HostNameError::Invalid),
            (".a", HostNameError::Invalid),
            (".", HostNameError::Invalid),
            ("*.[::1]", HostNameError::Invalid),
            ("a:80", HostNameError::Port),
            ("a.*", HostNameError::Star),
            ("*a.com", HostNameError::Star),
            ("*.*.com", HostNameError::Star),
        ] {
            assert_eq!(text.parse::<HostName>(), Err(error), "{text}");
        }
        assert_eq!("a".repeat(256).parse::<HostName>(), Err(HostNameError::TooLong));
    }
}
