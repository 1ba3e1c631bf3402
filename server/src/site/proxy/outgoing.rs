//! Builds the request to a server from the request of a client.

use super::max_forwards;
use super::path::{forwarded_path, prefix_before, split_prefix};
use super::proxy_rules::{HostPolicy, PathPolicy, ProxyRules};
use super::rules::{ProxyHeaderVersion, ServerRules};
use crate::site::client::TrustedProxies;
use crate::site::headers::HeaderEdits;
use crate::syntax::RequestValues;
use crate::traces::{CurrentTry, RequestTrace, TRACEPARENT_BYTES, Tracer};
use base64ct::{Base64, Encoding};
use bytes::Bytes;
use selvedge::client::{OutgoingHead, ResponseUse, Scheme};
use selvedge::proto::field::{KnownField, list_members};
use selvedge::proto::forward::{ClientInfo, NamedOrigin, Passage, PeerTrust, forward_request};
use selvedge::proto::head::{Scheme as ClientScheme, Version};
use selvedge::proto::path::{EncodedSlash, SafePath};
use selvedge::proto::proxy_protocol::{self, ProxiedPeer, ProxyVersion};
use selvedge::service::{UNIX_PEER, authority, local_address, request_id};
use selvedge::{Request, proto};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

/// The line of a trace (W3C Trace Context), with room for its value. No such value is valid.
const TRACEPARENT_ROOM: &[u8] = b"traceparent: 0000000000000000000000000000000000000000000000000000000\r\n";
const TRACEPARENT_NAME_BYTES: usize = 13;
const _: () = assert!(TRACEPARENT_ROOM.len() == TRACEPARENT_NAME_BYTES + TRACEPARENT_BYTES + 2);

/// The request to a server, and what its response needs to know of it.
#[derive(Debug)]
pub(super) struct ServerRequest {
    pub(super) head: OutgoingHead,
    pub(super) prefixes: PathPrefixes,
    /// The response edits, with the values of the request.
    pub(super) response_headers: Option<HeaderEdits>,
    /// How the client switches to another protocol, if it does.
    pub(super) upgrade: UpgradeKind,
    /// Whether the request has passed this server before.
    pub(super) passage: Passage,
    /// The scheme that the client used, as far as a trusted proxy knows it better.
    pub(super) scheme: ClientScheme,
    /// The trace of the request, if the server has traces.
    trace: Option<OutgoingTrace>,
}

/// The trace of a request, and where its field is among the lines.
#[derive(Debug)]
struct OutgoingTrace {
    trace: Rc<RequestTrace>,
    /// `None` if the rules drop the field.
    traceparent_at: Option<usize>,
}

/// What stands before the common rest of the client's and the server's path; without a slash at its end.
#[derive(Debug, Default)]
pub(super) struct PathPrefixes {
    pub(super) client: Box<[u8]>,
    pub(super) server: Box<[u8]>,
}

/// How the client of a request switches to another protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UpgradeKind {
    #[default]
    None,
    /// By the field Upgrade of HTTP/1.1.
    Field,
    /// By an extended CONNECT of HTTP/2 (RFC 8441). The server gets an Upgrade of HTTP/1.1.
    ExtendedConnect,
}

/// What a forwarded request depends on beside the rules.
#[derive(Clone, Copy)]
pub(in crate::site) struct RequestFacts<'a> {
    /// The path after a rewrite, if it was rewritten.
    pub(in crate::site) rewritten: Option<&'a SafePath>,
    /// What an encoded slash in the path is.
    pub(in crate::site) encoded_slash: EncodedSlash,
    /// The proxies whose fields about the client are true.
    pub(in crate::site) proxies: Option<&'a TrustedProxies>,
    /// The traces of requests, if the server has any.
    pub(in crate::site) tracer: Option<&'a Tracer>,
}

impl ServerRequest {
    /// Builds the request. The Host field and the fields for one version of HTTP follow for each server.
    pub(super) fn new<'v>(
        (rules, mut head): (&ProxyRules, OutgoingHead),
        request: &Request,
        facts: RequestFacts<'_>,
        values: &dyn Fn() -> RequestValues<'v>,
    ) -> Self {
        let upgrade = upgrade_kind(request);
        head.method.extend_from_slice(match upgrade {
            UpgradeKind::ExtendedConnect => b"GET",
            _ => request.method_text().as_bytes(),
        });
        let prefixes = write_target((rules, &mut head.target), request, facts, values);
        let client = ClientInfo {
            address: Some(request.peer()).filter(|peer| *peer != UNIX_PEER).map(|peer| peer.ip().to_canonical()),
            trust: facts.proxies.map_or(PeerTrust::Untrusted, |proxies| proxies.trust(request)),
            scheme: if request.tls().is_some() { ClientScheme::Https } else { ClientScheme::Http },
            origin: facts.proxies.map_or_else(NamedOrigin::default, |proxies| proxies.origin(request)),
        };
        let forwarded = forward_request(request.head(), request.head_bytes(), &rules.fields, client, &mut head.fields);
        head.te = forwarded.te;
        if let Some(left) = max_forwards::forwarded(request) {
            remove_lines(&mut head.fields, max_forwards::FIELD);
            head.fields.extend_from_slice(format!("{}: {left}\r\n", max_forwards::FIELD).as_bytes());
        }
        for part in ["x-request-id: ", request_id(request), "\r\n"] {
            head.fields.extend_from_slice(part.as_bytes());
        }
        let trace = facts.tracer.map(|tracer| tracer.begin(request));
        trace.iter().for_each(|trace| OutgoingTrace::add(trace, &mut head.fields));
        head.upgrade = offered_protocol(request, upgrade);
        head.response_use = match (request.version(), request.tls()) {
            (Version::Http11, None) => ResponseUse::Forward,
            _ => ResponseUse::Read,
        };
        if !rules.request_headers.is_empty() {
            match rules.request_headers.has_placeholders() {
                true => edit_lines(&mut head.fields, &rules.request_headers.filled(&values())),
                false => edit_lines(&mut head.fields, &rules.request_headers),
            }
        }
        let response_headers =
            rules.response_headers.has_placeholders().then(|| rules.response_headers.filled(&values()));
        let trace = trace.map(|trace| OutgoingTrace::of(trace, &head.fields));
        let scheme = client.origin.scheme.unwrap_or(client.scheme);
        Self { head, prefixes, response_headers, upgrade, passage: forwarded.passage, scheme, trace }
    }

    /// Begins a try at a server with this address, which gets a span of its own as its parent. `None` without traces.
    pub(super) fn begin_try(&mut self, address: &Rc<str>) -> Option<CurrentTry> {
        let OutgoingTrace { trace, traceparent_at } = self.trace.as_ref()?;
        let current = trace.begin_try(address.clone());
        if let Some(at) = *traceparent_at {
            self.head.fields[at..at + TRACEPARENT_BYTES].copy_from_slice(&current.traceparent());
        }
        Some(current)
    }

    /// Adds what depends on the server. Call it before each try.
    pub(super) fn set_server(&mut self, request: &Request, host: &HostPolicy, server: &ServerRules) {
        self.head.scheme = if server.tls.is_some() { Scheme::Https } else { Scheme::Http };
        let client_host = authority(request).filter(|host| !host.is_empty());
        let host = match host {
            HostPolicy::Client => client_host.unwrap_or(server.authority.as_bytes()),
            HostPolicy::Server => server.authority.as_bytes(),
            HostPolicy::Fixed(host) => host.as_bytes(),
        };
        self.head.authority.clear();
        self.head.authority.extend_from_slice(host);
    }

    /// Adds the key that a WebSocket needs over HTTP/1.1 and does not have over HTTP/2 (RFC 8441 §5).
    pub(super) fn add_websocket_key(&mut self, random: [u64; 2]) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&random[0].to_ne_bytes());
        bytes[8..].copy_from_slice(&random[1].to_ne_bytes());
        for part in ["sec-websocket-key: ", &Base64::encode_string(&bytes), "\r\n"] {
            self.head.fields.extend_from_slice(part.as_bytes());
        }
    }
}

impl OutgoingTrace {
    /// Replaces the lines with the trace of the client by room for those of a try.
    fn add(trace: &RequestTrace, lines: &mut Vec<u8>) {
        ["traceparent", "tracestate"].iter().for_each(|name| remove_lines(lines, name));
        lines.extend_from_slice(TRACEPARENT_ROOM);
        if let Some(state) = trace.state() {
            lines.extend_from_slice(format!("tracestate: {state}\r\n").as_bytes());
        }
    }

    /// Finds the room among the lines, unless the rules have replaced or removed it.
    fn of(trace: Rc<RequestTrace>, lines: &[u8]) -> Self {
        let mut starts = lines.split_inclusive(|&b| b == b'\n').scan(0, |end, line| {
            let start = *end;
            *end += line.len();
            Some((start, line))
        });
        let room = starts.find(|(_, line)| *line == TRACEPARENT_ROOM);
        Self { trace, traceparent_at: room.map(|(start, _)| start + TRACEPARENT_NAME_BYTES) }
    }
}

/// Returns the header of the PROXY protocol for the client of a request. Its destination is the address that the client
/// connected to; unspecified with port 0 for a client that a proxy on a Unix socket names.
pub(super) fn proxy_header(version: ProxyHeaderVersion, request: &Request, client: IpAddr) -> Bytes {
    let port = if request.peer().ip().to_canonical() == client { request.peer().port() } else { 0 };
    let unspecified: IpAddr = match client {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let peer = match request.peer() {
        UNIX_PEER if client.is_loopback() => ProxiedPeer::Unknown,
        _ => ProxiedPeer::Client {
            source: SocketAddr::new(client, port),
            destination: local_address(request).unwrap_or(SocketAddr::new(unspecified, 0)),
        },
    };
    let mut header = Vec::new();
    let version = match version {
        ProxyHeaderVersion::V1 => ProxyVersion::V1,
        ProxyHeaderVersion::V2 => ProxyVersion::V2,
    };
    proxy_protocol::write(version, peer, &mut header);
    header.into()
}

fn upgrade_kind(request: &Request) -> UpgradeKind {
    if request.head().is_extended_connect() {
        return UpgradeKind::ExtendedConnect;
    }
    let is_named = || {
        let options = request.known_field_values(KnownField::Connection).flat_map(list_members);
        options.into_iter().any(|option| option.eq_ignore_ascii_case(b"upgrade"))
    };
    //= RFC 9110 §7.8: an Upgrade of HTTP/1.0 is ignored, and one that Connection does not name is not for us
    let is_offered = request.version() == Version::Http11 && request.known_field(KnownField::Upgrade).is_some();
    if is_offered && is_named() { UpgradeKind::Field } else { UpgradeKind::None }
}

/// Returns the protocol that the client offers first. Upgrades to HTTP/2 are never passed on: the server would then
/// use a connection that the proxy does not understand.
fn offered_protocol(request: &Request, kind: UpgradeKind) -> Option<Bytes> {
    if kind == UpgradeKind::None {
        return None;
    }
    let mut offered = request.known_field_values(KnownField::Upgrade).flat_map(list_members);
    let is_http = |protocol: &&[u8]| {
        let name = protocol.split(|&b| b == b'/').next().unwrap_or_default();
        name.eq_ignore_ascii_case(b"h2c") || name.eq_ignore_ascii_case(b"http") || name.eq_ignore_ascii_case(b"tls")
    };
    offered.find(|protocol| !is_http(protocol)).map(Bytes::copy_from_slice)
}

/// Appends the target. Returns how its path differs from that of the client.
fn write_target<'v>(
    (rules, target): (&ProxyRules, &mut Vec<u8>),
    request: &Request,
    facts: RequestFacts<'_>,
    values: &dyn Fn() -> RequestValues<'v>,
) -> PathPrefixes {
    let path = forwarded_path(request.path_bytes(), facts.rewritten, facts.encoded_slash);
    let mut query = request.query().map(Cow::Borrowed);
    let mut prefixes = PathPrefixes::default();
    match &rules.path {
        PathPolicy::Kept => target.extend_from_slice(&path),
        PathPolicy::PrefixStripped => {
            let values = values();
            let (prefix, rest) = values.captures.rest().map_or((&[][..], &path[..]), |rest| split_prefix(&path, rest));
            prefixes.client = prefix.into();
            target.extend_from_slice(rest);
        }
        PathPolicy::Replaced(template) => {
            let values = values();
            let filled = template.path_with(&values);
            if let Some(replaced) = template.replaced_query(&values) {
                query = Some(replaced).filter(|query| !query.is_empty()).map(Cow::Owned);
            }
            let rest = values.captures.rest().filter(|_| template.ends_with_wildcard());
            match rest.and_then(|rest| Some((prefix_before(&filled, rest)?, split_prefix(&path, rest)))) {
                Some((server, (client, rest))) => {
                    target.extend_from_slice(server);
                    // As the client sent it.
                    target.extend_from_slice(rest);
                    prefixes = PathPrefixes { client: client.into(), server: server.into() };
                }
                None => target.extend_from_slice(filled.as_bytes()),
            }
        }
    }
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query.as_bytes());
    }
    prefixes
}

/// Changes the lines of a head. The values are filled.
fn edit_lines(lines: &mut Vec<u8>, edits: &HeaderEdits) {
    for edit in edits.iter() {
        if edit.replaces {
            remove_lines(lines, edit.name);
        }
        if let Some(value) = edit.value {
            debug_assert!(proto::field::is_token(edit.name.as_bytes()));
            // HTTP/2 has no upper case in names.
            for part in [&edit.name.to_ascii_lowercase(), ": ", value, "\r\n"] {
                lines.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// Removes the lines of a name.
fn remove_lines(lines: &mut Vec<u8>, name: &str) {
    let is_line = |line: &&[u8]| {
        line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
            && line.get(name.len()) == Some(&b':')
    };
    let all = lines.split_inclusive(|&b| b == b'\n');
    if all.clone().any(|line| is_line(&line)) {
        *lines = all.filter(|line| !is_line(line)).flatten().copied().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::TextTemplate;

    #[test]
    fn lines_are_edited_in_order() {
        let text = |text| TextTemplate::parse(text).unwrap();
        let mut edits = HeaderEdits::default();
        edits.set("x-a", text("1"), None).unwrap();
        edits.add("X-B", text("2"), None).unwrap();
        edits.remove("cookie", None).unwrap();
        edits.add("x-a", text("3"), None).unwrap();
        let mut lines = b"x-a: old\r\nx-b: 0\r\ncookie: c\r\nx-ab: kept\r\nX-A: older\r\n".to_vec();
        edit_lines(&mut lines, &edits);
        assert_eq!(lines, b"x-b: 0\r\nx-ab: kept\r\nx-a: 1\r\nx-b: 2\r\nx-a: 3\r\n");
    }
}
