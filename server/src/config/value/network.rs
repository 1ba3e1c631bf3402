//! Networks of clients.

use super::Wrong;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and how many of its leading bits count.
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

pub(super) fn read(text: &str) -> Result<Network, Wrong> {
    let example = "as in \"10.0.0.0/8\", \"192.0.2.7\" or \"2001:db8::/32\"";
    if text == "all" {
        return Err(Wrong::new("`all` is no network", "write \"0.0.0.0/0\" \"::/0\""));
    }
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(Wrong::new(format!("`{text}` is no network and no address"), example));
    };
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits.map(str::parse::<u8>) {
        None => bits_max,
        Some(Ok(bits)) if bits <= bits_max => bits,
        Some(_) => {
            return Err(Wrong::new("this is no number of bits", format!("behind the slash it may be 0 to {bits_max}")));
        }
    };
    let network = Network { address: without_host_bits(address, bits), bits };
    if network.address == address {
        Ok(network)
    } else {
        let instead = format!("write \"{network}\", or \"{address}\" for the one address");
        Err(Wrong::new(format!("`{text}` has bits beyond the first {bits}"), instead))
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
