//! A response of an upstream.

use super::tunnel::Tunnel;
use crate::service::{Body, Chunks, SplicePipe, StreamError};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A response of an upstream: its head, and content that streams.
#[derive(Debug)]
pub struct IncomingResponse {
    /// The status code, never an interim one except 101.
    pub status: StatusCode,
    /// The fields in order, with names in lower case. Fields that only the server writes are left out: those of the
    /// connection and the framing, Date and Server.
    pub fields: Fields,
    /// The content.
    pub content: ResponseContent,
    /// The connection after the switch to another protocol, for status 101.
    pub upgrade: Option<Tunnel>,
    /// How long it took to open a connection, TLS included; `None` on one that was open.
    pub connect_time: Option<Duration>,
}

/// The content of a response. It owns the connection and the rest of the request's content: polling it moves both
/// directions, and [`Chunks::poll_progress`] only that of the request. At its end, the connection returns to the pool. Dropping it before that closes the connection.
pub struct ResponseContent {
    length: Option<u64>,
    state: ContentState,
}

/// What of the content is left.
enum ContentState {
    /// All of it was received with the head.
    Complete(Bytes),
    Streaming(Pin<Box<dyn Chunks>>),
}

impl ResponseContent {
    /// Creates content that was received completely. `length` differs from that of the bytes in a response to HEAD.
    pub(super) const fn complete(bytes: Bytes, length: Option<u64>) -> Self {
        Self { length, state: ContentState::Complete(bytes) }
    }

    pub(super) const fn streaming(chunks: Pin<Box<dyn Chunks>>, length: Option<u64>) -> Self {
        Self { length, state: ContentState::Streaming(chunks) }
    }

    /// Returns the length in bytes, if the head states it. For a response to HEAD and for status 304, it is the length
    /// of the content that a response to GET would have.
    pub const fn length(&self) -> Option<u64> {
        self.length
    }

    /// Whether nothing is to be received.
    pub const fn is_complete(&self) -> bool {
        matches!(self.state, ContentState::Complete(_))
    }

    /// Returns the content as the body of a response: small content without a stream.
    pub fn into_body(self) -> Body {
        match self.state {
            ContentState::Complete(bytes) if self.length.is_some_and(|length| length == bytes.len() as u64) => {
                if bytes.is_empty() { Body::Empty } else { Body::Bytes(bytes) }
            }
            ContentState::Complete(bytes) => {
                let length = self.length;
                Body::Stream { length, chunks: Box::pin(Self::complete(bytes, length)) }
            }
            ContentState::Streaming(chunks) => Body::Stream { length: self.length, chunks },
        }
    }
}

impl Chunks for ResponseContent {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        match &mut self.state {
            ContentState::Complete(bytes) if bytes.is_empty() => Poll::Ready(None),
            ContentState::Complete(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            ContentState::Streaming(chunks) => chunks.as_mut().poll_chunk(cx),
        }
    }

    fn poll_splice(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
    ) -> Poll<Result<usize, StreamError>> {
        match &mut self.state {
            ContentState::Complete(_) => Poll::Ready(Ok(0)),
            ContentState::Streaming(chunks) => chunks.as_mut().poll_splice(cx, pipe),
        }
    }

    fn poll_progress(mut self: Pin<&mut Self>, cx: &mut Context<'_>) {
        if let ContentState::Streaming(chunks) = &mut self.state {
            chunks.as_mut().poll_progress(cx);
        }
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        match &mut self.state {
            ContentState::Complete(_) => Fields::new(),
            ContentState::Streaming(chunks) => chunks.as_mut().trailers(),
        }
    }

    fn may_have_trailers(&self) -> bool {
        match &self.state {
            ContentState::Complete(_) => false,
            ContentState::Streaming(chunks) => chunks.may_have_trailers(),
        }
    }
}

impl fmt::Debug for ResponseContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResponseContent(length {:?}, complete {})", self.length, self.is_complete())
    }
}
