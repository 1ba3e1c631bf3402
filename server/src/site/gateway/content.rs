//! The content of a script's response, as it arrives.

use super::after_response::AfterResponse;
use super::error::GatewayError;
use super::exchange::Exchange;
use bytes::Bytes;
use selvedge::service::{Chunks, StreamError};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The content. Dropping it before its end ends the script.
pub(super) struct ScriptContent {
    /// `None` after the end.
    exchange: Option<(Exchange, AfterResponse)>,
}

impl ScriptContent {
    pub(super) fn new(exchange: Exchange, after: AfterResponse) -> Self {
        Self { exchange: Some((exchange, after)) }
    }

    /// Creates content of which nothing is sent.
    pub(super) fn none() -> Self {
        Self { exchange: None }
    }
}

impl Chunks for ScriptContent {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        let Some((exchange, _)) = &mut self.exchange else { return Poll::Ready(None) };
        let output = ready!(exchange.poll_output(cx));
        if let Err(error) = &output {
            error.note(exchange.messages().record());
        }
        // After the last byte of content with a length, some connections poll no more.
        let is_over = !matches!(output, Ok(Some(_))) || exchange.is_complete();
        let ended = if is_over { self.exchange.take() } else { None };
        if let Some((exchange, after)) = ended.filter(|_| output.is_ok()) {
            after.follow(exchange, cx);
        }
        Poll::Ready(output.map_err(|error: GatewayError| StreamError(error.to_string())).transpose())
    }

    fn poll_progress(mut self: Pin<&mut Self>, cx: &mut Context<'_>) {
        if let Some((exchange, _)) = &mut self.exchange {
            exchange.poll_upload(cx);
        }
    }
}
