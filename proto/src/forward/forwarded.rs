//! Writes which client a request is from: Forwarded (RFC 7239) and X-Forwarded-For, -Proto and -Host.

use crate::field::is_token;
use crate::forward::names::starts_with;
use crate::head::{RequestHead, Scheme};
use core::fmt::{self, Write as _};
use core::net::IpAddr;

/// Whether the peer of a connection is a proxy whose fields about its client are true. A proxy that writes one family of fields
/// passes the other one on as its client wrote it, so only one is true.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerTrust {
    /// The received fields are replaced: a client can write anything into them. Default.
    #[default]
    Untrusted,
    /// The peer writes X-Forwarded-For, and is appended to it.
    XForwarded,
    /// The peer writes Forwarded, and is appended to it.
    Forwarded,
}

/// What a trusted peer states of a request in its family of fields, for the fields of the other family (RFC 7239 §7.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedOrigin<'a> {
    /// The client; `None` if the peer is the client, and unspecified if the peer does not know it.
    pub client: Option<IpAddr>,
    /// The scheme that the client used, if the peer names it.
    pub scheme: Option<Scheme>,
    /// The host that the client requested, if the peer names it.
    pub host: Option<&'a [u8]>,
}

/// What a gateway knows of the client of a request.
#[derive(Clone, Copy, Debug)]
pub struct ClientInfo<'a> {
    /// The address of the peer of the connection; `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// Whether the peer is a trusted proxy.
    pub trust: PeerTrust,
    /// The scheme of the connection.
    pub scheme: Scheme,
    /// What the peer states of the request. It does not count if the peer is not trusted.
    pub origin: NamedOrigin<'a>,
}

/// The fields about the client that a gateway writes. Received fields that it does not write are dropped, since an
/// application could believe them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedFields {
    /// Neither.
    None,
    /// X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host. Default: most applications read them.
    #[default]
    XForwarded,
    /// Forwarded (RFC 7239).
    Forwarded,
    /// Both.
    Both,
}

/// A field about the client, as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientField {
    Forwarded,
    XForwardedFor,
    XForwardedProto,
    XForwardedHost,
    /// Any other field that a proxy sets about its client, such as X-Forwarded-Port or X-Real-IP.
    Other,
}

impl ClientField {
    /// Classifies a name, which is compared without case.
    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        match name.len() {
            9 if name.eq_ignore_ascii_case(b"forwarded") => Some(Self::Forwarded),
            9 if name.eq_ignore_ascii_case(b"x-real-ip") => Some(Self::Other),
            15 if name.eq_ignore_ascii_case(b"x-forwarded-for") => Some(Self::XForwardedFor),
            16 if name.eq_ignore_ascii_case(b"x-forwarded-host") => Some(Self::XForwardedHost),
            17 if name.eq_ignore_ascii_case(b"x-forwarded-proto") => Some(Self::XForwardedProto),
            12.. if starts_with(name, b"x-forwarded-") => Some(Self::Other),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::XForwardedFor => "x-forwarded-for",
            Self::XForwardedProto => "x-forwarded-proto",
            Self::XForwardedHost => "x-forwarded-host",
            Self::Other => "",
        }
    }

    /// The trust in a peer that writes the field.
    const fn trust(self) -> PeerTrust {
        match self {
            Self::Forwarded => PeerTrust::Forwarded,
            _ => PeerTrust::XForwarded,
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Collects which fields about the client were received, and writes those that the gateway sends.
#[derive(Clone, Copy)]
pub(super) struct ClientFields<'a> {
    client: ClientInfo<'a>,
    fields: ForwardedFields,
    received: u8,
}

impl<'a> ClientFields<'a> {
    pub(super) const fn new(client: ClientInfo<'a>, fields: ForwardedFields) -> Self {
        Self { client, fields, received: 0 }
    }

    fn writes_x_forwarded(self) -> bool {
        matches!(self.fields, ForwardedFields::XForwarded | ForwardedFields::Both)
    }

    /// Records a received field. Returns whether it is forwarded as received.
    pub(super) fn receive(&mut self, field: ClientField) -> bool {
        self.received |= field.bit();
        match field {
            ClientField::Forwarded | ClientField::XForwardedFor => false,
            // The first trusted proxy knows them; the connection between two proxies has others.
            ClientField::XForwardedProto | ClientField::XForwardedHost | ClientField::Other => {
                self.client.trust == PeerTrust::XForwarded && self.writes_x_forwarded()
            }
        }
    }

    /// Whether the received lines of a field count.
    fn keeps(self, field: ClientField) -> bool {
        self.client.trust == field.trust() && self.received & field.bit() != 0
    }

    /// What a trusted peer states in the family that a field is not of.
    fn origin_for(self, field: ClientField) -> NamedOrigin<'a> {
        match self.client.trust {
            PeerTrust::Untrusted => NamedOrigin::default(),
            trust if trust == field.trust() => NamedOrigin::default(),
            _ => self.client.origin,
        }
    }

    /// Appends the fields that the gateway writes.
    pub(super) fn write(self, head: &RequestHead, bytes: &[u8], out: &mut Vec<u8>) {
        let host = head.authority.map(|span| span.of(bytes)).filter(|host| !host.is_empty());
        if self.writes_x_forwarded() {
            self.write_x_forwarded(head, bytes, host, out);
        }
        if matches!(self.fields, ForwardedFields::Forwarded | ForwardedFields::Both) {
            self.begin_list(ClientField::Forwarded, head, bytes, out);
            self.write_forwarded(host, out);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn write_x_forwarded(self, head: &RequestHead, bytes: &[u8], host: Option<&[u8]>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut has_members = self.begin_list(ClientField::XForwardedFor, head, bytes, out);
        let origin = self.origin_for(ClientField::XForwardedFor);
        if let Some(client) = origin.client {
            has_members = true;
            match client.is_unspecified() {
                true => out.extend_from_slice(b"unknown, "),
                false => write_text(format_args!("{client}, "), out),
            }
        }
        match self.client.address {
            Some(address) => write_text(format_args!("{address}\r\n"), out),
            // A peer on a Unix socket has no address.
            None if has_members => {
                out.truncate(out.len() - ", ".len());
                out.extend_from_slice(b"\r\n");
            }
            None => out.truncate(start),
        }
        if !self.keeps(ClientField::XForwardedProto) {
            let scheme = origin.scheme.unwrap_or(self.client.scheme);
            write_text(format_args!("x-forwarded-proto: {}\r\n", scheme_name(scheme)), out);
        }
        if let Some(host) = origin.host.or(host)
            && !self.keeps(ClientField::XForwardedHost)
        {
            for part in [b"x-forwarded-host: ", host, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }

    /// Appends the name of a list and, from a trusted peer, the received members. Returns whether members are
    /// written; then `", "` follows them.
    fn begin_list(self, field: ClientField, head: &RequestHead, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(field.name().as_bytes());
        out.extend_from_slice(b": ");
        let start = out.len();
        if self.keeps(field) {
            let is_field = |(name, value): &(&[u8], &[u8])| {
                !value.is_empty() && name.eq_ignore_ascii_case(field.name().as_bytes())
            };
            for (_, value) in head.fields(bytes).filter(is_field) {
                out.extend_from_slice(value);
                out.extend_from_slice(b", ");
            }
        }
        out.len() > start
    }

    /// Appends the elements of Forwarded that are not received.
    fn write_forwarded(self, host: Option<&[u8]>, out: &mut Vec<u8>) {
        let ClientInfo { address, scheme, .. } = self.client;
        let origin = self.origin_for(ClientField::Forwarded);
        let (first_host, first_scheme) = (origin.host.or(host), origin.scheme.unwrap_or(scheme));
        match origin.client {
            None => write_element(address, first_host, first_scheme, out),
            Some(client) => {
                write_element(Some(client).filter(|client| !client.is_unspecified()), first_host, first_scheme, out);
                out.extend_from_slice(b", ");
                write_element(address, host, scheme, out);
            }
        }
    }
}

/// Appends `for=192.0.2.1;host=example.com;proto=https`.
//= RFC 7239 §6: an IPv6 address is in brackets and quoted; a node without an address is `unknown`
fn write_element(address: Option<IpAddr>, host: Option<&[u8]>, scheme: Scheme, out: &mut Vec<u8>) {
    match address {
        Some(IpAddr::V4(address)) => write_text(format_args!("for={address}"), out),
        Some(IpAddr::V6(address)) => write_text(format_args!("for=\"[{address}]\""), out),
        None => out.extend_from_slice(b"for=unknown"),
    }
    if let Some(host) = host {
        out.extend_from_slice(b";host=");
        write_token_or_quoted(host, out);
    }
    write_text(format_args!(";proto={}", scheme_name(scheme)), out);
}

const fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    }
}

/// Appends a value as a token, or else as a quoted string (RFC 9110 §5.6.4).
fn write_token_or_quoted(value: &[u8], out: &mut Vec<u8>) {
    if is_token(value) {
        out.extend_from_slice(value);
        return;
    }
    out.push(b'"');
    for &byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Appends formatted text.
fn write_text(text: fmt::Arguments<'_>, out: &mut Vec<u8>) {
    struct Appender<'a>(&'a mut Vec<u8>);
    impl fmt::Write for Appender<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Appending to a vector cannot fail.
    let _ = Appender(out).write_fmt(text);
}
