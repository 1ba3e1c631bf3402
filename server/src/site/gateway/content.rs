//! The content of a script's response, as it arrives.

use super::exchange::Exchange;
use super::rules::RequestAtWork;
use bytes::Bytes;
use selvedge::service::{Chunks, StreamError};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The content. Dropping it before its end ends the script.
pub(super) struct ScriptContent {
    exchange: Exchange,
    /// The request counts until the script has ended.
    _at_work: RequestAtWork,
}

impl ScriptContent {
    pub(super) fn new(exchange: Exchange, at_work: RequestAtWork) -> Self {
        Self { exchange, _at_work: at_work }
    }
}

impl Chunks for ScriptContent {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        match ready!(self.exchange.poll_output(cx)) {
            Ok(output) => Poll::Ready(output.map(Ok)),
            Err(error) => {
                error.note(self.exchange.messages().record());
                Poll::Ready(Some(Err(StreamError(error.to_string()))))
            }
        }
    }
}
