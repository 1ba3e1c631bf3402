//! Finds the site of a host name.
//!
//! An exact name costs one hash look-up in lower case, without allocation, for any number of sites. A wildcard
//! costs one more look-up for each label it can have.

use crate::syntax::HostName;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::io::Write;
use std::net::Ipv6Addr;

/// The maximum length of a name in bytes (RFC 1035 §2.3.4). A longer name belongs to no site.
const NAME_BYTES_MAX: usize = 255;

/// The index of sites by host name.
#[derive(Debug, Default)]
pub(super) struct HostIndex {
    exact: HashMap<Box<[u8]>, u32, FixedState>,
    wildcards: HashMap<Box<[u8]>, u32, FixedState>,
    /// The maximum number of labels behind the star of a wildcard, which bounds the look-ups.
    wildcard_labels_max: usize,
    any: Option<u32>,
}

impl HostIndex {
    /// Adds a name. If another site has it, returns that site in `Err`.
    pub(super) fn add(&mut self, name: &HostName, site: u32) -> Result<(), u32> {
        let earlier = match name {
            HostName::Exact(name) => self.exact.insert(name.as_bytes().into(), site),
            HostName::Wildcard(name) => {
                self.wildcard_labels_max = self.wildcard_labels_max.max(name.split('.').count());
                self.wildcards.insert(name.as_bytes().into(), site)
            }
            HostName::Any => self.any.replace(site),
        };
        earlier.map_or(Ok(()), Err)
    }

    /// Finds the site of a host without its port. An exact name precedes a wildcard, a longer wildcard a
    /// shorter one, and `*` is last.
    pub(super) fn find(&self, host: Option<&[u8]>) -> Option<u32> {
        let mut lowered = NormalizedName::default();
        host.and_then(|host| lowered.normalize(host)).and_then(|name| self.find_name(name)).or(self.any)
    }

    fn find_name(&self, name: &[u8]) -> Option<u32> {
        if let Some(site) = self.exact.get(name) {
            return Some(*site);
        }
        if self.wildcard_labels_max == 0 || name.first() == Some(&b'[') {
            return None;
        }
        let labels = name.split(|&b| b == b'.').count();
        let dots = name.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| at);
        // The star replaces at least one label. Suffixes longer than the longest wildcard are skipped.
        let skipped = labels.saturating_sub(self.wildcard_labels_max + 1);
        dots.skip(skipped).filter(|&at| at > 0).find_map(|at| self.wildcards.get(&name[at + 1..])).copied()
    }
}

/// Finds the name of a site by which a host is one of the site.
pub(super) fn matching_name<'n>(names: &'n [HostName], host: Option<&[u8]>) -> Option<&'n HostName> {
    let mut index = HostIndex::default();
    for (number, name) in (0..).zip(names) {
        // The names of a site differ.
        let _ = index.add(name, number);
    }
    index.find(host).map(|number| &names[number as usize])
}

/// A buffer for a name in normal form: lower case, without the trailing dot, and an IPv6 address as in RFC
/// 5952.
struct NormalizedName {
    bytes: [u8; NAME_BYTES_MAX],
}

impl Default for NormalizedName {
    fn default() -> Self {
        Self { bytes: [0; NAME_BYTES_MAX] }
    }
}

impl NormalizedName {
    fn normalize(&mut self, name: &[u8]) -> Option<&[u8]> {
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
    use selvedge::proto::target::Host;

    fn hosts(names: &[&str]) -> HostIndex {
        let mut hosts = HostIndex::default();
        for (site, name) in names.iter().enumerate() {
            hosts.add(&name.parse().unwrap(), site as u32).unwrap();
        }
        hosts
    }

    fn find(hosts: &HostIndex, host: &str) -> Option<u32> {
        hosts.find(Some(Host::parse(host.as_bytes()).unwrap().name))
    }

    #[test]
    fn most_specific_name_wins() {
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
    fn star_matches_all_other_names() {
        let hosts = hosts(&["*", "a"]);
        assert_eq!((find(&hosts, "a"), find(&hosts, "b"), find(&hosts, "[::1]")), (Some(1), Some(0), Some(0)));
        assert_eq!((hosts.find(None), find(&hosts, &"a".repeat(300))), (Some(0), Some(0)));
        let mut hosts = hosts;
        assert_eq!(hosts.add(&HostName::Any, 7), Err(0));
        assert_eq!(hosts.add(&"A.".parse().unwrap(), 8), Err(1));
    }

    #[test]
    fn ten_thousand_names_are_distinct() {
        let names: Vec<String> = (0..10_000).map(|number| format!("site-{number}.example.com")).collect();
        let many = hosts(&names.iter().map(|name| &**name).collect::<Vec<_>>());
        for (number, name) in (0..).zip(&names) {
            assert_eq!(find(&many, name), Some(number), "{name}");
        }
        assert_eq!(find(&many, "site-10000.example.com"), None);
    }
}
