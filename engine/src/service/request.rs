//! A request, as an application sees it.

use crate::buffer::Buffer;
use crate::service::body::IncomingBody;
use selvedge_proto::field::Known;
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::method::Method;
use selvedge_proto::target::{Form, Host};
use std::net::SocketAddr;
use std::time::Duration;

/// A request: a head that was judged as a whole, and content that may still be on its way.
#[derive(Debug)]
pub struct Request {
    pub(crate) head: Box<RequestHead>,
    /// The bytes that the head stands in, from its first byte on.
    pub(crate) bytes: Buffer,
    /// Where in `bytes` the head begins.
    pub(crate) start: usize,
    pub(crate) content: IncomingBody,
    pub(crate) peer: SocketAddr,
    pub(crate) moment: Moment,
}

/// When a request came, as the worker last saw the time: up to a quarter of a second early.
/// Costs no look at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time since the worker began; never goes back.
    pub since_start: Duration,
    /// Seconds since 1970.
    pub unix_time: i64,
}

impl Request {
    /// The head, as positions in [`Request::head_bytes`].
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The bytes that the head's positions count in.
    pub fn head_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The method as it was written.
    pub fn method_text(&self) -> &str {
        self.text(self.head.method_span.of(self.head_bytes()))
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The form of the target.
    pub fn target_form(&self) -> Form {
        self.head.target.form
    }

    /// The target as it was written: visible ASCII.
    pub fn target(&self) -> &str {
        self.text(self.head.target.whole.of(self.head_bytes()))
    }

    /// The path of the target with its percent-encoding; empty for `*` and CONNECT.
    /// [`selvedge_proto::path::SafePath::decode`] makes it a name that may be opened.
    pub fn path(&self) -> &str {
        self.text(self.head.target.path.of(self.head_bytes()))
    }

    /// What follows the first `?`.
    pub fn query(&self) -> Option<&str> {
        self.head.target.query.map(|span| self.text(span.of(self.head_bytes())))
    }

    /// The host and port that the request is for, from the target or from Host.
    pub fn host(&self) -> Option<Host<'_>> {
        self.head.authority.and_then(|span| Host::parse(span.of(self.head_bytes())).ok())
    }

    /// The value of the first field of that name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.head.get(self.head_bytes(), name)
    }

    /// The value of the first line of a field that the head has the place of.
    pub fn known(&self, known: Known) -> Option<&[u8]> {
        self.head.value(self.head_bytes(), known)
    }

    /// All lines of a field that the head has the place of.
    pub fn known_values(&self, known: Known) -> impl Iterator<Item = &[u8]> + Clone {
        self.head.values(self.head_bytes(), known)
    }

    /// All fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.fields(self.head_bytes())
    }

    /// Who asks: the other end of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// When it came.
    pub fn moment(&self) -> Moment {
        self.moment
    }

    /// The content, to read it.
    pub fn body(&mut self) -> &mut IncomingBody {
        &mut self.content
    }

    /// The content, taken out of the request, as for a response that is made of it.
    pub fn take_body(&mut self) -> IncomingBody {
        std::mem::take(&mut self.content)
    }

    /// A target or method is ASCII, since the parser let nothing else through.
    fn text<'a>(&self, bytes: &'a [u8]) -> &'a str {
        debug_assert!(bytes.is_ascii());
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}
