//! IP networks of clients.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// The length of the prefix of IPv4-mapped IPv6 addresses (RFC 4291 §2.5.5.2).
const MAPPED_PREFIX_BITS: u8 = 96;

/// Why a text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkError {
    /// The address is invalid.
    Address,
    /// The prefix length is not a number, or exceeds the length of the address.
    Prefix,
    /// The address has bits set beyond the prefix, so one of the two is a mistake.
    HostBits,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => {
                "a network is an address, or an address, a slash and its prefix length, as in 192.0.2.0/24"
            }
            Self::Prefix => "a prefix has at most 32 bits for IPv4 and 128 bits for IPv6",
            Self::HostBits => "the address has bits beyond the prefix: clear them or lengthen the prefix",
        })
    }
}

impl std::error::Error for NetworkError {}

impl Network {
    /// Creates the network of the addresses that share their first `prefix_bits` with `address`.
    pub(crate) fn new(address: IpAddr, prefix_bits: u8) -> Result<Self, NetworkError> {
        let width = if address.is_ipv4() { 32 } else { 128 };
        if prefix_bits > width {
            return Err(NetworkError::Prefix);
        }
        if bits(address) & host_mask(width, prefix_bits) != 0 {
            return Err(NetworkError::HostBits);
        }
        // Clients are identified by their IPv4 address, also on an IPv6 socket.
        match address.to_canonical() {
            canonical @ IpAddr::V4(_) if prefix_bits >= MAPPED_PREFIX_BITS && address.is_ipv6() => {
                Ok(Self { address: canonical, prefix_bits: prefix_bits - MAPPED_PREFIX_BITS })
            }
            _ => Ok(Self { address, prefix_bits }),
        }
    }

    /// Whether an address is in the network. An IPv4-mapped IPv6 address counts as IPv4. The unspecified
    /// address is in no network.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_ipv4() != self.address.is_ipv4() || address.is_unspecified() {
            return false;
        }
        let width = if address.is_ipv4() { 32 } else { 128 };
        bits(address) & !host_mask(width, self.prefix_bits) == bits(self.address)
    }
}

/// Parses a network. An address without a prefix length is a network of one address.
impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix_bits) = text.split_once('/').map_or((text, None), |(a, bits)| (a, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::Address)?;
        let prefix_bits = match prefix_bits {
            Some(bits) => bits.parse().map_err(|_| NetworkError::Prefix)?,
            None if address.is_ipv4() => 32,
            None => 128,
        };
        Self::new(address, prefix_bits)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn host_mask(width: u8, prefix_bits: u8) -> u128 {
    1u128.checked_shl(u32::from(width - prefix_bits)).map_or(u128::MAX, |bit| bit - 1)
}

/// Whether an address is in one of the networks.
pub(super) fn any_contains(networks: &[Network], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(address))
}

/// Returns the key that identifies a client: its IPv4 address, or its IPv6 /64, of which one client usually has
/// all addresses.
pub(super) fn client_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
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
    fn invalid_networks() {
        for (text, error) in [
            ("", NetworkError::Address),
            ("localhost", NetworkError::Address),
            ("10.0.0.0/33", NetworkError::Prefix),
            ("::/129", NetworkError::Prefix),
            ("10.0.0.0/x", NetworkError::Prefix),
            ("10.0.0.1/8", NetworkError::HostBits),
            ("2001:db8::1/64", NetworkError::HostBits),
        ] {
            assert_eq!(text.parse::<Network>(), Err(error), "{text}");
        }
    }

    #[test]
    fn ipv6_subnet_counts_as_one_client() {
        let key = |text: &str| client_key(text.parse().unwrap());
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:1"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
    }
}
