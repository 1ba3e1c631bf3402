//! The content of a request as the ecosystem reads it.

use crate::service::{ContentError, IncomingBody};
use crate::tower::held::Held;
use crate::tower::table::Ticket;
use crate::tower::trailers;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The content of a request: an [`http_body::Body`], as what tower services and axum take.
///
/// It is read from the connection when it is polled and not before, so a slow reader slows
/// its client, and a client that waits for `100 Continue` is told to go on by the first poll.
/// It may be read on any thread; on the worker's own it costs least. Once the answer has left, reading on
/// fails: what is left by then is drained.
#[derive(Default)]
pub struct Body {
    // Boxed, since most requests have none and it moves through every layer.
    content: Option<Box<Content>>,
}

struct Content {
    held: Held,
    left: Option<u64>,
    is_over: bool,
}

impl Body {
    /// No content.
    pub const fn empty() -> Self {
        Self { content: None }
    }

    /// This content, held by this thread.
    pub(super) fn hold(content: IncomingBody) -> (Self, Ticket) {
        let left = content.length();
        let held = Held::hold(content);
        let ticket = held.ticket();
        (Self { content: Some(Box::new(Content { held, left, is_over: false })) }, ticket)
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = ContentError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ContentError>>> {
        let Some(content) = &mut self.content else { return Poll::Ready(None) };
        if content.is_over {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(content.held.poll_chunk(cx)) {
            Some(Ok(bytes)) => {
                if let Some(left) = &mut content.left {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) => {
                content.is_over = true;
                Some(Err(error))
            }
            None => {
                content.is_over = true;
                let fields = content.held.trailers().map(|fields| trailers::to_map(&fields));
                fields.filter(|fields| !fields.is_empty()).map(|fields| Ok(Frame::trailers(fields)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.content.as_ref().is_none_or(|content| content.is_over || content.left == Some(0))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            None => SizeHint::with_exact(0),
            Some(content) => content.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.content {
            None => f.write_str("Body(empty)"),
            Some(content) => write!(f, "Body(length {:?})", content.left),
        }
    }
}
