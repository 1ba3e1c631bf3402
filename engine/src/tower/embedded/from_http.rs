//! Converts `http::Request` to engine requests.
//!
//! The head is serialized and parsed again, so an engine application only gets heads that have passed
//! the parser's validation.

use crate::buffer::Buffer;
use crate::service::{ContentError, ContentSource, IncomingBody, LogInfo, Request, RequestInner};
use crate::tower::request_context::RequestContext;
use crate::tower::{BoxError, header_map};
use bytes::{Buf, Bytes};
use http::{Version, header, request};
use http_body::Body;
use selvedge_proto::field::Fields;
use selvedge_proto::http1::parse_request;
use selvedge_proto::limits::{FIELDS_CEILING, HEAD_BYTES_CEILING, MessageLimits};
use selvedge_proto::{Reject, StatusCode};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

thread_local! {
    /// A request struct for reuse.
    static SPARE_REQUEST: Cell<Option<Box<RequestInner>>> = const { Cell::new(None) };
}

/// Keeps the content alive while it is read.
pub(super) type SharedContent = Option<Rc<dyn ContentSource>>;

/// Converts a request. Also returns its content, which must stay alive while it is read.
///
/// # Errors
/// If the engine's parser rejects the head.
pub(super) fn request<B>(
    http_request: http::Request<B>,
    context: RequestContext,
) -> Result<(Request, SharedContent), Reject>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = http_request.into_parts();
    let length = match body.size_hint().exact() {
        _ if body.is_end_stream() => Some(0),
        length => length,
    };
    let mut inner = SPARE_REQUEST.take().unwrap_or_default();
    inner.head.clear();
    inner.bytes = Buffer::take();
    inner.start = 0;
    write_head(&mut inner.bytes, &head, length);
    // The maximum limits, since the other server has applied its own.
    let limits = MessageLimits {
        request_line_bytes_max: HEAD_BYTES_CEILING,
        head_bytes_max: HEAD_BYTES_CEILING,
        fields_max: FIELDS_CEILING,
        ..MessageLimits::default()
    };
    let RequestInner { head, bytes, .. } = &mut *inner;
    if !parse_request(bytes, &limits, head)? {
        return Err(Reject::HeadTooLarge);
    }
    (inner.peer, inner.received_at) = (context.peer, context.received_at);
    let mut content: SharedContent = None;
    if length != Some(0) {
        let source: Rc<dyn ContentSource> =
            Rc::new(HttpContent { body: RefCell::new(Box::pin(body)), trailers: RefCell::default() });
        let weak: Weak<dyn ContentSource> = Rc::downgrade(&source);
        inner.content = IncomingBody::new(weak, 0, length, u64::MAX);
        content = Some(source);
    }
    Ok((Request { inner }, content))
}

/// Stores the request struct for reuse.
pub(super) fn recycle(request: Request) {
    let mut inner = request.inner;
    inner.bytes = Buffer::default();
    inner.content = IncomingBody::default();
    inner.log_info = LogInfo::default();
    inner.connection_extensions = None;
    SPARE_REQUEST.set(Some(inner));
}

/// Serializes a head whose content has this length, if known.
fn write_head(bytes: &mut Vec<u8>, head: &request::Parts, length: Option<u64>) {
    let mut put = |slices: &[&[u8]]| slices.iter().for_each(|slice| bytes.extend_from_slice(slice));
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match (&head.method, authority) {
        (&http::Method::CONNECT, Some(authority)) => authority,
        _ => head.uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes(),
    };
    // The path of `http://example.com?a` is empty, which is equivalent to `/` (RFC 9110 §4.2.3).
    let slash: &[u8] = if target.starts_with(b"?") { b"/" } else { b"" };
    // Only HTTP/1.0 permits a request without Host.
    let is_old = head.version == Version::HTTP_10 || (authority.is_none() && !head.headers.contains_key(header::HOST));
    let version: &[u8] = if is_old { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    put(&[head.method.as_str().as_bytes(), b" ", slash, target, version]);
    if let Some(authority) = authority {
        let host = authority.rsplit(|&b| b == b'@').next().unwrap_or(authority);
        put(&[b"host: ", host, b"\r\n"]);
    }
    for (name, value) in &head.headers {
        let is_generated = name == header::CONTENT_LENGTH
            || name == header::TRANSFER_ENCODING
            || (name == header::HOST && authority.is_some());
        if !is_generated {
            put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
    }
    match length {
        Some(0) => {}
        Some(length) => put(&[b"content-length: ", length.to_string().as_bytes(), b"\r\n"]),
        None => put(&[b"transfer-encoding: chunked\r\n"]),
    }
    put(&[b"\r\n"]);
}

/// The content of an `http::Request` as a content source.
struct HttpContent<B> {
    body: RefCell<Pin<Box<B>>>,
    trailers: RefCell<Option<Fields>>,
}

impl<B> ContentSource for HttpContent<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_content(&self, _: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        loop {
            let Some(frame) = ready!(self.body.borrow_mut().as_mut().poll_frame(cx)) else { return Poll::Ready(None) };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Some(Err(content_error(error.into())))),
            };
            match frame.into_data() {
                Ok(mut data) => return Poll::Ready(Some(Ok(data.copy_to_bytes(data.remaining())))),
                Err(frame) => {
                    let fields = frame.into_trailers().ok().map(|map| header_map::to_fields(&map));
                    *self.trailers.borrow_mut() = fields;
                }
            }
        }
    }

    fn trailers(&self, _: u32) -> Option<Fields> {
        self.trailers.borrow_mut().take()
    }

    fn send_interim(&self, _: u32, _: StatusCode, _: &Fields) -> Result<(), ContentError> {
        Err(ContentError::Ended)
    }
}

/// Returns the [`ContentError`] in the source chain of an error, or [`ContentError::Disconnected`].
fn content_error(error: BoxError) -> ContentError {
    let mut source: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = source {
        if let Some(known) = error.downcast_ref::<ContentError>() {
            return *known;
        }
        source = error.source();
    }
    ContentError::Disconnected
}
