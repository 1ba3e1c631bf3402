//! A request, as an application sees it.

use crate::buffer::Buffer;
use crate::service::body::{ContentError, ContentSource, IncomingBody};
use selvedge_proto::Status;
use selvedge_proto::field::{Fields, Known};
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::method::Method;
use selvedge_proto::target::{Form, Host};
use std::any::Any;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Who is at the other end of a Unix socket, where an IP address and a port are to be told:
/// this machine, with a port that no connection over TCP has.
pub const UNIX_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A request: a head that was judged as a whole, and content that may still be on its way.
#[derive(Debug)]
pub struct Request {
    // Boxed and reused, so that a connection that waits has no room set aside for it.
    pub(crate) parts: Box<Parts>,
}

/// What a request is made of.
pub(crate) struct Parts {
    pub(crate) head: RequestHead,
    /// The bytes that the head stands in, from `start` on.
    pub(crate) bytes: Buffer,
    pub(crate) start: usize,
    pub(crate) content: IncomingBody,
    pub(crate) peer: SocketAddr,
    pub(crate) moment: Moment,
    pub(crate) remarks: Remarks,
    /// What the application keeps with the connection, while it has this request.
    pub(crate) keepsake: Keepsake,
    /// The connection, where the application sends something ahead of its answer.
    pub(crate) ahead: Option<Ahead>,
}

/// The way to send something before the answer.
#[derive(Clone)]
pub(crate) struct Ahead {
    pub(crate) source: Weak<dyn ContentSource>,
    pub(crate) request: u32,
}

impl Ahead {
    /// Sends an interim answer.
    pub(crate) fn send(&self, status: Status, fields: &Fields) -> Result<(), ContentError> {
        self.source.upgrade().ok_or(ContentError::Ended)?.send_interim(self.request, status, fields)
    }
}

/// Whatever an application keeps with a connection.
pub(crate) type Keepsake = Option<Box<dyn Any>>;

/// What an application found out about a request, for whoever reads its [`crate::service::Exchange`].
#[derive(Debug, Default)]
pub(crate) struct Remarks {
    pub(crate) client: Option<IpAddr>,
    pub(crate) user: Option<Rc<str>>,
    pub(crate) label: u32,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            head: RequestHead::default(),
            bytes: Buffer::default(),
            start: 0,
            content: IncomingBody::default(),
            peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            moment: Moment::default(),
            remarks: Remarks::default(),
            keepsake: None,
            ahead: None,
        }
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.head.line.of(&self.bytes[self.start..]).escape_ascii();
        write!(f, "Parts({line} from {}, {:?})", self.peer, self.content)
    }
}

/// When a request came, as the worker last saw the time: up to a quarter of a second early.
/// Costs no look at the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Time since the worker began; never goes back.
    pub since_start: Duration,
    /// Seconds since 1970.
    pub unix_time: i64,
}

impl Request {
    /// The head, as positions in [`Request::head_bytes`].
    pub fn head(&self) -> &RequestHead {
        &self.parts.head
    }

    /// The bytes that the head's positions count in.
    pub fn head_bytes(&self) -> &[u8] {
        &self.parts.bytes[self.parts.start..]
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.parts.head.method
    }

    /// The method as it was written.
    pub fn method_text(&self) -> &str {
        self.text(self.parts.head.method_span.of(self.head_bytes()))
    }

    /// The protocol version.
    pub fn version(&self) -> Version {
        self.parts.head.version
    }

    /// The form of the target.
    pub fn target_form(&self) -> Form {
        self.parts.head.target.form
    }

    /// The target as it was written: visible ASCII.
    pub fn target(&self) -> &str {
        self.text(self.parts.head.target.whole.of(self.head_bytes()))
    }

    /// The path of the target with its percent-encoding; empty for `*` and CONNECT.
    /// [`selvedge_proto::path::SafePath::decode`] makes it a name that may be opened.
    pub fn path(&self) -> &str {
        self.text(self.parts.head.target.path.of(self.head_bytes()))
    }

    /// The same as octets.
    pub fn path_bytes(&self) -> &[u8] {
        self.parts.head.target.path.of(self.head_bytes())
    }

    /// What follows the first `?`.
    pub fn query(&self) -> Option<&str> {
        self.parts.head.target.query.map(|span| self.text(span.of(self.head_bytes())))
    }

    /// The host and port that the request is for, from the target or from Host.
    pub fn host(&self) -> Option<Host<'_>> {
        self.parts.head.authority.and_then(|span| Host::parse(span.of(self.head_bytes())).ok())
    }

    /// The same as it was written, for whoever remembers what it stands for.
    pub fn authority(&self) -> Option<&[u8]> {
        self.parts.head.authority.map(|span| span.of(self.head_bytes()))
    }

    /// The value of the first field of that name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.parts.head.get(self.head_bytes(), name)
    }

    /// The value of the first line of a field that the head has the place of.
    pub fn known(&self, known: Known) -> Option<&[u8]> {
        self.parts.head.value(self.head_bytes(), known)
    }

    /// All lines of a field that the head has the place of.
    pub fn known_values(&self, known: Known) -> impl Iterator<Item = &[u8]> + Clone {
        self.parts.head.values(self.head_bytes(), known)
    }

    /// All fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.parts.head.fields(self.head_bytes())
    }

    /// Who asks: the other end of the connection; [`UNIX_PEER`] for one over a Unix socket.
    pub fn peer(&self) -> SocketAddr {
        self.parts.peer
    }

    /// The address of the client: of the peer, unless the application knows that the peer
    /// speaks for another ([`Request::set_client`]).
    pub fn client(&self) -> IpAddr {
        self.parts.remarks.client.unwrap_or_else(|| self.parts.peer.ip())
    }

    /// Says who asks, where the peer is a proxy that the application trusts.
    pub fn set_client(&mut self, client: IpAddr) {
        self.parts.remarks.client = Some(client);
    }

    /// The user that the application knows the client to be.
    pub fn user(&self) -> Option<&str> {
        self.parts.remarks.user.as_deref()
    }

    /// Says as whom the client has authenticated, as for the log.
    pub fn set_user(&mut self, user: Rc<str>) {
        self.parts.remarks.user = Some(user);
    }

    /// The number that the application gave the request; 0 unless it did.
    pub fn label(&self) -> u32 {
        self.parts.remarks.label
    }

    /// Gives the request a number, by which an observer tells the parts of an application
    /// apart: which of its sites answered, say.
    pub fn set_label(&mut self, label: u32) {
        self.parts.remarks.label = label;
    }

    /// When it came.
    pub fn moment(&self) -> Moment {
        self.parts.moment
    }

    /// The content, to read it.
    pub fn body(&mut self) -> &mut IncomingBody {
        &mut self.parts.content
    }

    /// The content, taken out of the request, as for a response that is made of it.
    pub fn take_body(&mut self) -> IncomingBody {
        std::mem::take(&mut self.parts.content)
    }

    /// A target or method is ASCII, since the parser let nothing else through.
    fn text<'a>(&self, bytes: &'a [u8]) -> &'a str {
        debug_assert!(bytes.is_ascii());
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}
