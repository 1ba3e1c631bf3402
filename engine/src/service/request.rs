//! A request as the application receives it.

use crate::buffer::Buffer;
use crate::limits::REQUEST_BYTES;
use crate::peer::TlsInfo;
use crate::service::body::{ContentError, ContentSource, IncomingBody, StreamId};
use crate::service::phase_times::{PhaseTimes, RequestPhase};
use crate::service::upstream::UpstreamRecord;
use selvedge_proto::StatusCode;
use selvedge_proto::field::{Fields, KnownField};
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::method::Method;
use selvedge_proto::target::Host;
use std::any::Any;
use std::cell::OnceCell;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// A request: a validated head, and content that may still be arriving.
#[derive(Debug)]
pub struct Request {
    // Boxed and pooled, so that an idle connection needs no memory for it.
    pub(crate) inner: Box<RequestInner>,
}

/// The fields of a request.
pub(crate) struct RequestInner {
    pub(crate) head: RequestHead,
    /// The query in place of that of the target; an empty one for none.
    pub(crate) replaced_query: Option<Box<str>>,
    /// The buffer that contains the head, from `start` on.
    pub(crate) bytes: Buffer,
    pub(crate) start: usize,
    pub(crate) content: IncomingBody,
    pub(crate) peer: SocketAddr,
    pub(crate) local: Option<Rc<SocketAddr>>,
    pub(crate) tls: Option<TlsInfo>,
    pub(crate) received_at: Timestamp,
    pub(crate) log_info: LogInfo,
    /// What the application keeps until the response is sent, such as the permit of a limit.
    pub(crate) held: Vec<Box<dyn Any>>,
    /// The application's state for the connection, while it processes this request.
    pub(crate) connection_extensions: ConnectionExtensions,
    /// A handle to send interim responses, if the application uses them.
    pub(crate) interim_sender: Option<InterimSender>,
}

const _: () = assert!(size_of::<RequestInner>() <= REQUEST_BYTES, "the memory budget counts a request");

/// A handle to send interim responses before the final response.
#[derive(Clone)]
pub(crate) struct InterimSender {
    pub(crate) source: Weak<dyn ContentSource>,
    pub(crate) stream: StreamId,
}

impl InterimSender {
    /// Sends an interim response.
    pub(crate) fn send(&self, status: StatusCode, fields: &Fields) -> Result<(), ContentError> {
        self.source.upgrade().ok_or(ContentError::Ended)?.send_interim(self.stream, status, fields)
    }
}

/// State that an application stores with a connection. Requests that are processed at once share it.
pub(crate) type ConnectionExtensions = Option<Rc<dyn Any>>;

/// What the application records about a request for the [`crate::service::Exchange`].
#[derive(Debug, Default)]
pub(crate) struct LogInfo {
    pub(crate) client: Option<IpAddr>,
    pub(crate) user: Option<Rc<str>>,
    pub(crate) site_tag: u32,
    pub(crate) route_tag: u32,
    pub(crate) cache_use: CacheUse,
    pub(crate) dry_run: DryRun,
    pub(crate) upstream: Option<UpstreamRecord>,
    pub(crate) id: OnceCell<Box<str>>,
    /// What the application keeps for its observer.
    pub(crate) note: OnceCell<Rc<dyn Any>>,
    pub(crate) log_rule: LogRule,
    /// The phases that were measured so far.
    pub(crate) phases: PhaseTimes,
    /// When the application returned the response, if it had to wait.
    pub(crate) responded_at: Option<Instant>,
    /// Whether the response had to wait to be sent.
    pub(crate) waited_to_send: bool,
}

impl LogInfo {
    /// Records that the application, which had to wait, returned the response to a request that began at `began`.
    pub(crate) fn end_application(&mut self, began: Option<Instant>) {
        let Some(began) = began else { return };
        let now = Instant::now();
        self.phases.set(RequestPhase::Application, now.duration_since(began));
        self.responded_at = Some(now);
    }

    /// Records when the content of a request that began at `began` ended.
    pub(crate) fn end_content(&mut self, began: Option<Instant>, ended: Option<Instant>) {
        if let (Some(began), Some(ended)) = (began, ended) {
            self.phases.set(RequestPhase::Content, ended.saturating_duration_since(began));
        }
    }

    /// Returns all phases of a request whose head and whose response were complete at these moments.
    pub(crate) fn all_phases(&self, began: Instant, completed: Instant) -> PhaseTimes {
        let mut phases = self.phases;
        if self.waited_to_send {
            let responded = self.responded_at.unwrap_or(began);
            phases.set(RequestPhase::Send, completed.saturating_duration_since(responded));
        }
        if let Some(upstream) = &self.upstream {
            upstream.facts().add_phases(&mut phases);
        }
        phases
    }
}

/// Whether the application took the response to a request from a cache of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheUse {
    /// No cache is used for it.
    #[default]
    None,
    /// It was in the cache.
    Hit,
    /// It was not in the cache.
    Miss,
}

/// Returns whether the response to a request was in a cache, if the application has set it.
pub fn cache_use(request: &Request) -> CacheUse {
    request.inner.log_info.cache_use
}

/// Sets whether the response to a request was in a cache, for the observer.
pub fn set_cache_use(request: &mut Request, cache_use: CacheUse) {
    request.inner.log_info.cache_use = cache_use;
}

/// Whether a rule of the application that is only tried out would have refused a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DryRun {
    /// No such rule would have.
    #[default]
    Passed,
    /// At least one would have.
    Refused,
}

/// Returns what rules that are only tried out would have done, if the application has set it.
pub fn dry_run(request: &Request) -> DryRun {
    request.inner.log_info.dry_run
}

/// Sets what rules that are only tried out would have done, for the observer.
pub fn set_dry_run(request: &mut Request, dry_run: DryRun) {
    request.inner.log_info.dry_run = dry_run;
}

/// Returns the number that [`set_route_tag`] has set; 0 by default.
pub fn route_tag(request: &Request) -> u32 {
    request.inner.log_info.route_tag
}

/// Tags the request with a number, by which an observer distinguishes the routes of a site.
pub fn set_route_tag(request: &mut Request, tag: u32) {
    request.inner.log_info.route_tag = tag;
}

/// Which responses to a request an observer is to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogRule {
    /// All.
    #[default]
    All,
    /// None.
    None,
    /// Those with a status in this range, with both ends.
    Statuses(u16, u16),
}

impl LogRule {
    /// Whether a response with this status is logged.
    pub fn includes(self, status: StatusCode) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Statuses(first, last) => (first..=last).contains(&status.code()),
        }
    }
}

/// Returns which responses to a request are logged.
pub fn log_rule(request: &Request) -> LogRule {
    request.inner.log_info.log_rule
}

/// Sets which responses to a request are logged.
pub fn set_log_rule(request: &mut Request, rule: LogRule) {
    request.inner.log_info.log_rule = rule;
}

impl Default for RequestInner {
    fn default() -> Self {
        Self {
            head: RequestHead::default(),
            replaced_query: None,
            bytes: Buffer::default(),
            start: 0,
            content: IncomingBody::default(),
            peer: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            local: None,
            tls: None,
            received_at: Timestamp::default(),
            log_info: LogInfo::default(),
            held: Vec::new(),
            connection_extensions: None,
            interim_sender: None,
        }
    }
}

impl fmt::Debug for RequestInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.head.request_line.of(&self.bytes[self.start..]).escape_ascii();
        write!(f, "Request({line} from {}, {:?})", self.peer, self.content)
    }
}

/// Arrival time of a request, from the worker's cached clock: up to 0.25 seconds early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// Time since the start of the worker; monotonic.
    pub since_worker_start: Duration,
    /// Unix time in seconds.
    pub unix_time: i64,
}

impl Request {
    /// Returns the head as spans in [`Request::head_bytes`].
    pub fn head(&self) -> &RequestHead {
        &self.inner.head
    }

    /// Returns the bytes that the spans of the head refer to.
    pub fn head_bytes(&self) -> &[u8] {
        &self.inner.bytes[self.inner.start..]
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        self.inner.head.method
    }

    /// Returns the method as received.
    pub fn method_text(&self) -> &str {
        ascii(self.inner.head.method_span.of(self.head_bytes()))
    }

    /// Returns the protocol version.
    pub fn version(&self) -> Version {
        self.inner.head.version
    }

    /// Returns the target as received: visible ASCII.
    pub fn target(&self) -> &str {
        ascii(self.inner.head.target.raw.of(self.head_bytes()))
    }

    /// Returns the percent-encoded path of the target; empty for `*` and CONNECT.
    /// [`selvedge_proto::path::SafePath::decode`] decodes it into a path that is safe to open.
    pub fn path(&self) -> &str {
        ascii(self.inner.head.target.path.of(self.head_bytes()))
    }

    /// Returns the percent-encoded path of the target as bytes.
    pub fn path_bytes(&self) -> &[u8] {
        self.inner.head.target.path.of(self.head_bytes())
    }

    /// Returns the part of the target after the first `?`, or what [`replace_query`] has set.
    pub fn query(&self) -> Option<&str> {
        match self.inner.replaced_query.as_deref() {
            None => received_query(self),
            Some(replaced) => Some(replaced).filter(|query| !query.is_empty()),
        }
    }

    /// Returns the host and port of the request, from the target or from Host.
    pub fn host(&self) -> Option<Host<'_>> {
        self.inner.head.authority.and_then(|span| Host::parse(span.of(self.head_bytes())).ok())
    }

    /// Returns the value of the first field with this name (case-insensitive).
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.inner.head.get(self.head_bytes(), name)
    }

    /// Returns the value of the first field line of an indexed field.
    pub fn known_field(&self, known: KnownField) -> Option<&[u8]> {
        self.inner.head.value(self.head_bytes(), known)
    }

    /// Returns the values of all field lines of an indexed field.
    pub fn known_field_values(&self, known: KnownField) -> impl Iterator<Item = &[u8]> + Clone {
        self.inner.head.values(self.head_bytes(), known)
    }

    /// Returns all fields in order.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.inner.head.fields(self.head_bytes())
    }

    /// Returns the remote end of the connection; [`UNIX_PEER`](super::UNIX_PEER) for a Unix socket.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// Returns what the TLS handshake of the connection agreed on; `None` for a plain connection.
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.inner.tls.as_ref()
    }

    /// Returns the address of the client: the peer's, unless the application has set another one
    /// ([`Request::set_client`]).
    pub fn client(&self) -> IpAddr {
        self.inner.log_info.client.unwrap_or_else(|| self.inner.peer.ip())
    }

    /// Sets the address of the client, if the peer is a trusted proxy.
    pub fn set_client(&mut self, client: IpAddr) {
        self.inner.log_info.client = Some(client);
    }

    /// Returns the authenticated user, if the application has set one.
    pub fn user(&self) -> Option<&str> {
        self.inner.log_info.user.as_deref()
    }

    /// Sets the authenticated user, for example for the log.
    pub fn set_user(&mut self, user: Rc<str>) {
        self.inner.log_info.user = Some(user);
    }

    /// Returns the number that the application set with [`Request::set_site_tag`]; 0 by default.
    pub fn site_tag(&self) -> u32 {
        self.inner.log_info.site_tag
    }

    /// Tags the request with a number, by which an observer distinguishes parts of an application,
    /// such as its sites.
    pub fn set_site_tag(&mut self, label: u32) {
        self.inner.log_info.site_tag = label;
    }

    /// Returns when the request arrived.
    pub fn received_at(&self) -> Timestamp {
        self.inner.received_at
    }

    /// Returns the content, for reading.
    pub fn body(&mut self) -> &mut IncomingBody {
        &mut self.inner.content
    }

    /// Takes the content out of the request, for example to respond with it.
    pub fn take_body(&mut self) -> IncomingBody {
        std::mem::take(&mut self.inner.content)
    }
}

/// Returns the host and port of a request as received, for use as a cache key.
pub fn authority(request: &Request) -> Option<&[u8]> {
    request.inner.head.authority.map(|span| span.of(request.head_bytes()))
}

/// Returns the address and port that the client of a request connected to: that of the accepted connection, or the
/// destination in the header of the PROXY protocol. `None` for a Unix socket, and for a request without a connection.
pub fn local_address(request: &Request) -> Option<SocketAddr> {
    request.inner.local.as_deref().copied()
}

/// Returns the part of the received target after the first `?`.
pub fn received_query(request: &Request) -> Option<&str> {
    request.inner.head.target.query.map(|span| ascii(span.of(request.head_bytes())))
}

/// Replaces the query for the application, when it processes the request as one for another target; an empty one stands for
/// none. Head, target and [`received_query`] keep what was received.
///
/// # Panics
/// If it has other characters than visible ASCII, which no query of a request has.
pub fn replace_query(request: &mut Request, query: &str) {
    assert!(query.bytes().all(|b| b.is_ascii_graphic()), "a query is percent-encoded");
    request.inner.replaced_query = Some(query.into());
}

/// Keeps a value, such as the permit of a limit, until the response to a request has been sent or has failed.
pub fn hold_until_sent(request: &mut Request, value: Box<dyn Any>) {
    request.inner.held.push(value);
}

/// Returns the facts about the server that a request was forwarded to, if the application has set them.
pub fn upstream_of(request: &Request) -> Option<&UpstreamRecord> {
    request.inner.log_info.upstream.as_ref()
}

/// Sets the facts about the server that a request is forwarded to, for the log.
pub fn set_upstream(request: &mut Request, upstream: UpstreamRecord) {
    request.inner.log_info.upstream = Some(upstream);
}

/// Returns what [`set_observer_note`] has set.
pub fn observer_note(request: &Request) -> Option<&Rc<dyn Any>> {
    request.inner.log_info.note.get()
}

/// Keeps a value with a request, which the observer of the application finds when the request has finished. Only the first
/// call has an effect.
pub fn set_observer_note(request: &Request, note: Rc<dyn Any>) {
    let _ = request.inner.log_info.note.set(note);
}

/// Sends an interim response (1xx, except 101) before the response. The client has to use HTTP/1.1 or later.
///
/// # Errors
/// [`ContentError::Ended`] if the application does not send interim responses
/// ([`Service::sends_interim`](super::Service::sends_interim)); [`ContentError::Disconnected`] if the client does not
/// read what was already sent.
pub fn send_interim(request: &Request, status: StatusCode, fields: &Fields) -> Result<(), ContentError> {
    request.inner.interim_sender.as_ref().ok_or(ContentError::Ended)?.send(status, fields)
}

/// Converts a target or method, which the parser restricts to ASCII.
fn ascii(bytes: &[u8]) -> &str {
    debug_assert!(bytes.is_ascii());
    std::str::from_utf8(bytes).unwrap_or_default()
}
