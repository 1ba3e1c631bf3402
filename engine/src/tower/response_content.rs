//! Reads the content of an application's response: at once if it is small or available, else as a stream.

use crate::limits::COPY_BYTES_MAX;
use crate::service::{self, Chunks, StreamError};
use crate::tower::{BoxError, header_map};
use bytes::{Buf, Bytes, BytesMut};
use http_body::{Body, Frame};
use selvedge_proto::field::Fields;
use selvedge_proto::method::Method;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// Which responses may have trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trailers {
    /// None: the client does not accept them, or the application does not announce them.
    Never,
    /// This one, whose content has no announced length (RFC 9112 §7.1.2).
    AfterChunks,
    /// All, whether their length is announced or not (RFC 9113 §8.1).
    Always,
}

/// The content of a response, and how to read it.
pub(super) struct ResponseContent<B> {
    pub(super) body: B,
    /// The length according to the body's size hint.
    pub(super) exact_length: Option<u64>,
    /// The length according to Content-Length.
    pub(super) announced_length: Option<u64>,
    pub(super) trailers: Trailers,
    pub(super) method: Method,
    /// Whether the status code forbids content.
    pub(super) forbids_content: bool,
}

impl<B> ResponseContent<B>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    /// Reads all content if it is small or available, and the first chunk if it is streamed.
    pub(super) async fn into_body(self) -> Result<service::Body, &'static str> {
        if self.method == Method::Head {
            let chunks = Box::pin(Prepared::default());
            return Ok(service::Body::Stream { length: self.length_of_get(), chunks });
        }
        let Self { body, exact_length, announced_length, trailers, forbids_content, .. } = self;
        let has_ended = || body.is_end_stream();
        match (exact_length, trailers) {
            _ if forbids_content => Ok(service::Body::Empty),
            (None, Trailers::Never) if announced_length == Some(0) => Ok(service::Body::Empty),
            (Some(0), Trailers::Never | Trailers::AfterChunks) => Ok(service::Body::Empty),
            (Some(length), Trailers::Never | Trailers::Always) if length <= COPY_BYTES_MAX as u64 => {
                collect_small(pin!(body), length as usize, trailers).await
            }
            (_, Trailers::Never | Trailers::Always) if has_ended() => Ok(service::Body::Empty),
            _ => {
                // A response with an announced length of 0 ends with its head.
                let has_length = |&length: &u64| length > 0 && trailers != Trailers::AfterChunks;
                let length = exact_length.or(announced_length).filter(has_length);
                let trailers = (trailers != Trailers::Never).then(Fields::new);
                begin_stream(FrameChunks { body: Box::pin(body), trailers, has_ended: false }, length).await
            }
        }
    }

    /// Returns the length that the response to a GET would have, as far as it is known. The body is dropped unread.
    fn length_of_get(&self) -> Option<u64> {
        //= RFC 9110 §9.3.2: a field that is known only while content is generated is omitted
        // An empty body may be one that a layer or axum has removed, so it tells no length.
        self.announced_length.or(self.exact_length.filter(|length| *length > 0 && !self.body.is_end_stream()))
    }
}

/// Polls the first chunk of a stream. If it is all, the content need not be streamed.
async fn begin_stream<B>(mut frames: FrameChunks<B>, length: Option<u64>) -> Result<service::Body, &'static str>
where
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let polled = poll_fn(|cx| Poll::Ready(Pin::new(&mut frames).poll_chunk(cx))).await;
    let has_trailers = |frames: &FrameChunks<B>| frames.trailers.as_ref().is_some_and(|fields| !is_empty(fields));
    let first = match polled {
        Poll::Ready(Some(Ok(bytes))) if Some(bytes.len() as u64) == length && !frames.may_have_trailers() => {
            return Ok(service::Body::Bytes(bytes));
        }
        Poll::Ready(Some(Err(_))) => return Err("the application's content failed"),
        Poll::Ready(None) if length.is_some() => return Err("the application's content is shorter than announced"),
        Poll::Ready(None) if !has_trailers(&frames) => return Ok(service::Body::Empty),
        Poll::Ready(Some(Ok(bytes))) => bytes,
        Poll::Ready(None) | Poll::Pending => Bytes::new(),
    };
    Ok(service::Body::Stream { length, chunks: Box::pin(PrefixedChunks { first, frames }) })
}

/// Collects small content of known length into one buffer, and the trailers after it if they may follow.
async fn collect_small<B>(
    mut body: Pin<&mut B>,
    length: usize,
    trailers: Trailers,
) -> Result<service::Body, &'static str>
where
    B: Body,
{
    const OTHER_LENGTH: &str = "the application's content has another length than announced";
    let (mut single, mut collected, mut fields) = (None, BytesMut::new(), Fields::new());
    let mut count = 0;
    while count < length || (trailers == Trailers::Always && !body.is_end_stream()) {
        let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else { break };
        match frame.map_err(|_| "the application's content failed")?.into_data() {
            Ok(mut data) => {
                let bytes = data.remaining();
                if count + bytes > length {
                    return Err(OTHER_LENGTH);
                }
                match (count, bytes) {
                    (_, 0) => {}
                    (0, _) if bytes == length => single = Some(data.copy_to_bytes(bytes)),
                    _ => collected.extend_from_slice(&data.copy_to_bytes(bytes)),
                }
                count += bytes;
            }
            Err(frame) => set_trailers(&mut fields, frame),
        }
    }
    if count != length {
        return Err(OTHER_LENGTH);
    }
    let bytes = single.unwrap_or_else(|| collected.freeze());
    if trailers == Trailers::Never || is_empty(&fields) {
        return Ok(service::Body::Bytes(bytes));
    }
    // A response with an announced length of 0 ends with its head.
    let length = (length > 0).then_some(length as u64);
    Ok(service::Body::Stream { length, chunks: Box::pin(Prepared { bytes, trailers: fields }) })
}

fn is_empty(fields: &Fields) -> bool {
    fields.lines().is_empty()
}

fn set_trailers<D>(fields: &mut Fields, frame: Frame<D>) {
    if let Ok(map) = frame.into_trailers() {
        *fields = header_map::to_fields(&map);
    }
}

/// Content that is complete, with its trailers.
#[derive(Default)]
struct Prepared {
    bytes: Bytes,
    trailers: Fields,
}

impl Chunks for Prepared {
    fn poll_chunk(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let bytes = std::mem::take(&mut self.bytes);
        Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)))
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        std::mem::take(&mut self.trailers)
    }

    fn may_have_trailers(&self) -> bool {
        !is_empty(&self.trailers)
    }
}

/// The chunks of an `http_body::Body`.
struct FrameChunks<B> {
    body: Pin<Box<B>>,
    /// The trailers, if the client accepts them.
    trailers: Option<Fields>,
    /// The body has ended; polling it again could panic.
    has_ended: bool,
}

impl<B> Chunks for FrameChunks<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        while !self.has_ended {
            let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)) else {
                self.has_ended = true;
                break;
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Poll::Ready(Some(Err(StreamError(error.into().to_string())))),
            };
            match frame.into_data() {
                Ok(mut data) => return Poll::Ready(Some(Ok(data.copy_to_bytes(data.remaining())))),
                Err(frame) => {
                    if let Some(trailers) = &mut self.trailers {
                        set_trailers(trailers, frame);
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        self.trailers.take().unwrap_or_default()
    }

    fn may_have_trailers(&self) -> bool {
        match &self.trailers {
            Some(trailers) => !is_empty(trailers) || !(self.has_ended || self.body.is_end_stream()),
            None => false,
        }
    }
}

/// Chunks whose first chunk was already read.
struct PrefixedChunks<B> {
    first: Bytes,
    frames: FrameChunks<B>,
}

impl<B> Chunks for PrefixedChunks<B>
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

    fn may_have_trailers(&self) -> bool {
        self.frames.may_have_trailers()
    }
}
