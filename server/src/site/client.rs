//! Finds the client of a request behind trusted proxies.
//!
//! Every proxy appends the address of its peer to the list. So the list is read from its end, and only as far
//! as trusted proxies wrote it. Members that an untrusted client wrote never count.

use super::network::any_contains;
use crate::syntax::Network;
use selvedge::Request;
use selvedge::proto::field::trim;
#[cfg(feature = "configuration")]
use selvedge::proto::{
    forward::{NamedOrigin, PeerTrust},
    head::Scheme,
    target::Host,
};
use selvedge::service::UNIX_PEER;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The trusted proxies, and the field in which they send the client's address.
#[derive(Clone, Debug)]
pub(crate) struct TrustedProxies {
    /// The networks of the proxies.
    pub(crate) networks: Vec<Network>,
    /// Whether a peer on a Unix socket is a trusted proxy.
    pub(crate) unix: UnixPeerTrust,
    /// The field that is evaluated.
    pub(crate) field: ForwardingField,
}

/// Whether the forwarding field of a peer on a Unix socket is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnixPeerTrust {
    Trusted,
    Untrusted,
}

/// The field in which a proxy sends the client's address. Only one is evaluated, because a proxy that sets one
/// passes the other on as the client wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardingField {
    /// `X-Forwarded-For: 192.0.2.1, 198.51.100.2`
    XForwardedFor,
    /// `Forwarded: for=192.0.2.1;proto=https` (RFC 7239)
    Forwarded,
}

/// The client of a request whose trusted proxy sent something other than an address. It is in no [`Network`].
///
/// The proxy's own address would be unsafe: a rule that allows the proxy would then allow every client that
/// makes it send such a value.
const UNKNOWN_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Longest identifier of a request that is taken over.
#[cfg(feature = "configuration")]
const REQUEST_ID_BYTES_MAX: usize = 128;

/// The maximum number of trusted proxies in a row. A longer chain is a loop.
const HOPS_MAX: usize = 32;

impl TrustedProxies {
    /// Returns what the peer of a request states of it, if the peer is trusted: in X-Forwarded-For, -Proto and -Host, or in the
    /// element of Forwarded that names the client. Of several values in a field, the last one is that of the peer.
    #[cfg(feature = "configuration")]
    pub(super) fn origin<'r>(&self, request: &'r Request) -> NamedOrigin<'r> {
        if !self.trusts(request.peer()) {
            return NamedOrigin::default();
        }
        let peer = request.peer().ip().to_canonical();
        let (client, element) = self.named_client(peer, &self.lines(request));
        let last = |name: &str| request.field(name).and_then(|value| value.rsplit(|&b| b == b',').next()).map(trim);
        let (scheme, host) = match self.field {
            ForwardingField::XForwardedFor => (last("x-forwarded-proto"), last("x-forwarded-host")),
            ForwardingField::Forwarded => {
                let parameter = |name| element.and_then(|element| parameter(element, name));
                (parameter("proto"), parameter("host"))
            }
        };
        NamedOrigin {
            client: Some(client).filter(|client| *client != peer),
            scheme: match scheme {
                Some(scheme) if scheme.eq_ignore_ascii_case(b"https") => Some(Scheme::Https),
                Some(scheme) if scheme.eq_ignore_ascii_case(b"http") => Some(Scheme::Http),
                _ => None,
            },
            host: host.filter(|host| Host::parse(host).is_ok()),
        }
    }

    /// Returns how far the fields about the client of a request are true.
    #[cfg(feature = "configuration")]
    pub(super) fn trust(&self, request: &Request) -> PeerTrust {
        match (self.trusts(request.peer()), self.field) {
            (false, _) => PeerTrust::Untrusted,
            (true, ForwardingField::XForwardedFor) => PeerTrust::XForwarded,
            (true, ForwardingField::Forwarded) => PeerTrust::Forwarded,
        }
    }

    /// Returns the client of a request.
    pub(super) fn client_of(&self, request: &Request) -> IpAddr {
        let peer = request.peer().ip().to_canonical();
        if !self.trusts(request.peer()) {
            return peer;
        }
        self.named_client(peer, &self.lines(request)).0
    }

    /// Returns the client of a request, and why it is that, in words.
    pub(super) fn explain_client(&self, request: &Request) -> String {
        let (peer, address) = (request.peer(), request.peer().ip().to_canonical());
        if !self.trusts(peer) {
            return format!("{address}, because it is no trusted proxy");
        }
        let field = match self.field {
            ForwardingField::XForwardedFor => "X-Forwarded-For",
            ForwardingField::Forwarded => "Forwarded",
        };
        match self.named_client(address, &self.lines(request)) {
            (client, None) => format!("{client}, the trusted proxy, because it names no client in {field}"),
            (UNKNOWN_CLIENT, Some(_)) => {
                format!("unknown, because the trusted proxy {address} names no address in {field}")
            }
            (client, Some(_)) => format!("{client}, as the trusted proxy {address} states in {field}"),
        }
    }

    /// Returns the lines of the field that is evaluated.
    fn lines<'r>(&self, request: &'r Request) -> Vec<&'r [u8]> {
        let name = match self.field {
            ForwardingField::XForwardedFor => "x-forwarded-for",
            ForwardingField::Forwarded => "forwarded",
        };
        let fields = request.fields().filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        fields.map(|(_, value)| value).collect()
    }

    /// Returns the identifier that a trusted proxy has given to a request.
    #[cfg(feature = "configuration")]
    pub(super) fn request_id(&self, request: &Request) -> Option<Box<str>> {
        let value = request.field("x-request-id").filter(|_| self.trusts(request.peer()))?;
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.:/+=@".contains(b);
        let is_id = (1..=REQUEST_ID_BYTES_MAX).contains(&value.len()) && value.iter().all(is_plain);
        std::str::from_utf8(value).ok().filter(|_| is_id).map(Box::from)
    }

    /// Whether the peer of a connection is a trusted proxy.
    pub(crate) fn trusts(&self, peer: SocketAddr) -> bool {
        match peer {
            UNIX_PEER => self.unix == UnixPeerTrust::Trusted,
            _ => any_contains(&self.networks, peer.ip().to_canonical()),
        }
    }

    /// Returns the last address that is not a trusted proxy, or [`UNKNOWN_CLIENT`] if a trusted proxy sent no
    /// address, and the member that names it.
    fn named_client<'l>(&self, peer: IpAddr, lines: &[&'l [u8]]) -> (IpAddr, Option<&'l [u8]>) {
        let (mut client, mut named_by) = (peer, None);
        let members = lines.iter().rev().flat_map(|line| MembersFromEnd { rest: Some(line) });
        for member in members.filter(|member| !member.is_empty()).take(HOPS_MAX) {
            let address = match self.field {
                ForwardingField::XForwardedFor => parse_node(member),
                ForwardingField::Forwarded => parameter(member, "for").and_then(parse_node),
            };
            let Some(address) = address else { return (UNKNOWN_CLIENT, Some(member)) };
            (client, named_by) = (address, Some(member));
            if !any_contains(&self.networks, client) {
                break;
            }
        }
        (client, named_by)
    }
}

/// The members of a list, from the last to the first.
///
/// Quotes are paired from the end as well, so that an unterminated quote of a client cannot hide what a proxy
/// appended.
struct MembersFromEnd<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for MembersFromEnd<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (before, member) = split_last(rest, b',');
        self.rest = before;
        Some(trim(member))
    }
}

/// Splits at the last separator outside of quotes; returns the texts before and behind it.
fn split_last(text: &[u8], separator: u8) -> (Option<&[u8]>, &[u8]) {
    let mut is_quoted = false;
    let at = (0..text.len()).rev().find(|&at| {
        is_quoted ^= text[at] == b'"' && !is_escaped(&text[..at]);
        text[at] == separator && !is_quoted
    });
    at.map_or((None, text), |at| (Some(&text[..at]), &text[at + 1..]))
}

/// Whether the character behind this text is escaped by a backslash. Call it for quotes only, so that a long
/// run of backslashes is counted once.
fn is_escaped(before: &[u8]) -> bool {
    !before.iter().rev().take_while(|&&b| b == b'\\').count().is_multiple_of(2)
}

/// Returns a parameter of one element of Forwarded (RFC 7239 §4); `None` if it occurs twice.
fn parameter<'e>(element: &'e [u8], name: &str) -> Option<&'e [u8]> {
    let (mut rest, mut found) = (Some(element), None);
    while let Some(text) = rest {
        let (before, pair) = split_last(text, b';');
        rest = before;
        let Some(at) = pair.iter().position(|&b| b == b'=') else { continue };
        if trim(&pair[..at]).eq_ignore_ascii_case(name.as_bytes()) {
            let value = trim(&pair[at + 1..]);
            let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
            if found.replace(unquoted.unwrap_or(value)).is_some() {
                return None;
            }
        }
    }
    found
}

/// Parses an address with or without port and brackets. `unknown` and obfuscated names give `None`.
fn parse_node(text: &[u8]) -> Option<IpAddr> {
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
        let proxies = TrustedProxies { networks, unix: UnixPeerTrust::Untrusted, field };
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        proxies.named_client(peer.parse().unwrap(), &lines).0.to_string()
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
            // A value that the client invented is before the address that the proxy appended.
            (&["1.1.1.1, 192.0.2.1"], "192.0.2.1"),
            (&["1.1.1.1", "192.0.2.1, 10.0.0.9"], "192.0.2.1"),
            (&["10.0.0.3, 192.0.2.1"], "192.0.2.1"),
            (&["\", 192.0.2.1"], "192.0.2.1"),
            // All members are proxies: the first one sent the request itself.
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // The proxy sent no address, and members before it do not count.
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
            // An unterminated quote hides nothing.
            (&["for=\"1.1.1.1, for=192.0.2.1"], "192.0.2.1"),
            (&["for=\"1.1.1.1", "for=192.0.2.1"], "192.0.2.1"),
            (&["for=1.1.1.1;host=\"a,for=2.2.2.2\""], "1.1.1.1"),
            // A proxy's quoted parameter is skipped at every position.
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
    fn proxy_hops_are_bounded() {
        let line = "10.0.0.1,".repeat(1000);
        assert_eq!(client(ForwardingField::XForwardedFor, "10.0.0.2", &["1.1.1.1", &line]), "10.0.0.1");
    }
}
