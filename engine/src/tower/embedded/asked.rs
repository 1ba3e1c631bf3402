//! From a request of the ecosystem's to one of the engine's.
//!
//! The head is written down again and judged like any other, so what an application of the
//! engine's gets is always a head that passed the one judgement there is.

use crate::buffer::Buffer;
use crate::service::{ContentError, ContentSource, IncomingBody, Parts, Remarks, Request};
use crate::tower::current::Current;
use crate::tower::{BoxError, trailers};
use bytes::{Buf, Bytes};
use http::{Version, header, request};
use http_body::Body;
use selvedge_proto::field::Fields;
use selvedge_proto::http1::parse_request;
use selvedge_proto::limits::{FIELDS_CEILING, HEAD_BYTES_CEILING, Limits};
use selvedge_proto::{Reject, Status};
use std::cell::{Cell, RefCell};
use std::error::Error;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, ready};

thread_local! {
    /// Parts that have served a request.
    static SPARE: Cell<Option<Box<Parts>>> = const { Cell::new(None) };
}

/// Whoever holds content while it is read.
pub(super) type Content = Option<Rc<dyn ContentSource>>;

/// A request as the engine has it, and its content, which lives as long as somebody holds it.
///
/// # Errors
/// When it is none that the engine would take.
pub(super) fn request<B>(asked: http::Request<B>, current: Current) -> Result<(Request, Content), Reject>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let (head, body) = asked.into_parts();
    let length = match body.size_hint().exact() {
        _ if body.is_end_stream() => Some(0),
        length => length,
    };
    let mut parts = SPARE.take().unwrap_or_default();
    parts.head.clear();
    parts.bytes = Buffer::take();
    parts.start = 0;
    write(&mut parts.bytes, &head, length);
    // As long as the engine can have it: how much is too much was another's to judge.
    let limits = Limits {
        request_line_bytes_max: HEAD_BYTES_CEILING,
        head_bytes_max: HEAD_BYTES_CEILING,
        fields_max: FIELDS_CEILING,
        ..Limits::default()
    };
    let Parts { head, bytes, .. } = &mut *parts;
    if !parse_request(bytes, &limits, head)? {
        return Err(Reject::HeadTooLarge);
    }
    (parts.peer, parts.moment) = (current.peer, current.moment);
    let mut content: Content = None;
    if length != Some(0) {
        let source: Rc<dyn ContentSource> =
            Rc::new(Source { body: RefCell::new(Box::pin(body)), trailers: RefCell::default() });
        let weak: Weak<dyn ContentSource> = Rc::downgrade(&source);
        parts.content = IncomingBody::new(weak, 0, length, u64::MAX);
        content = Some(source);
    }
    Ok((Request { parts }, content))
}

/// Keeps what a request was made of for the next one.
pub(super) fn settle(request: Request) {
    let mut parts = request.parts;
    parts.bytes = Buffer::default();
    parts.content = IncomingBody::default();
    parts.remarks = Remarks::default();
    parts.keepsake = None;
    SPARE.set(Some(parts));
}

/// Writes a head with content of this length, if it is known.
fn write(bytes: &mut Vec<u8>, head: &request::Parts, length: Option<u64>) {
    let mut put = |pieces: &[&[u8]]| pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
    let target = match (&head.method, authority) {
        (&http::Method::CONNECT, Some(authority)) => authority,
        _ => head.uri.path_and_query().map_or("/", |path| path.as_str()).as_bytes(),
    };
    // The path of `http://example.com?a` is empty, which is as good as a slash (RFC 9110 §4.2.3).
    let slash: &[u8] = if target.starts_with(b"?") { b"/" } else { b"" };
    // Only HTTP/1.0 may leave out for which host it is.
    let is_old = head.version == Version::HTTP_10 || (authority.is_none() && !head.headers.contains_key(header::HOST));
    let version: &[u8] = if is_old { b" HTTP/1.0\r\n" } else { b" HTTP/1.1\r\n" };
    put(&[head.method.as_str().as_bytes(), b" ", slash, target, version]);
    if let Some(authority) = authority {
        let host = authority.rsplit(|&b| b == b'@').next().unwrap_or(authority);
        put(&[b"host: ", host, b"\r\n"]);
    }
    for (name, value) in &head.headers {
        let is_said_anew = name == header::CONTENT_LENGTH
            || name == header::TRANSFER_ENCODING
            || (name == header::HOST && authority.is_some());
        if !is_said_anew {
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

/// The content of a request of the ecosystem's.
struct Source<B> {
    body: RefCell<Pin<Box<B>>>,
    trailers: RefCell<Option<Fields>>,
}

impl<B> ContentSource for Source<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_content(&self, _: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        loop {
            let Some(frame) = ready!(self.body.borrow_mut().as_mut().poll_frame(cx)) else { return Poll::Ready(None) };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Some(Err(reason(error.into())))),
            };
            match frame.into_data() {
                Ok(mut data) => return Poll::Ready(Some(Ok(data.copy_to_bytes(data.remaining())))),
                Err(frame) => {
                    let fields = frame.into_trailers().ok().map(|map| trailers::from_map(&map));
                    *self.trailers.borrow_mut() = fields;
                }
            }
        }
    }

    fn trailers(&self, _: u32) -> Option<Fields> {
        self.trailers.borrow_mut().take()
    }

    fn send_interim(&self, _: u32, _: Status, _: &Fields) -> Result<(), ContentError> {
        Err(ContentError::Ended)
    }
}

/// What was the matter with content, where this library has said so somewhere beneath.
fn reason(error: BoxError) -> ContentError {
    let mut beneath: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(error) = beneath {
        if let Some(known) = error.downcast_ref::<ContentError>() {
            return *known;
        }
        beneath = error.source();
    }
    ContentError::Disconnected
}
