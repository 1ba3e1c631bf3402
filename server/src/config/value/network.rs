//! Networks of clients.

use super::ValueError;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and the number of its leading bits that count.
///
/// Invariant: the other bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network {
    pub(crate) address: IpAddr,
    pub(crate) bits: u8,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

pub(super) fn read(text: &str) -> Result<Network, ValueError> {
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
    let network = Network { address: without_host_bits(address, bits), bits };
    if network.address == address {
        Ok(network)
    } else {
        let instead = format!("write \"{network}\", or \"{address}\" for this single address");
        Err(ValueError::new(format!("`{text}` has bits set after the first {bits}"), instead))
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
