//! The head of a request to an upstream.

use bytes::Bytes;

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

/// The head of a request to an upstream. It can be reused for the next request, so that its buffers are not allocated
/// again.
///
/// The caller has checked all bytes: the method is a token, the target and the authority have no space or control
/// character, and the fields are lines of valid names and values. A wrong byte would let one message become two.
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
    /// The other fields, as lines `name: value` with CRLF. Never Host, Connection, Content-Length, Transfer-Encoding,
    /// Upgrade, Expect or other fields of a connection: the client writes them.
    pub fields: Vec<u8>,
    /// The protocol to switch to (Upgrade), if the request offers one. HTTP/1.1 only.
    pub upgrade: Option<Bytes>,
}

impl OutgoingHead {
    /// Removes everything, and keeps the allocations.
    pub fn clear(&mut self) {
        for part in [&mut self.method, &mut self.target, &mut self.authority, &mut self.fields] {
            part.clear();
        }
        self.scheme = Scheme::Http;
        self.upgrade = None;
    }
}
