//! Who asks, when a proxy in front speaks for others.
//!
//! Every proxy adds the address that it was asked from at the right. So the list is read from
//! the right, and only as far as trusted proxies have written it: what an untrusted client
//! wrote into it never counts.

use super::network::{Network, any_contains};
use selvedge::Request;
use selvedge::proto::field::trim;
use selvedge::service::UNIX_PEER;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The proxies that are believed, and where they say for whom they speak.
#[derive(Clone, Debug)]
pub(crate) struct TrustedProxies {
    /// Where they are.
    pub(crate) networks: Vec<Network>,
    /// Whether whoever connects over a Unix socket is one.
    pub(crate) unix: UnixPeers,
    /// What they write.
    pub(crate) field: ForwardingField,
}

/// What becomes of the word of whoever connects over a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnixPeers {
    Trusted,
    Strangers,
}

/// Where a proxy says for whom it speaks. One of the two counts: a proxy that writes one
/// passes the other on as the client wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardingField {
    /// `X-Forwarded-For: 192.0.2.1, 198.51.100.2`
    XForwardedFor,
    /// `Forwarded: for=192.0.2.1;proto=https` (RFC 7239)
    Forwarded,
}

/// The client of a request whose proxy has written something that is no address. It is in no
/// [`Network`]: were the proxy taken for the client, a rule that lets the proxy in would let in
/// whoever gets it to write such a thing.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Proxies in a row that are believed. A longer way is a loop.
const HOPS_MAX: usize = 32;

impl TrustedProxies {
    /// The client that a request is from.
    pub(super) fn client_of(&self, request: &Request) -> IpAddr {
        let peer = request.peer().ip().to_canonical();
        let is_trusted = match request.peer() {
            UNIX_PEER => self.unix == UnixPeers::Trusted,
            _ => any_contains(&self.networks, peer),
        };
        if !is_trusted {
            return peer;
        }
        let name = match self.field {
            ForwardingField::XForwardedFor => "x-forwarded-for",
            ForwardingField::Forwarded => "forwarded",
        };
        let lines: Vec<&[u8]> = request
            .fields()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
            .collect();
        self.client_behind(peer, &lines)
    }

    /// The first address from the right that is no trusted proxy; where a proxy said something
    /// else than an address, nobody.
    fn client_behind(&self, peer: IpAddr, lines: &[&[u8]]) -> IpAddr {
        let mut client = peer;
        let members = lines.iter().rev().flat_map(|line| FromRight { rest: Some(line) });
        for member in members.filter(|member| !member.is_empty()).take(HOPS_MAX) {
            let address = match self.field {
                ForwardingField::XForwardedFor => node(member),
                ForwardingField::Forwarded => for_of(member).and_then(node),
            };
            let Some(address) = address else { return NOBODY };
            client = address;
            if !any_contains(&self.networks, client) {
                return client;
            }
        }
        client
    }
}

/// The members of a list, the last one first.
///
/// Quotes are paired from the right, too: an unfinished quotation that a client wrote cannot
/// swallow what a proxy has added behind it.
struct FromRight<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for FromRight<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (before, member) = split_last(rest, b',');
        self.rest = before;
        Some(trim(member))
    }
}

/// What stands behind the last separator that is in no quotation, and what stands before it.
fn split_last(text: &[u8], separator: u8) -> (Option<&[u8]>, &[u8]) {
    let mut is_quoted = false;
    let at = (0..text.len()).rev().find(|&at| {
        is_quoted ^= text[at] == b'"' && !is_escaped(&text[..at]);
        text[at] == separator && !is_quoted
    });
    at.map_or((None, text), |at| (Some(&text[..at]), &text[at + 1..]))
}

/// Whether what comes behind this has a backslash of its own. To be asked of quotes alone: a run of
/// backslashes is counted once, however long it is.
fn is_escaped(before: &[u8]) -> bool {
    !before.iter().rev().take_while(|&&b| b == b'\\').count().is_multiple_of(2)
}

/// The value of `for` in one element of Forwarded (RFC 7239 §4). Twice is never.
fn for_of(element: &[u8]) -> Option<&[u8]> {
    let (mut rest, mut found) = (Some(element), None);
    while let Some(text) = rest {
        let (before, pair) = split_last(text, b';');
        rest = before;
        let Some(at) = pair.iter().position(|&b| b == b'=') else { continue };
        if trim(&pair[..at]).eq_ignore_ascii_case(b"for") {
            let value = trim(&pair[at + 1..]);
            let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            if found.replace(unquoted.unwrap_or(value)).is_some() {
                return None;
            }
        }
    }
    found
}

/// An address, with or without a port and brackets. `unknown` and made-up names are none.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bracketed {
        Some(address) => IpAddr::V6(address.parse().ok()?),
        None => text.parse().or_else(|_| text.parse::<SocketAddr>().map(|socket| socket.ip())).ok()?,
    };
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(field: ForwardingField, peer: &str, lines: &[&str]) -> String {
        let networks = ["10.0.0.0/8", "2001:db8:f::/48"].map(|text| text.parse().unwrap()).to_vec();
        let proxies = TrustedProxies { networks, unix: UnixPeers::Strangers, field };
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        proxies.client_behind(peer.parse().unwrap(), &lines).to_string()
    }

    #[test]
    fn x_forwarded_for() {
        for (lines, expected) in [
            (&[][..], "10.0.0.1"),
            (&[""], "10.0.0.1"),
            (&["192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1:4711"], "192.0.2.1"),
            (&["2001:db8::7"], "2001:db8::7"),
            (&["[2001:db8::7]:80"], "2001:db8::7"),
            (&["[2001:db8::7]"], "2001:db8::7"),
            (&["::ffff:192.0.2.1"], "192.0.2.1"),
            (&["192.0.2.1, 10.0.0.2"], "192.0.2.1"),
            (&["192.0.2.1", "10.0.0.2"], "192.0.2.1"),
            (&["192.0.2.1,, 10.0.0.2 ,"], "192.0.2.1"),
            // What the client made up stands to the left of what is known of it.
            (&["1.1.1.1, 192.0.2.1"], "192.0.2.1"),
            (&["1.1.1.1", "192.0.2.1, 10.0.0.9"], "192.0.2.1"),
            (&["10.0.0.3, 192.0.2.1"], "192.0.2.1"),
            (&["\", 192.0.2.1"], "192.0.2.1"),
            // All of them are proxies: the first one asked for itself.
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Who the client is was not said, and what stands to the left of that counts for nothing.
            (&["192.0.2.1, unknown"], "0.0.0.0"),
            (&["192.0.2.1, unknown, 10.0.0.2"], "0.0.0.0"),
            (&["192.0.2.1, localhost"], "0.0.0.0"),
            (&["unknown, 192.0.2.1"], "192.0.2.1"),
        ] {
            assert_eq!(client(ForwardingField::XForwardedFor, "10.0.0.1", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn forwarded() {
        for (lines, expected) in [
            (&[][..], "2001:db8:f::1"),
            (&["for=192.0.2.1"], "192.0.2.1"),
            (&["For=192.0.2.1;proto=https;by=203.0.113.43"], "192.0.2.1"),
            (&["proto=https; for=\"[2001:db8:cafe::17]:4711\""], "2001:db8:cafe::17"),
            (&["for=\"192.0.2.1:80\""], "192.0.2.1"),
            (&["for=1.1.1.1, for=192.0.2.1, for=10.0.0.1"], "192.0.2.1"),
            // An unfinished quotation swallows nothing.
            (&["for=\"1.1.1.1, for=192.0.2.1"], "192.0.2.1"),
            (&["for=\"1.1.1.1", "for=192.0.2.1"], "192.0.2.1"),
            (&["for=1.1.1.1;host=\"a,for=2.2.2.2\""], "1.1.1.1"),
            // What a proxy has quoted of the request is a quotation, wherever it stands.
            (&["host=\"a;for=2.2.2.2\";for=192.0.2.1"], "192.0.2.1"),
            (&["for=1.1.1.1, for=192.0.2.1;host=\"a\\\"b\""], "192.0.2.1"),
            (&["for=1.1.1.1;x=\"\\, for=192.0.2.1"], "192.0.2.1"),
            (&["for=1.1.1.1;for=192.0.2.1"], "0.0.0.0"),
            (&["for=_hidden"], "0.0.0.0"),
            (&["for=unknown"], "0.0.0.0"),
            (&["192.0.2.1"], "0.0.0.0"),
            (&["proto=https"], "0.0.0.0"),
        ] {
            assert_eq!(client(ForwardingField::Forwarded, "2001:db8:f::1", lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_loop_has_an_end() {
        let line = "10.0.0.1,".repeat(1000);
        assert_eq!(client(ForwardingField::XForwardedFor, "10.0.0.2", &["1.1.1.1", &line]), "10.0.0.1");
    }
}
