//! Request content as an [`http_body::Body`].

use crate::service::{ContentError, IncomingBody};
use crate::tower::header_map;
use crate::tower::remote_body::RemoteBody;
use crate::tower::slab::SlabKey;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The content of a request: an [`http_body::Body`] for tower services and axum.
///
/// A poll reads from the connection, so a slow reader slows down its client. The first poll sends
/// `100 Continue` if the client expects it. The body can be read on any thread; the worker's own
/// thread is the cheapest. After the response was sent, reading fails and the engine discards the
/// remaining content.
#[derive(Default)]
pub struct Body {
    // Boxed, since most requests have no content and the body moves through every layer.
    source: Option<Box<BodySource>>,
}

struct BodySource {
    remote: RemoteBody,
    remaining: Option<u64>,
    trailers: TrailersAfterLength,
    has_ended: bool,
}

/// Whether trailers may follow content whose length was announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrailersAfterLength {
    /// As in HTTP/1.1: the content ends with its last byte.
    Never,
    /// As in HTTP/2: the end is known when it is read.
    Possible,
}

impl Body {
    /// Creates an empty body.
    pub const fn empty() -> Self {
        Self { source: None }
    }

    /// Wraps content that this thread owns. Also returns its key in this thread's table.
    pub(super) fn from_content(content: IncomingBody, trailers: TrailersAfterLength) -> (Self, SlabKey) {
        let remaining = content.length();
        let remote = RemoteBody::new(content);
        let key = remote.key();
        (Self { source: Some(Box::new(BodySource { remote, remaining, trailers, has_ended: false })) }, key)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = ContentError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ContentError>>> {
        let Some(content) = &mut self.source else { return Poll::Ready(None) };
        if content.has_ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(content.remote.poll_chunk(cx)) {
            Some(Ok(bytes)) => {
                if let Some(left) = &mut content.remaining {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) => {
                content.has_ended = true;
                Some(Err(error))
            }
            None => {
                content.has_ended = true;
                let fields = content.remote.trailers().map(|fields| header_map::from_fields(&fields));
                fields.filter(|fields| !fields.is_empty()).map(|fields| Ok(Frame::trailers(fields)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.source.as_ref().is_none_or(|content| {
            let ends_by_length = content.trailers == TrailersAfterLength::Never && content.remaining == Some(0);
            content.has_ended || ends_by_length
        })
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            None => SizeHint::with_exact(0),
            Some(content) => content.remaining.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            None => f.write_str("Body(empty)"),
            Some(content) => write!(f, "Body(length {:?})", content.remaining),
        }
    }
}
