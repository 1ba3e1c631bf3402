//! The content of a forwarded response: it holds the place at the server until its end.

use super::upstream::Place;
use bytes::Bytes;
use selvedge::proto::field::Fields;
use selvedge::service::{Chunks, SplicePipe, StreamError, UpstreamRecord};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Content that is received from a server while it is sent to the client. Dropping it before its end closes the
/// connection to the server.
pub(super) struct ForwardedContent {
    chunks: Pin<Box<dyn Chunks>>,
    /// `None` after the end.
    exchange: Option<Ongoing>,
}

/// An exchange whose response is being received.
pub(super) struct Ongoing {
    pub(super) place: Place,
    pub(super) record: UpstreamRecord,
    /// The address of the server.
    pub(super) address: Rc<str>,
}

impl ForwardedContent {
    pub(super) fn new(chunks: Pin<Box<dyn Chunks>>, exchange: Ongoing) -> Self {
        Self { chunks, exchange: Some(exchange) }
    }
}

impl Ongoing {
    /// Records why the content is incomplete, for the log. It does not count against the server: a client that leaves
    /// within its own content causes it, too.
    fn fail(self, error: &StreamError) {
        let text = format!("incomplete response of {}: {error}", self.address);
        self.record.update(|facts| facts.failure = Some(text.into()));
        drop(self.place);
    }
}

impl Chunks for ForwardedContent {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let polled = self.chunks.as_mut().poll_chunk(cx);
        match &polled {
            Poll::Ready(None) => drop(self.exchange.take()),
            Poll::Ready(Some(Err(error))) => {
                if let Some(exchange) = self.exchange.take() {
                    exchange.fail(error);
                }
            }
            Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
        }
        polled
    }

    fn poll_splice(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
    ) -> Poll<Result<usize, StreamError>> {
        let polled = self.chunks.as_mut().poll_splice(cx, pipe);
        if let Poll::Ready(Err(error)) = &polled
            && let Some(exchange) = self.exchange.take()
        {
            exchange.fail(error);
        }
        polled
    }

    fn poll_progress(mut self: Pin<&mut Self>, cx: &mut Context<'_>) {
        self.chunks.as_mut().poll_progress(cx);
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        self.chunks.as_mut().trailers()
    }

    fn may_have_trailers(&self) -> bool {
        self.chunks.may_have_trailers()
    }
}
