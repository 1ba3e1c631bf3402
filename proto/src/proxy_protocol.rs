//! The PROXY protocol, versions 1 and 2: the header with which a proxy names the client of a connection.
//!
//! The parser is strict, because the address decides who may do what: a header that is not exactly of one version is
//! refused. Its length is bounded ([`HEADER_BYTES_MAX`]). Source: The PROXY protocol, HAProxy Technologies.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

/// Longest header that is accepted, in bytes. Version 1 has at most 107. Version 2 may carry further facts, such as the
/// names of a TLS handshake, which are checked and otherwise ignored.
pub const HEADER_BYTES_MAX: usize = 2048;

/// Longest line of version 1, with its CRLF (§2.1).
const LINE_BYTES_MAX: usize = 107;
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before the addresses.
const FIXED_BYTES: usize = 16;
const LINE_START: &[u8] = b"PROXY ";
const TYPE_CRC32C: u8 = 3;

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedPeer {
    /// The proxy itself, as in a health check, or a client whose address the proxy does not know. The address of the
    /// connection counts.
    Unknown,
    /// A client.
    Client {
        /// Its address.
        source: SocketAddr,
        /// The address that it connected to.
        destination: SocketAddr,
    },
}

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client.
    pub peer: ProxiedPeer,
    /// The number of bytes of the header.
    pub len: usize,
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedProxyHeader {
    /// The connection begins with other bytes.
    Missing,
    /// The header is longer than [`HEADER_BYTES_MAX`], or a line longer than 107 bytes.
    TooLong,
    /// The line is not one of version 1.
    Line,
    /// An address or a port of the line is invalid.
    Address,
    /// The version or command of version 2 is unknown.
    Command,
    /// The family or transport of version 2 is unknown, or not one of TCP.
    Family,
    /// The length of version 2 contradicts its content.
    Length,
    /// The checksum of version 2 is wrong.
    Checksum,
}

impl MalformedProxyHeader {
    /// Returns one sentence that states the reason.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Missing => "the connection does not begin with a header of the PROXY protocol",
            Self::TooLong => "the header of the PROXY protocol is too long",
            Self::Line => "the line of the PROXY protocol is malformed",
            Self::Address => "an address in the header of the PROXY protocol is invalid",
            Self::Command => "the version or command of the PROXY protocol is unknown",
            Self::Family => "the address family of the PROXY protocol is not one of TCP",
            Self::Length => "the lengths in the header of the PROXY protocol contradict each other",
            Self::Checksum => "the checksum of the PROXY protocol is wrong",
        }
    }
}

impl fmt::Display for MalformedProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for MalformedProxyHeader {}

/// Parses the header at the start of a connection; `None` if more bytes are needed.
///
/// # Errors
/// If the bytes are not the start of a header.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let begins = |expected: &[u8]| {
        let count = bytes.len().min(expected.len());
        bytes[..count] == expected[..count]
    };
    match bytes {
        [] => Ok(None),
        _ if begins(LINE_START) => parse_line(bytes),
        _ if begins(&SIGNATURE) => parse_binary(bytes),
        _ => Err(MalformedProxyHeader::Missing),
    }
}

/// Parses version 1.
fn parse_line(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    let Some(end) = bytes.iter().take(LINE_BYTES_MAX).position(|&b| b == b'\n') else {
        return if bytes.len() >= LINE_BYTES_MAX { Err(MalformedProxyHeader::TooLong) } else { Ok(None) };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(MalformedProxyHeader::Line)?;
    let line = core::str::from_utf8(line).map_err(|_| MalformedProxyHeader::Line)?;
    let mut words = line.split(' ').skip(1);
    let family = words.next().unwrap_or_default();
    let peer = match family {
        // The rest of the line is for other receivers.
        "UNKNOWN" if !line.contains('\r') => ProxiedPeer::Unknown,
        "TCP4" => client(&mut words, parse_address::<Ipv4Addr>)?,
        "TCP6" => client(&mut words, parse_address::<Ipv6Addr>)?,
        _ => return Err(MalformedProxyHeader::Line),
    };
    if family != "UNKNOWN" && words.next().is_some() {
        return Err(MalformedProxyHeader::Line);
    }
    Ok(Some(ProxyHeader { peer, len: end + 1 }))
}

fn client<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    parse: fn(&str) -> Option<IpAddr>,
) -> Result<ProxiedPeer, MalformedProxyHeader> {
    let mut next = || words.next().ok_or(MalformedProxyHeader::Line);
    let (source, destination) = (next()?, next()?);
    let (source_port, destination_port) = (next()?, next()?);
    let address = |text, port| Some(SocketAddr::new(parse(text)?, parse_port(port)?));
    let source = address(source, source_port).ok_or(MalformedProxyHeader::Address)?;
    let destination = address(destination, destination_port).ok_or(MalformedProxyHeader::Address)?;
    Ok(ProxiedPeer::Client { source, destination })
}

fn parse_address<A: FromStr + Into<IpAddr>>(text: &str) -> Option<IpAddr> {
    text.parse::<A>().ok().map(Into::into)
}

fn parse_port(text: &str) -> Option<u16> {
    let is_canonical = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_canonical)
}

/// Parses version 2.
fn parse_binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, MalformedProxyHeader> {
    const PROXY: u8 = 0x21;
    const LOCAL: u8 = 0x20;
    match bytes.get(SIGNATURE.len()) {
        None => return Ok(None),
        Some(&(PROXY | LOCAL)) => {}
        Some(_) => return Err(MalformedProxyHeader::Command),
    }
    let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
    let (command, family) = (fixed[12], fixed[13]);
    let len = FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if len > HEADER_BYTES_MAX {
        return Err(MalformedProxyHeader::TooLong);
    }
    let Some(header) = bytes.get(..len) else { return Ok(None) };
    let payload = &header[FIXED_BYTES..];
    let (peer, address_bytes) = match (command, family) {
        // The sender of its own connection may leave any family, and its addresses do not count.
        (LOCAL, 0x00 | 0x11 | 0x21 | 0x31) => return Ok(Some(ProxyHeader { peer: ProxiedPeer::Unknown, len })),
        (PROXY, 0x00) => return Ok(Some(ProxyHeader { peer: ProxiedPeer::Unknown, len })),
        (PROXY, 0x11) => (binary_client::<4, 12>(payload)?, 12),
        (PROXY, 0x21) => (binary_client::<16, 36>(payload)?, 36),
        // Two paths of Unix sockets. Such a client has no address.
        (PROXY, 0x31) if payload.len() >= 216 => (ProxiedPeer::Unknown, 216),
        (PROXY, 0x31) => return Err(MalformedProxyHeader::Length),
        _ => return Err(MalformedProxyHeader::Family),
    };
    check_extensions(header, FIXED_BYTES + address_bytes)?;
    Ok(Some(ProxyHeader { peer, len }))
}

/// Reads two addresses of `N` bytes and two ports, together `TOTAL` bytes.
fn binary_client<const N: usize, const TOTAL: usize>(payload: &[u8]) -> Result<ProxiedPeer, MalformedProxyHeader>
where
    [u8; N]: Into<IpAddr>,
{
    let all = payload.first_chunk::<TOTAL>().ok_or(MalformedProxyHeader::Length)?;
    let address = |at: usize, port_at: usize| {
        let bytes: [u8; N] = all[at..at + N].try_into().expect("the length is N");
        SocketAddr::new(bytes.into(), u16::from_be_bytes([all[port_at], all[port_at + 1]]))
    };
    Ok(ProxiedPeer::Client { source: address(0, 2 * N), destination: address(N, 2 * N + 2) })
}

/// Checks the lengths of the extensions from `at` to the end, and the checksum if it is one of them.
fn check_extensions(header: &[u8], mut at: usize) -> Result<(), MalformedProxyHeader> {
    while at < header.len() {
        let &[kind, high, low] = header[at..].first_chunk::<3>().ok_or(MalformedProxyHeader::Length)?;
        let (start, length) = (at + 3, usize::from(u16::from_be_bytes([high, low])));
        let value = header.get(start..start + length).ok_or(MalformedProxyHeader::Length)?;
        if kind == TYPE_CRC32C {
            let expected = u32::from_be_bytes(value.try_into().map_err(|_| MalformedProxyHeader::Length)?);
            // The checksum is made over the header with zeros in its place.
            let bytes = header.iter().enumerate().map(|(index, &byte)| {
                let is_checksum = (start..start + length).contains(&index);
                if is_checksum { 0 } else { byte }
            });
            if crc32c(bytes) != expected {
                return Err(MalformedProxyHeader::Checksum);
            }
        }
        at = start + length;
    }
    Ok(())
}

/// The cyclic redundancy check of RFC 9260, Appendix A.
fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(byte), step))
}

/// The version of a header that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Appends the header for a client.
pub fn write(version: ProxyVersion, peer: ProxiedPeer, out: &mut Vec<u8>) {
    let (source, destination) = match peer {
        ProxiedPeer::Client { source, destination } => same_family(source, destination),
        ProxiedPeer::Unknown => {
            match version {
                ProxyVersion::V1 => out.extend_from_slice(b"PROXY UNKNOWN\r\n"),
                ProxyVersion::V2 => {
                    out.extend_from_slice(&SIGNATURE);
                    out.extend_from_slice(&[0x20, 0, 0, 0]);
                }
            }
            return;
        }
    };
    let is_v4 = source.is_ipv4();
    if version == ProxyVersion::V1 {
        let family = if is_v4 { "TCP4" } else { "TCP6" };
        let (from, to) = (source.ip(), destination.ip());
        let line = format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
        out.extend_from_slice(line.as_bytes());
        return;
    }
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(if is_v4 { &[0x21, 0x11, 0, 12] } else { &[0x21, 0x21, 0, 36] });
    for address in [source, destination] {
        match address.ip() {
            IpAddr::V4(address) => out.extend_from_slice(&u32::from(address).to_be_bytes()),
            IpAddr::V6(address) => out.extend_from_slice(&u128::from(address).to_be_bytes()),
        }
    }
    for address in [source, destination] {
        out.extend_from_slice(&address.port().to_be_bytes());
    }
}

/// Returns both addresses in one family: that of IPv4 if both are of it, also in the form for IPv6.
fn same_family(source: SocketAddr, destination: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (source, destination) = (canonical(source), canonical(destination));
    let mapped = |address: SocketAddr| match address.ip() {
        IpAddr::V4(v4) => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    };
    match source.is_ipv4() == destination.is_ipv4() {
        true => (source, destination),
        false => (mapped(source), mapped(destination)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a header with bytes of the client after it, whole and as each prefix of it.
    fn check(bytes: &[u8], expected: Result<ProxiedPeer, MalformedProxyHeader>) {
        let with_rest = [bytes, b"GET / HTTP/1.1\r\n"].concat();
        match expected {
            Ok(peer) => {
                assert_eq!(
                    parse(&with_rest),
                    Ok(Some(ProxyHeader { peer, len: bytes.len() })),
                    "{}",
                    bytes.escape_ascii()
                );
                for end in 0..bytes.len() {
                    assert_eq!(parse(&bytes[..end]), Ok(None), "{} up to {end}", bytes.escape_ascii());
                }
            }
            Err(error) => {
                assert_eq!(parse(bytes), Err(error), "{}", bytes.escape_ascii());
                // A prefix is refused for this reason, or needs more bytes.
                for end in 0..bytes.len() {
                    let parsed = parse(&bytes[..end]);
                    assert!(parsed == Ok(None) || parsed == Err(error), "{} up to {end}", bytes.escape_ascii());
                }
            }
        }
    }

    fn client(source: &str, destination: &str) -> ProxiedPeer {
        ProxiedPeer::Client { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    fn binary(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend_from_slice(&[command, family]);
        bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x30, 0x39, 0, 80];

    #[test]
    fn lines() {
        use MalformedProxyHeader as M;
        let v4 = client("192.0.2.1:12345", "198.51.100.2:80");
        for (line, expected) in [
            ("PROXY TCP4 192.0.2.1 198.51.100.2 12345 80\r\n", Ok(v4)),
            ("PROXY TCP6 2001:db8::1 ::1 65535 0\r\n", Ok(client("[2001:db8::1]:65535", "[::1]:0"))),
            ("PROXY UNKNOWN\r\n", Ok(ProxiedPeer::Unknown)),
            ("PROXY UNKNOWN any thing else\r\n", Ok(ProxiedPeer::Unknown)),
            ("GET / HTTP/1.1\r\n", Err(M::Missing)),
            ("proxy TCP4 192.0.2.1 198.51.100.2 1 2\r\n", Err(M::Missing)),
            ("PROXY\tTCP4 192.0.2.1 198.51.100.2 1 2\r\n", Err(M::Missing)),
            ("PROXY  TCP4 192.0.2.1 198.51.100.2 1 2\r\n", Err(M::Line)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n", Err(M::Line)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n", Err(M::Line)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n", Err(M::Line)),
            ("PROXY TCP4 192.0.2.1  198.51.100.2 1 2\r\n", Err(M::Address)),
            ("PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n", Err(M::Line)),
            ("PROXY \r\n", Err(M::Line)),
            ("PROXY UNKNOWN\r\r\n", Err(M::Line)),
            ("PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n", Err(M::Address)),
            ("PROXY TCP4 ::1 198.51.100.2 1 2\r\n", Err(M::Address)),
            ("PROXY TCP6 192.0.2.1 ::1 1 2\r\n", Err(M::Address)),
            ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", Err(M::Address)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n", Err(M::Address)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n", Err(M::Address)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n", Err(M::Address)),
            ("PROXY TCP4 192.0.2.1 198.51.100.2 -1 2\r\n", Err(M::Address)),
        ] {
            check(line.as_bytes(), expected);
        }
        let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(LINE_BYTES_MAX - 16));
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        check(longest.as_bytes(), Ok(ProxiedPeer::Unknown));
        check(longest.replacen('x', "xx", 1).as_bytes(), Err(M::TooLong));
    }

    #[test]
    fn binary_headers() {
        use MalformedProxyHeader as M;
        let v4 = client("192.0.2.1:12345", "198.51.100.2:80");
        check(&binary(0x21, 0x11, &V4), Ok(v4));
        let extension = [&V4[..], &[0x04, 0, 2, 1, 2], &[0x20, 0, 0]].concat();
        check(&binary(0x21, 0x11, &extension), Ok(v4));
        let mut v6 = [0; 36];
        (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 7, 8);
        check(&binary(0x21, 0x21, &v6), Ok(client("[::1]:7", "[::2]:8")));
        check(&binary(0x20, 0x00, b""), Ok(ProxiedPeer::Unknown));
        check(&binary(0x20, 0x11, b"anything"), Ok(ProxiedPeer::Unknown));
        check(&binary(0x21, 0x00, b"anything"), Ok(ProxiedPeer::Unknown));
        check(&binary(0x21, 0x31, &[0; 216]), Ok(ProxiedPeer::Unknown));
        check(&binary(0x21, 0x31, &[0; 215]), Err(M::Length));
        check(&binary(0x22, 0x11, &V4), Err(M::Command));
        check(&binary(0x11, 0x11, &V4), Err(M::Command));
        for family in [0x12, 0x22, 0x32, 0x01, 0x10, 0x41, 0xff] {
            check(&binary(0x21, family, &V4), Err(M::Family));
        }
        check(&binary(0x21, 0x11, &V4[..11]), Err(M::Length));
        check(&binary(0x21, 0x21, &V4), Err(M::Length));
        for extension in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0, 2, 1], &[TYPE_CRC32C, 0, 3, 1, 2, 3]] {
            check(&binary(0x21, 0x11, &[&V4[..], extension].concat()), Err(M::Length));
        }
        check(&binary(0x21, 0x11, &vec![0; HEADER_BYTES_MAX - FIXED_BYTES + 1]), Err(M::TooLong));
        check(b"\r\n\r\n\0\r\nQUIX", Err(M::Missing));
    }

    #[test]
    fn a_checksum_is_verified() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789".iter().copied()), 0xe306_9283);
        let payload = [&V4[..], &[TYPE_CRC32C, 0, 4, 0, 0, 0, 0]].concat();
        let mut header = binary(0x21, 0x11, &payload);
        let (at, sum) = (header.len() - 4, crc32c(header.iter().copied()));
        header[at..].copy_from_slice(&sum.to_be_bytes());
        check(&header, Ok(client("192.0.2.1:12345", "198.51.100.2:80")));
        header[at] ^= 1;
        check(&header, Err(MalformedProxyHeader::Checksum));
    }

    #[test]
    fn written_headers_are_parsed() {
        for (source, destination, expected) in [
            ("192.0.2.1:1", "198.51.100.2:65535", None),
            ("[2001:db8::1]:1", "[2001:db8::2]:2", None),
            ("[::ffff:192.0.2.1]:1", "198.51.100.2:2", Some(("192.0.2.1:1", "198.51.100.2:2"))),
            ("192.0.2.1:1", "[2001:db8::2]:2", Some(("[::ffff:192.0.2.1]:1", "[2001:db8::2]:2"))),
        ] {
            let (from, to) = expected.unwrap_or((source, destination));
            for version in [ProxyVersion::V1, ProxyVersion::V2] {
                let mut out = Vec::new();
                write(version, client(source, destination), &mut out);
                check(&out, Ok(client(from, to)));
                out.clear();
                write(version, ProxiedPeer::Unknown, &mut out);
                check(&out, Ok(ProxiedPeer::Unknown));
            }
        }
    }
}
