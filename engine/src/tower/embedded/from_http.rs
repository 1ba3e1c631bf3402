//! Converts `http::Request` to engine requests.
//!
//! The head is checked like a received one, so an engine application only gets valid heads.

use crate::buffer::Buffer;
use crate::service::{ContentError, ContentSource, IncomingBody, LogInfo, Request, RequestInner, StreamId};
use crate::tower::request_context::RequestContext;
use crate::tower::{BoxError, header_map};
use bytes::{Buf, Bytes};
use http::{Version, header, request};
use http_body::Body;
use selvedge_proto::field::Fields;
use selvedge_proto::head::{self, RequestFraming};
use selvedge_proto::limits::{FIELDS_CEILING, HEAD_BYTES_CEILING, MessageLimits};
use selvedge_proto::{HeadBuilder, Reject, RequestLine, StatusCode};
use std::borrow::Cow;
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
/// If the head would be refused as a received one.
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
    inner.bytes = Buffer::take();
    inner.start = 0;
    build_head(&mut inner, &head, length)?;
    (inner.peer, inner.received_at) = (context.peer, context.received_at);
    let mut content: SharedContent = None;
    if length != Some(0) {
        let source: Rc<dyn ContentSource> =
            Rc::new(HttpContent { body: RefCell::new(Box::pin(body)), trailers: RefCell::default() });
        let weak: Weak<dyn ContentSource> = Rc::downgrade(&source);
        inner.content = IncomingBody::new(weak, StreamId::default(), length, u64::MAX);
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

/// Builds a head whose content has this length, if known.
fn build_head(inner: &mut RequestInner, parts: &request::Parts, length: Option<u64>) -> Result<(), Reject> {
    // The maximum limits, since the other server has applied its own.
    let limits = MessageLimits {
        request_line_bytes_max: HEAD_BYTES_CEILING,
        head_bytes_max: HEAD_BYTES_CEILING,
        fields_max: FIELDS_CEILING,
        ..MessageLimits::default()
    };
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let target = match (&parts.method, authority) {
        // An extended CONNECT (RFC 8441) has a scheme and a path.
        (&http::Method::CONNECT, Some(authority)) if parts.uri.scheme().is_none() => Cow::Borrowed(authority),
        _ => match parts.uri.path_and_query().map_or("/", |path| path.as_str()) {
            // The path of `http://example.com?a` is empty, which is equivalent to `/` (RFC 9110 §4.2.3).
            query if query.starts_with('?') => Cow::Owned(format!("/{query}")),
            target => Cow::Borrowed(target),
        },
    };
    // Only HTTP/1.0 permits a request without Host.
    let is_old =
        parts.version == Version::HTTP_10 || (authority.is_none() && !parts.headers.contains_key(header::HOST));
    let version = match parts.version {
        _ if is_old => head::Version::Http10,
        Version::HTTP_2 => head::Version::Http2,
        Version::HTTP_3 => head::Version::Http3,
        _ => head::Version::Http11,
    };
    let line = RequestLine { method: parts.method.as_str().as_bytes(), target: target.as_bytes(), version };
    let mut builder = HeadBuilder::new(&mut inner.bytes, &mut inner.head, &limits, line)?;
    if let Some(authority) = authority {
        let host = authority.rsplit('@').next().unwrap_or(authority);
        builder.field(b"host", host.as_bytes())?;
    }
    for (name, value) in &parts.headers {
        let is_generated = name == header::CONTENT_LENGTH
            || name == header::TRANSFER_ENCODING
            || (name == header::HOST && authority.is_some());
        if !is_generated {
            builder.field(name.as_str().as_bytes(), value.as_bytes())?;
        }
    }
    match length {
        Some(0) => {}
        Some(length) => builder.field(b"content-length", length.to_string().as_bytes())?,
        None if version.is_http1() => builder.field(b"transfer-encoding", b"chunked")?,
        None => return builder.finish_unframed(RequestFraming::UntilStreamEnd),
    }
    builder.finish()
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
    fn poll_content(&self, _: StreamId, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
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

    fn trailers(&self, _: StreamId) -> Option<Fields> {
        self.trailers.borrow_mut().take()
    }

    fn send_interim(&self, _: StreamId, _: StatusCode, _: &Fields) -> Result<(), ContentError> {
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
