//! From a request of the engine's to one of the ecosystem's, and from an answer of theirs to one
//! of the engine's.

use crate::limits::COPY_BYTES_MAX;
use crate::service::{self, Ahead, Chunks, IncomingBody, Request, Response, StreamError};
use crate::tower::held::Held;
use crate::tower::noted::Noted;
use crate::tower::table::Ticket;
use crate::tower::{BoxError, Reason, hints, send_file, trailers, upgrade};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use http_body::Body;
use selvedge_proto::Status;
use selvedge_proto::field::{Fields, Known, members};
use selvedge_proto::head::{Framing, RequestHead, Version};
use selvedge_proto::method::Method;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// What of a request decides how its answer is read, and what was lent to the application.
pub(super) struct Asked {
    method: Method,
    /// The client takes fields behind content (RFC 9110 §10.1.4).
    takes_trailers: bool,
    content: Option<(Ticket, IncomingBody)>,
    upgrade: Option<upgrade::Offer>,
    noted: Option<Noted>,
    _hints: Option<hints::Lent>,
}

thread_local! {
    /// A map that has served an answer, whose room serves the next request.
    static SPARE: Cell<Option<HeaderMap>> = const { Cell::new(None) };
    /// The fields of a section that came more than once.
    static REPEATED: RefCell<Option<Repeated>> = const { RefCell::new(None) };
    /// Room for heads. A request has its part of it, and when all of it was given out and nobody
    /// has any more, it is used again.
    static HEADS: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// What is set aside for heads at a time.
const HEADS_BYTES: usize = 8 * 1024;

/// A request as the ecosystem has it.
///
/// # Errors
/// With the answer to give, where its target is no URI or its content is more than is taken.
pub(super) fn request(request: &mut Request) -> Result<(http::Request<super::Body>, Asked), Response> {
    // Taken in any case: parts are used again.
    let ahead = hints_of(request);
    if request.parts.content.length().is_some_and(|length| length > request.parts.content.bytes_max()) {
        return Err(Response::from(service::ContentError::TooLarge));
    }
    let bytes = request.head_bytes();
    let head = request.head();
    let target = head.target.whole.of(bytes);
    let (target, FieldMap { map, takes_trailers }) = match known_fields(head, bytes) {
        Some(fields) => (copy(target), fields),
        None => {
            // One copy of the head, which the target and all values share.
            let shared = copy(&bytes[..head.len]);
            (part(&shared, bytes, target), FieldMap::of(head, bytes, bytes, &shared, SPARE.take().unwrap_or_default()))
        }
    };
    let Ok(uri) = Uri::from_maybe_shared(target) else {
        return Err(Response::error_with_text(Status::BAD_REQUEST, "the request target is no URI"));
    };
    let mut converted = http::Request::new(super::Body::empty());
    *converted.uri_mut() = uri;
    *converted.headers_mut() = map;
    *converted.method_mut() = method(request);
    if request.version() == Version::Http10 {
        *converted.version_mut() = http::Version::HTTP_10;
    }
    let mut asked =
        Asked { method: request.method(), takes_trailers, content: None, upgrade: None, noted: None, _hints: None };
    if head_has_content(request) {
        let content = request.take_body();
        let again = content.again();
        let (body, ticket) = super::Body::hold(content);
        *converted.body_mut() = body;
        asked.content = Some((ticket, again));
    } else if wants_to_upgrade(request) {
        asked.upgrade = Some(upgrade::offer(converted.extensions_mut()));
    }
    if let Some(ahead) = ahead {
        let (handle, lent) = hints::lend(ahead);
        converted.extensions_mut().insert(handle);
        asked._hints = Some(lent);
    }
    Ok((converted, asked))
}

/// Fields as the ecosystem has them.
#[derive(Clone)]
struct FieldMap {
    map: HeaderMap,
    takes_trailers: bool,
}

impl FieldMap {
    /// Those of a head, which stand in `copied`, of which `shared` is a copy.
    fn of(head: &RequestHead, bytes: &[u8], copied: &[u8], shared: &Bytes, mut map: HeaderMap) -> Self {
        let mut takes_trailers = false;
        for (name, value) in head.fields(bytes) {
            // Both were judged with the head.
            let Ok(name) = HeaderName::from_bytes(name) else { continue };
            let Ok(shared) = HeaderValue::from_maybe_shared(part(shared, copied, value)) else { continue };
            takes_trailers |=
                name == header::TE && members(value).any(|member| member.eq_ignore_ascii_case(b"trailers"));
            map.append(name, shared);
        }
        Self { map, takes_trailers }
    }
}

/// A field section, and what was made of it.
struct Repeated {
    section: Bytes,
    fields: FieldMap,
}

/// The fields of a head whose section has come before: a copy of them takes less than reading them.
fn known_fields(head: &RequestHead, bytes: &[u8]) -> Option<FieldMap> {
    if !head.is_section_again() {
        return None;
    }
    let section = head.field_section(bytes);
    REPEATED.with_borrow_mut(|repeated| {
        if let Some(repeated) = repeated.as_ref().filter(|repeated| repeated.section == section) {
            return Some(repeated.fields.clone());
        }
        // No part of the room for heads, all of which would be kept with it.
        let shared = Bytes::copy_from_slice(section);
        let fields = FieldMap::of(head, bytes, section, &shared, HeaderMap::new());
        Some(repeated.insert(Repeated { section: shared, fields }).fields.clone())
    })
}

/// A copy of a head that many may share.
fn copy(head: &[u8]) -> Bytes {
    let mut room = HEADS.take();
    if room.capacity() < head.len() {
        room.reserve(head.len().max(HEADS_BYTES));
    }
    room.extend_from_slice(head);
    let copy = room.split().freeze();
    HEADS.set(room);
    copy
}

fn head_has_content(request: &Request) -> bool {
    request.head().framing != Framing::None
}

/// Whether the client offers another protocol. One that came with HTTP/1.0, or that the hop
/// before this one did not mean, is ignored (RFC 9110 §7.8).
fn wants_to_upgrade(request: &Request) -> bool {
    let mut options = request.known_values(Known::Connection).flat_map(members);
    request.known(Known::Upgrade).is_some()
        && request.version() == Version::Http11
        && options.any(|option| option.eq_ignore_ascii_case(b"upgrade"))
}

/// The way to send hints, to a client that knows of interim answers (RFC 9110 §15.2).
fn hints_of(request: &mut Request) -> Option<Ahead> {
    request.parts.ahead.take().filter(|_| request.version() == Version::Http11)
}

/// The part of `shared`, a copy of the beginning of `bytes`, that is a copy of `part`.
pub(super) fn part(shared: &Bytes, bytes: &[u8], part: &[u8]) -> Bytes {
    let at = part.as_ptr().addr().saturating_sub(bytes.as_ptr().addr());
    match shared.get(at..at + part.len()) {
        Some(_) if !part.is_empty() => shared.slice(at..at + part.len()),
        _ => Bytes::copy_from_slice(part),
    }
}

fn method(request: &Request) -> http::Method {
    match request.method() {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
        Method::Post => http::Method::POST,
        Method::Put => http::Method::PUT,
        Method::Delete => http::Method::DELETE,
        Method::Connect => http::Method::CONNECT,
        Method::Options => http::Method::OPTIONS,
        Method::Trace => http::Method::TRACE,
        Method::Patch => http::Method::PATCH,
        // A token, as the head was judged.
        Method::Other => http::Method::from_bytes(request.method_text().as_bytes()).unwrap_or_default(),
    }
}

/// An answer as the engine has it, and its content where that has yet to be read.
pub(super) fn response<B>(answer: http::Response<B>, asked: &mut Asked) -> (Response, Option<Reading<B>>)
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = answer.into_parts();
    asked.noted = parts.extensions.remove();
    let Some(status) = Status::new(parts.status.as_u16()) else {
        return (failed("the application's status is none"), None);
    };
    let status = asked.blamed(status);
    let mut response = Response::new(status);
    let mut headers = parts.headers;
    let mut announced = None;
    let (mut names_trailers, mut closes, mut is_coded) = (false, false, false);
    let fields = response.edit_fields();
    for (name, value) in &headers {
        if name == header::CONTENT_LENGTH {
            announced = value.to_str().ok().and_then(|digits| digits.parse().ok());
        } else if name == header::CONNECTION {
            closes |= members(value.as_bytes()).any(|option| option.eq_ignore_ascii_case(b"close"));
        } else {
            names_trailers |= name == header::TRAILER;
            is_coded |= name == header::CONTENT_ENCODING;
            // Both are valid already. What the engine alone writes, it writes.
            let _ = fields.append(name.as_str(), value.as_bytes());
        }
    }
    if closes {
        response = response.closing();
    }
    if let Some(Reason(reason)) = parts.extensions.get() {
        response = response.because(reason);
    }
    if status == Status::SWITCHING_PROTOCOLS {
        let Some(offer) = asked.upgrade.take() else {
            return (failed("there was no upgrade to accept"), None);
        };
        let protocol = headers.get(header::UPGRADE).map(|value| Bytes::copy_from_slice(value.as_bytes()));
        response.body = offer.accept(protocol.unwrap_or_default());
        return (response, None);
    }
    headers.clear();
    SPARE.set(Some(headers));
    let trailers = asked.takes_trailers && names_trailers;
    match send_file::take(body) {
        Ok(file) => (response.body(file), None),
        Err((body, hint)) => {
            let length = hint.exact();
            let forbids_content = status.forbids_content();
            let content =
                Reading { body, length, announced, trailers, is_coded, method: asked.method, forbids_content };
            (response, Some(content))
        }
    }
}

/// The application's fault, for the log.
pub(super) fn failed(reason: &'static str) -> Response {
    Response::error(Status::INTERNAL_SERVER_ERROR).because(reason)
}

impl Asked {
    /// What is said of content that could not be read: an application that knows only that it could
    /// not takes the request for a bad one.
    fn blamed(&self, status: Status) -> Status {
        if status != Status::BAD_REQUEST {
            return status;
        }
        match self.failure() {
            Some(service::ContentError::TooLarge) => Status::CONTENT_TOO_LARGE,
            Some(service::ContentError::TooSlow) => Status::REQUEST_TIMEOUT,
            _ => status,
        }
    }

    /// Why the request's content could not be read to its end, if it could not.
    fn failure(&self) -> Option<service::ContentError> {
        self.content.as_ref()?.1.failure()
    }

    /// What is answered where the answer's content could not be read: one that is made of the
    /// request's content fails with it.
    pub(super) fn excuse(&self, text: &'static str) -> Response {
        self.failure().map_or_else(|| failed(text), Response::from)
    }

    /// Says what was found out, and gives content back that the application let go of without an
    /// answer made of it.
    pub(super) fn settle(self, request: &mut Request) {
        if let Some(noted) = self.noted {
            noted.remark(request);
        }
        if let Some((ticket, content)) = self.content
            && !Held::is_held(ticket)
        {
            request.parts.content = content;
        }
    }
}

/// Content, and how it is read.
pub(super) struct Reading<B> {
    body: B,
    /// Its length, as it says it itself.
    length: Option<u64>,
    /// Its length, as the head says it.
    announced: Option<u64>,
    /// Whether fields may follow it.
    trailers: bool,
    /// Whether it has a content coding.
    is_coded: bool,
    method: Method,
    /// Whether the answer's status allows none.
    forbids_content: bool,
}

impl<B> Reading<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Reads it, or the beginning of it where it comes piece by piece.
    pub(super) async fn read(self) -> Result<service::Body, &'static str> {
        let Self { body, length, announced, trailers, is_coded, method, forbids_content } = self;
        if method == Method::Head {
            // What GET would get is announced, and none of it is made. Coded content that was left out
            // already had a length that nobody knows.
            let is_unknown = length.is_none() || is_coded;
            let length = announced.or(length.filter(|_| !body.is_end_stream()));
            let length = if is_unknown { length } else { Some(length.unwrap_or(0)) };
            return Ok(service::Body::Stream { length, chunks: Box::pin(Nothing) });
        }
        match length {
            _ if forbids_content => Ok(service::Body::Empty),
            None if announced == Some(0) && !trailers => Ok(service::Body::Empty),
            Some(0) => Ok(service::Body::Empty),
            Some(length) if length <= COPY_BYTES_MAX as u64 && !trailers => gather(pin!(body), length as usize).await,
            _ if body.is_end_stream() && !trailers => Ok(service::Body::Empty),
            _ => {
                let length = length.or(announced).filter(|_| !trailers);
                let trailers = trailers.then(Fields::new);
                let mut frames = Frames { body: Box::pin(body), trailers, is_over: false };
                match poll_fn(|cx| Poll::Ready(Pin::new(&mut frames).poll_chunk(cx))).await {
                    // All of it is at hand, and need not be read piece by piece.
                    Poll::Ready(Some(Ok(bytes))) if Some(bytes.len() as u64) == length => {
                        Ok(service::Body::Bytes(bytes))
                    }
                    Poll::Ready(Some(Err(_))) => Err("the application's content failed"),
                    Poll::Ready(None) if length.is_some() => Err("the application's content is shorter than it said"),
                    Poll::Ready(None) if frames.trailers.is_none() => Ok(service::Body::Empty),
                    first => {
                        let first = match first {
                            Poll::Ready(Some(Ok(bytes))) => bytes,
                            _ => Bytes::new(),
                        };
                        Ok(service::Body::Stream { length, chunks: Box::pin(Resumed { first, frames }) })
                    }
                }
            }
        }
    }
}

/// Small content of known length, as one piece.
async fn gather<B>(mut body: Pin<&mut B>, length: usize) -> Result<service::Body, &'static str>
where
    B: Body,
{
    let mut gathered = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let frame = frame.map_err(|_| "the application's content failed")?;
        let Ok(mut data) = frame.into_data() else { continue };
        if data.remaining() == length {
            return Ok(service::Body::Bytes(data.copy_to_bytes(length)));
        }
        gathered.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        if gathered.len() >= length {
            break;
        }
    }
    match gathered.len() == length {
        true => Ok(service::Body::Bytes(gathered.freeze())),
        false => Err("the application's content had another length than it said"),
    }
}

/// Content that is never asked for.
struct Nothing;

impl Chunks for Nothing {
    fn poll_chunk(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        Poll::Ready(None)
    }
}

/// The pieces of a body of the ecosystem's.
struct Frames<B> {
    body: Pin<Box<B>>,
    /// The fields behind it, where the client takes them.
    trailers: Option<Fields>,
    /// It has ended. A body that is asked again may panic.
    is_over: bool,
}

impl<B> Chunks for Frames<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        while !self.is_over {
            let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)) else {
                self.is_over = true;
                break;
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Some(Err(StreamError(error.into().to_string())))),
            };
            match frame.into_data() {
                Ok(mut data) => return Poll::Ready(Some(Ok(data.copy_to_bytes(data.remaining())))),
                Err(frame) => {
                    if let (Some(trailers), Ok(map)) = (&mut self.trailers, frame.into_trailers()) {
                        *trailers = trailers::from_map(&map);
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        self.trailers.take().unwrap_or_default()
    }
}

/// The same, whose first piece was taken already.
struct Resumed<B> {
    first: Bytes,
    frames: Frames<B>,
}

impl<B> Chunks for Resumed<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.first))));
        }
        Pin::new(&mut self.frames).poll_chunk(cx)
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        Pin::new(&mut self.frames).trailers()
    }
}
