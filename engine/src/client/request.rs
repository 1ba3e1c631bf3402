//! The head of a request to an upstream.

use base64ct::{Base64, Encoding};
use bytes::Bytes;
use selvedge_proto::field::{is_token, trim};
use selvedge_proto::forward::TeTrailers;
use selvedge_proto::head::RequestFraming;
use selvedge_proto::http1::write_request::{InvalidRequest, RequestConnection, RequestParts};
use selvedge_proto::http2::hpack::BlockEncoder;
use sha1::{Digest, Sha1};

/// The scheme of a request's target, which HTTP/2 sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    #[default]
    Http,
    /// `https`
    Https,
}

impl Scheme {
    /// Returns the scheme in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// How the content of a response is used, which decides how it is received. Each use works with each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseUse {
    /// It is read or changed, or leaves encoded: as much as possible is received at once.
    #[default]
    Read,
    /// It leaves as it is to a client of HTTP/1.1 without TLS. If the last response of the upstream was long, little is
    /// received with the head, so that the kernel can move the rest ([`crate::service::Chunks::poll_splice`]).
    Forward,
}

/// The field whose value a WebSocket of HTTP/1.1 is accepted with.
const WEBSOCKET_KEY: &[u8] = b"sec-websocket-key";
/// What is hashed after the key (RFC 6455 §4.2.2).
const WEBSOCKET_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The form of a request of HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Http2Form {
    /// A request with content of this length, if it is known.
    Request(Option<u64>),
    /// A CONNECT request that opens a stream of another protocol (RFC 8441).
    ExtendedConnect,
}

/// The head of a request to an upstream. It can be reused for the next request, so that its buffers are not allocated
/// again.
///
/// All parts are checked before anything is sent, so no part can end the message or begin another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutgoingHead {
    /// The method, such as `GET`.
    pub method: Vec<u8>,
    /// The target in origin form, such as `/search?q=1`, or `*` for OPTIONS.
    pub target: Vec<u8>,
    /// The host and port: the field Host, or `:authority` of HTTP/2. Empty to send none, which only HTTP/1.0 permits.
    pub authority: Vec<u8>,
    /// The scheme, which HTTP/2 sends.
    pub scheme: Scheme,
    /// The other fields, as lines `name: value` with CRLF. Never Host, Connection, Content-Length, Transfer-Encoding, TE,
    /// Upgrade, Expect or other fields of a connection: the client writes them. HTTP/2 requires names in lower case.
    pub fields: Vec<u8>,
    /// Whether the request accepts trailers.
    pub te: TeTrailers,
    /// The protocol to switch to (Upgrade), if the request offers one. It is sent only without content: an upstream that
    /// switched early would take the rest for the other protocol.
    ///
    /// To an upstream with HTTP/2, a GET request becomes an extended CONNECT (RFC 8441) if the upstream accepts it. If
    /// not, an upstream that chooses its version in the handshake of TLS gets the request over HTTP/1.1. Over plain
    /// HTTP/2, a WebSocket fails, and another protocol is not offered (RFC 9110 §7.8).
    pub upgrade: Option<Bytes>,
    /// How the content of the response is used.
    pub response_use: ResponseUse,
}

impl OutgoingHead {
    /// Removes everything, and keeps the allocations.
    pub fn clear(&mut self) {
        for part in [&mut self.method, &mut self.target, &mut self.authority, &mut self.fields] {
            part.clear();
        }
        self.scheme = Scheme::Http;
        self.te = TeTrailers::Absent;
        self.upgrade = None;
        self.response_use = ResponseUse::Read;
    }

    /// Whether a request with this framing offers another protocol.
    pub(super) fn offers_upgrade(&self, framing: RequestFraming) -> bool {
        self.upgrade.is_some() && framing == RequestFraming::None
    }

    /// Appends the head of a request of HTTP/1.1 to `out`.
    ///
    /// # Errors
    /// The first invalid part. Nothing is appended then.
    pub(super) fn write_http1(&self, framing: RequestFraming, out: &mut Vec<u8>) -> Result<(), InvalidRequest> {
        let parts = RequestParts {
            method: &self.method,
            target: &self.target,
            authority: &self.authority,
            framing,
            connection: match &self.upgrade {
                Some(protocol) if self.offers_upgrade(framing) => RequestConnection::Upgrade(protocol),
                _ => RequestConnection::KeepAlive,
            },
            te: self.te,
            fields: &self.fields,
        };
        parts.write(out)
    }

    /// Checks the parts that HTTP/2 sends.
    ///
    /// # Errors
    /// The first invalid part.
    pub(super) fn check_http2(&self, form: Http2Form) -> Result<(), InvalidRequest> {
        if form == Http2Form::ExtendedConnect && self.is_websocket() && self.websocket_accept().is_none() {
            //= RFC 6455 §4.2.1: a WebSocket of HTTP/1.1 has a key, and no upstream checks it here
            return Err(InvalidRequest::Fields);
        }
        let is_visible = |bytes: &[u8]| bytes.iter().all(|byte| (0x21..0x7f).contains(byte));
        if !is_token(&self.method) {
            return Err(InvalidRequest::Method);
        }
        if self.target.is_empty() || !is_visible(&self.target) {
            return Err(InvalidRequest::Target);
        }
        if form == Http2Form::ExtendedConnect && self.upgrade.as_ref().is_none_or(|protocol| !is_visible(protocol)) {
            return Err(InvalidRequest::Upgrade);
        }
        if !is_visible(&self.authority) {
            return Err(InvalidRequest::Authority);
        }
        let is_valid = |(name, value): (&[u8], &[u8])| {
            is_token(name)
                && !name.iter().any(u8::is_ascii_uppercase)
                && !value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t')
        };
        let is_complete = self.fields.is_empty() || self.fields.ends_with(b"\r\n");
        if is_complete && self.field_lines().all(is_valid) { Ok(()) } else { Err(InvalidRequest::Fields) }
    }

    /// Returns the names and values of the fields. A line without a colon has an empty name.
    fn field_lines(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let lines = self.fields.strip_suffix(b"\n").unwrap_or(&self.fields);
        let lines = (!lines.is_empty()).then(|| lines.split(|&byte| byte == b'\n')).into_iter().flatten();
        lines.map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let colon = line.iter().position(|&byte| byte == b':').unwrap_or(0);
            (&line[..colon], trim(line.get(colon + 1..).unwrap_or_default()))
        })
    }

    /// Whether the protocol to switch to is WebSocket.
    pub(super) fn is_websocket(&self) -> bool {
        self.upgrade.as_ref().is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"))
    }

    /// Returns the value of Sec-WebSocket-Accept that belongs to the key of the request; `None` without exactly one valid
    /// key.
    pub(super) fn websocket_accept(&self) -> Option<String> {
        let mut keys = self.field_lines().filter(|(name, _)| *name == WEBSOCKET_KEY);
        let (Some((_, key)), None) = (keys.next(), keys.next()) else { return None };
        let mut decoded = [0; 16];
        let is_valid = Base64::decode(key, &mut decoded).is_ok_and(|decoded| decoded.len() == 16);
        is_valid.then(|| Base64::encode_string(&Sha1::new().chain_update(key).chain_update(WEBSOCKET_GUID).finalize()))
    }

    /// Writes the head of a request of HTTP/2.
    pub(super) fn write_http2(&self, form: Http2Form, block: &mut BlockEncoder<'_>) {
        let is_connect = form == Http2Form::ExtendedConnect;
        block.field(b":method", if is_connect { b"CONNECT" } else { &self.method });
        if is_connect {
            block.field(b":protocol", self.upgrade.as_deref().unwrap_or_default());
        }
        block.field(b":scheme", self.scheme.name().as_bytes());
        if !self.authority.is_empty() {
            block.field(b":authority", &self.authority);
        }
        block.field(b":path", &self.target);
        for (name, value) in self.field_lines() {
            //= RFC 8441 §5: the key and its reply are superseded by `:protocol`
            if !(is_connect && name == WEBSOCKET_KEY) {
                block.field(name, value);
            }
        }
        if let Http2Form::Request(Some(length @ 1..)) = form {
            block.field(b"content-length", length.to_string().as_bytes());
        }
        if self.te == TeTrailers::Accepted {
            block.field(b"te", b"trailers");
        }
    }
}
