//! Content that is encoded while it is sent.
//!
//! The encoder takes all content that is available. If no more is available, all encoded output is flushed. So an event
//! is sent when it happens, and a page is not split into small chunks. Holds at most one chunk of the input and the
//! output of one encoding step.

use crate::coding::BoxError;
use crate::coding::encoder::Encoder;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Input bytes that are encoded before the task yields: 0.5 ms with the slowest coding.
pub(crate) const BYTES_PER_YIELD: usize = 32 * 1024;
/// Minimum cost of a chunk in input bytes, so that many small chunks also lead to a yield.
pub(crate) const CHUNK_COST_BYTES_MIN: usize = 128;
/// Encoded bytes that are collected before a chunk is passed on, while more input is available.
const OUTPUT_BYTES_MIN: usize = 16 * 1024;

/// A piece of content, before or after encoding. `T` is the type of its trailers.
pub(crate) enum Piece<T> {
    Data(Bytes),
    Trailers(T),
}

/// The next piece, if it is available.
pub(crate) type PolledPiece<T> = Poll<Option<Result<Piece<T>, BoxError>>>;

/// Content that is being encoded.
pub(crate) struct OngoingEncoding<T> {
    stage: EncodingStage<T>,
    /// Content that the encoder has not read yet.
    unread_input: Bytes,
    /// Whether the encoder has input that is not flushed yet.
    has_unflushed: bool,
    /// Input bytes encoded since the task last yielded.
    bytes_since_yield: usize,
    yielding: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

enum EncodingStage<T> {
    Encoding(Box<Encoder>),
    /// All content was sent; trailers may follow.
    Ended(Option<T>),
}

impl<T> OngoingEncoding<T> {
    pub(crate) fn new(encoder: Box<Encoder>) -> Self {
        Self {
            stage: EncodingStage::Encoding(encoder),
            unread_input: Bytes::new(),
            has_unflushed: false,
            bytes_since_yield: 0,
            yielding: None,
        }
    }

    /// Whether nothing follows.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.stage, EncodingStage::Ended(None))
    }

    /// Whether at most trailers follow.
    pub(crate) fn has_sent_content(&self) -> bool {
        matches!(self.stage, EncodingStage::Ended(_))
    }

    /// Returns the next piece of encoded content. `poll_input` returns the next piece of the content.
    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        poll_input: impl FnMut(&mut Context<'_>) -> PolledPiece<T>,
    ) -> PolledPiece<T> {
        let polled = self.poll_encoded(cx, poll_input);
        if let Poll::Ready(Some(Err(_))) = polled {
            self.stage = EncodingStage::Ended(None);
        }
        polled
    }

    fn poll_encoded(
        &mut self,
        cx: &mut Context<'_>,
        mut poll_input: impl FnMut(&mut Context<'_>) -> PolledPiece<T>,
    ) -> PolledPiece<T> {
        loop {
            if let EncodingStage::Ended(trailers) = &mut self.stage {
                return Poll::Ready(trailers.take().map(|trailers| Ok(Piece::Trailers(trailers))));
            }
            ready!(self.poll_yield(cx));
            if self.unread_input.is_empty() {
                match poll_input(cx) {
                    Poll::Pending => {
                        self.bytes_since_yield = 0;
                        return match self.flush()? {
                            Some(bytes) => Poll::Ready(Some(Ok(Piece::Data(bytes)))),
                            None => Poll::Pending,
                        };
                    }
                    Poll::Ready(None) => return Poll::Ready(Some(Ok(Piece::Data(self.finish(None)?)))),
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(Some(Ok(Piece::Data(data)))) => self.unread_input = data,
                    Poll::Ready(Some(Ok(Piece::Trailers(trailers)))) => {
                        return Poll::Ready(Some(Ok(Piece::Data(self.finish(Some(trailers))?))));
                    }
                }
            }
            self.encode_input()?;
            if let Some(bytes) = self.take_output(OUTPUT_BYTES_MIN) {
                return Poll::Ready(Some(Ok(Piece::Data(bytes))));
            }
        }
    }

    /// Yields to other tasks after [`BYTES_PER_YIELD`] bytes.
    fn poll_yield(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielding.is_none() && self.bytes_since_yield >= BYTES_PER_YIELD {
            self.yielding = Some(Box::pin(tokio::task::yield_now()));
        }
        if let Some(yielding) = &mut self.yielding {
            ready!(yielding.as_mut().poll(cx));
            self.yielding = None;
            self.bytes_since_yield = 0;
        }
        Poll::Ready(())
    }

    /// Encodes the unread input, at most [`BYTES_PER_YIELD`] bytes.
    fn encode_input(&mut self) -> std::io::Result<()> {
        let EncodingStage::Encoding(encoder) = &mut self.stage else { return Ok(()) };
        let chunk = self.unread_input.split_to(self.unread_input.len().min(BYTES_PER_YIELD));
        self.bytes_since_yield += chunk.len().max(CHUNK_COST_BYTES_MIN);
        self.has_unflushed |= !chunk.is_empty();
        encoder.write(&chunk)
    }

    /// Takes the encoded output, if it has at least `bytes_min` bytes.
    fn take_output(&mut self, bytes_min: usize) -> Option<Bytes> {
        match &mut self.stage {
            EncodingStage::Encoding(encoder) if encoder.output_bytes() >= bytes_min => {
                Some(encoder.take_output().into())
            }
            _ => None,
        }
    }

    /// Flushes all input through the encoder.
    fn flush(&mut self) -> std::io::Result<Option<Bytes>> {
        if let EncodingStage::Encoding(encoder) = &mut self.stage
            && std::mem::take(&mut self.has_unflushed)
        {
            encoder.flush()?;
        }
        Ok(self.take_output(1))
    }

    /// Ends the encoded content, which these trailers follow.
    fn finish(&mut self, trailers: Option<T>) -> std::io::Result<Bytes> {
        match std::mem::replace(&mut self.stage, EncodingStage::Ended(trailers)) {
            EncodingStage::Encoding(encoder) => Ok(encoder.finish()?.into()),
            EncodingStage::Ended(_) => Ok(Bytes::new()),
        }
    }
}
