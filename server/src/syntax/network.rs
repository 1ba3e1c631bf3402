//! Networks of clients.

use super::ValueError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and the number of its leading bits that count.
///
/// Invariant: the other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    address: IpAddr,
    bits: u8,
}

/// The length of the prefix of IPv4-mapped IPv6 addresses (RFC 4291 §2.5.5.2).
const MAPPED_PREFIX_BITS: u8 = 96;

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Network {
    /// Whether an address is in the network. An IPv4-mapped IPv6 address counts as IPv4, since clients are identified
    /// by their IPv4 address, also on an IPv6 socket. The unspecified address is in no network.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let (own, bits) = self.canonical();
        let address = address.to_canonical();
        address.is_ipv4() == own.is_ipv4() && !address.is_unspecified() && without_host_bits(address, bits) == own
    }

    /// Returns the address and its bits that count, as IPv4 if the network has IPv4-mapped addresses only.
    fn canonical(&self) -> (IpAddr, u8) {
        match self.address.to_canonical() {
            v4 @ IpAddr::V4(_) if self.address.is_ipv6() && self.bits >= MAPPED_PREFIX_BITS => {
                (v4, self.bits - MAPPED_PREFIX_BITS)
            }
            _ => (self.address, self.bits),
        }
    }

    /// Returns the first and the last address as the leading bits of a number.
    fn range(&self) -> (u128, u128) {
        let (first, bits) = match self.canonical() {
            (IpAddr::V4(address), bits) => (u128::from(address.to_bits()) << 96, bits),
            (IpAddr::V6(address), bits) => (address.to_bits(), bits),
        };
        (first, first | u128::MAX.checked_shr(bits.into()).unwrap_or(0))
    }
}

/// Whether each IPv4 address, or each IPv6 address, is in one of these networks.
pub(crate) fn contain_all_of_a_version<'n>(networks: impl Iterator<Item = &'n Network> + Clone) -> bool {
    let contain_all = |is_ipv4| {
        let of_version = networks.clone().filter(|network| network.canonical().0.is_ipv4() == is_ipv4);
        let mut ranges: Vec<_> = of_version.map(Network::range).collect();
        ranges.sort_unstable();
        // The first address that none of the networks so far contains; `None` after the last address.
        let mut missing = Some(0);
        for (first, last) in ranges {
            missing = match missing {
                Some(address) if first <= address && last >= address => last.checked_add(1),
                other => other,
            };
        }
        missing.is_none()
    };
    contain_all(true) || contain_all(false)
}

/// Parses a network. An address without a prefix length is a network of one address.
impl FromStr for Network {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let example = "write, for example, \"10.0.0.0/8\", \"192.0.2.7\" or \"2001:db8::/32\"";
        if text == "all" {
            return Err(ValueError::new("`all` is not a network", "write \"0.0.0.0/0\" \"::/0\""));
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err(ValueError::new(format!("`{text}` is neither a network nor an address"), example));
        };
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits.map(str::parse::<u8>) {
            None => bits_max,
            Some(Ok(bits)) if bits <= bits_max => bits,
            Some(_) => {
                return Err(ValueError::new(
                    "this is not a prefix length",
                    format!("the number after the slash is 0 to {bits_max}"),
                ));
            }
        };
        let network = Self { address: without_host_bits(address, bits), bits };
        if network.address == address {
            Ok(network)
        } else {
            let instead = format!("write \"{network}\", or \"{address}\" for this single address");
            Err(ValueError::new(format!("`{text}` has bits set after the first {bits}"), instead))
        }
    }
}

fn without_host_bits(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "::10.1.2.3", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("0.0.0.0/0", "0.0.0.0", false),
            ("::/0", "::", false),
            ("::/0", "2001:db8::1", true),
            ("::/0", "1.2.3.4", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("2001:db8::/33", "2001:db8:7fff::1", true),
            ("2001:db8::/33", "2001:db8:8000::1", false),
            ("::1", "::1", true),
            // As an IPv6 socket reports IPv4 addresses.
            ("::ffff:192.0.2.7", "192.0.2.7", true),
            ("::ffff:192.0.2.7", "::ffff:192.0.2.7", true),
            ("::ffff:192.0.2.7", "192.0.2.8", false),
            ("::ffff:10.0.0.0/104", "10.1.2.3", true),
            ("::ffff:10.0.0.0/104", "11.1.2.3", false),
            ("::ffff:0.0.0.0/96", "1.2.3.4", true),
            ("::ffff:0.0.0.0/96", "2001:db8::1", false),
        ] {
            let network: Network = network.parse().unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{network:?} {address}");
        }
    }

    #[test]
    fn networks_contain_all_addresses_of_a_version_together() {
        for (networks, expected) in [
            ("", false),
            ("0.0.0.0/0", true),
            ("10.0.0.0/8 ::/0", true),
            ("128.0.0.0/1 10.0.0.0/8 0.0.0.0/1", true),
            ("::ffff:0.0.0.0/96", true),
            ("::/1 8000::/1 9000::/4", true),
            ("0.0.0.0/1 128.0.0.0/2 192.0.0.0/3", false),
            ("0.0.0.0/1 8000::/1", false),
            ("1.0.0.0/8 128.0.0.0/1", false),
            ("8000::/1", false),
        ] {
            let networks: Vec<Network> = networks.split_whitespace().map(|text| text.parse().unwrap()).collect();
            assert_eq!(contain_all_of_a_version(networks.iter()), expected, "{networks:?}");
        }
    }

    #[test]
    fn invalid_networks() {
        for (text, error) in [
            ("", "neither a network nor an address"),
            ("localhost", "neither a network nor an address"),
            ("10.0.0.0/33", "not a prefix length"),
            ("::/129", "not a prefix length"),
            ("10.0.0.0/x", "not a prefix length"),
            ("10.0.0.1/8", "has bits set after the first"),
            ("2001:db8::1/64", "has bits set after the first"),
        ] {
            let message = text.parse::<Network>().unwrap_err().message;
            assert!(message.contains(error), "{text}: {message}");
        }
    }
}
