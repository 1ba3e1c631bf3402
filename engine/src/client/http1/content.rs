//! The content of a response over HTTP/1.1, and the rest of the request that is sent while it arrives.

use super::upload::{RequestUpload, UploadError};
use crate::client::error::{ClientError, ClientErrorKind, ClientPhase, RetrySafety};
use crate::client::outgoing_content::OutgoingContent;
use crate::client::response::ResponseContent;
use crate::client::table::Lease;
use crate::limits::{COPY_BYTES_MAX, SPLICE_END_BYTES_MIN};
use crate::service::{Chunks, SplicePipe, StreamError};
use bytes::Bytes;
use selvedge_proto::Persistence;
use selvedge_proto::field::Fields;
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::http1::parse_response::ResponseFraming;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Chunks that are shorter are copied into one piece.
const SHORT_CHUNK_BYTES: usize = COPY_BYTES_MAX / 4;

/// What of the content has not arrived.
pub(super) enum Remaining {
    Nothing,
    Length(u64),
    Chunks(Box<ChunkedDecoder>),
    UntilClose,
}

impl From<ResponseFraming> for Remaining {
    fn from(framing: ResponseFraming) -> Self {
        match framing {
            ResponseFraming::None | ResponseFraming::Upgraded => Self::Nothing,
            ResponseFraming::Length(length) => Self::Length(length),
            ResponseFraming::Chunked => Self::Chunks(Box::default()),
            ResponseFraming::UntilClose => Self::UntilClose,
        }
    }
}

/// Content that is being received.
pub(super) struct Http1Content {
    /// The connection, until the content has ended or failed.
    pub(super) lease: Option<Lease>,
    pub(super) framing: Remaining,
    pub(super) persistence: Persistence,
    /// The announced idle time in seconds.
    pub(super) keep_alive: Option<u32>,
    pub(super) upload: RequestUpload,
    pub(super) content: OutgoingContent,
    /// Why the content could not be read while the client did not read the response.
    pub(super) upload_error: Option<ClientErrorKind>,
    pub(super) silence: Duration,
    pub(super) trailers: Fields,
    /// Content that was received with the head.
    pub(super) first: Option<Bytes>,
    /// Content of which fewer bytes are left is copied.
    pub(super) splice_bytes_min: usize,
}

/// Returns the content of a response: in memory if its length is known and all of it has arrived with the head.
///
/// # Errors
/// If the content is malformed at its start, or missing. The client of the proxy can then still be told.
pub(super) async fn begin_content(mut rest: Http1Content, length: Option<u64>) -> Result<ResponseContent, ClientError> {
    let available = rest.lease.as_mut().map_or(0, |lease| lease.connection().input.bytes().len());
    Ok(match rest.framing {
        Remaining::Nothing => {
            rest.finish();
            ResponseContent::complete(Bytes::new(), length)
        }
        Remaining::Length(remaining) if remaining <= available as u64 => {
            let bytes = rest.lease.as_mut().map_or_else(Bytes::new, |lease| {
                // It is at most what is available.
                lease.connection().input.take(remaining as usize)
            });
            rest.finish();
            ResponseContent::complete(bytes, length)
        }
        _ => {
            rest.content.stop_keeping();
            if let (Remaining::Length(remaining), Some(lease)) = (&rest.framing, &mut rest.lease) {
                lease.connection().input.expect(*remaining - available as u64);
            }
            // Long content may pass through a pipe, which takes it as soon as the head is sent.
            if rest.spliceable().is_none() {
                rest.first = match poll_fn(|cx| Poll::Ready(rest.poll_piece(cx))).await {
                    Poll::Ready(first) => first.transpose()?,
                    Poll::Pending => {
                        // The head is sent before the next poll, which may take long.
                        rest.lease.as_ref().inspect(|lease| lease.end_wait());
                        None
                    }
                };
            }
            ResponseContent::streaming(Box::pin(rest), length)
        }
    })
}

impl Http1Content {
    /// Ends the exchange: the connection returns to the pool if it can be used again.
    fn finish(&mut self) {
        self.framing = Remaining::Nothing;
        self.content = OutgoingContent::empty();
        let Some(mut lease) = self.lease.take() else { return };
        lease.end_wait();
        // An upstream that responds before it has read the request may read the rest as another request.
        if self.persistence == Persistence::KeepAlive && self.upload.is_sent() {
            lease.release(self.keep_alive);
        } else {
            lease.connection().close();
        }
    }

    /// Ends the exchange with an error.
    fn fail(&mut self, phase: ClientPhase, kind: ClientErrorKind) -> ClientError {
        self.framing = Remaining::Nothing;
        self.content = OutgoingContent::empty();
        self.lease = None;
        ClientError::new(phase, kind, RetrySafety::Never)
    }

    /// Sends the rest of the request.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(), ClientErrorKind> {
        let Some(lease) = self.lease.as_mut().filter(|_| !self.upload.is_over()) else { return Ok(()) };
        let connection = lease.connection();
        let before = connection.sent;
        let polled = self.upload.poll(connection, &mut self.content, cx);
        if connection.sent != before {
            lease.end_wait();
        }
        match polled {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(UploadError::Content(kind))) => Err(kind),
            Poll::Ready(Err(UploadError::Send(_))) => {
                self.upload.abandon();
                Ok(())
            }
        }
    }

    /// Takes the next piece of content that has arrived. `None` if more has to arrive, or if the content has ended.
    fn take_piece(&mut self) -> Result<Option<Bytes>, ClientErrorKind> {
        let Some(lease) = &mut self.lease else { return Ok(None) };
        let limits = lease.table.limits.message;
        let input = &mut lease.connection().input;
        let available = input.bytes().len();
        if available == 0 {
            return Ok(None);
        }
        let piece = match &mut self.framing {
            Remaining::Nothing => return Ok(None),
            Remaining::UntilClose => return Ok(Some(input.take_all())),
            Remaining::Length(remaining) => {
                let count = usize::try_from(*remaining).unwrap_or(usize::MAX).min(available);
                *remaining -= count as u64;
                let piece = input.take(count);
                if *remaining > 0 {
                    return Ok(Some(piece));
                }
                Some(piece)
            }
            Remaining::Chunks(decoder) => {
                let mut joined = Vec::new();
                loop {
                    let event = decoder.decode_next(input.bytes(), &limits);
                    match event.map_err(|reject| ClientErrorKind::Malformed(reject.into()))? {
                        ChunkEvent::Data { start, end } if end - start > SHORT_CHUNK_BYTES && joined.is_empty() => {
                            input.consume(start);
                            return Ok(Some(input.take(end - start)));
                        }
                        ChunkEvent::Data { start, end } => {
                            joined.extend_from_slice(&input.bytes()[start..end]);
                            input.consume(end);
                        }
                        ChunkEvent::NeedMore { consumed } => {
                            input.consume(consumed);
                            return Ok((!joined.is_empty()).then(|| joined.into()));
                        }
                        ChunkEvent::Done { consumed } => {
                            input.consume(consumed);
                            self.trailers = decoder.trailers().clone();
                            break (!joined.is_empty()).then(|| joined.into());
                        }
                    }
                }
            }
        };
        self.finish();
        Ok(piece)
    }

    /// Returns how many bytes may be moved to a pipe. `None` if the next ones are to be received: some have arrived, few
    /// are available or left, or the framing or the session is to be decoded.
    fn spliceable(&mut self) -> Option<usize> {
        let lease = self.lease.as_mut().filter(|_| self.upload.is_over())?;
        let connection = lease.connection();
        let is_possible =
            connection.input.bytes().is_empty() && connection.input.is_bulk() && !connection.link.has_session();
        let remaining = match self.framing {
            Remaining::Length(remaining) => usize::try_from(remaining).unwrap_or(usize::MAX),
            Remaining::UntilClose => usize::MAX,
            Remaining::Nothing | Remaining::Chunks(_) => return None,
        };
        (is_possible && remaining >= self.splice_bytes_min).then_some(remaining)
    }

    /// Counts bytes that were moved to a pipe.
    fn note_spliced(&mut self, count: usize) {
        self.splice_bytes_min = SPLICE_END_BYTES_MIN;
        if let Some(lease) = &mut self.lease {
            lease.end_wait();
            lease.connection().input.note_received_elsewhere(count);
        }
        if let Remaining::Length(remaining) = &mut self.framing {
            *remaining -= count as u64;
            if *remaining == 0 {
                self.finish();
            }
        }
    }

    /// Completes when the upstream has been silent for too long.
    fn poll_timeout(&self, cx: &Context<'_>) -> Poll<()> {
        match &self.lease {
            Some(lease) if self.upload.awaits_content() => {
                lease.end_wait();
                Poll::Pending
            }
            Some(lease) if lease.wait(self.silence, cx) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    /// Sends the rest of the request, and receives the next piece of the content; `None` at its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientError>>> {
        let uploaded = self.upload_error.take().map_or_else(|| self.poll_upload(cx), Err);
        if let Err(kind) = uploaded {
            return Poll::Ready(Some(Err(self.fail(ClientPhase::SendRequest, kind))));
        }
        loop {
            match self.take_piece() {
                Ok(Some(piece)) => {
                    // The time in which the client does not read does not pass for the upstream.
                    self.lease.as_ref().inspect(|lease| lease.end_wait());
                    return Poll::Ready(Some(Ok(piece)));
                }
                Ok(None) => {}
                Err(kind) => return Poll::Ready(Some(Err(self.fail(ClientPhase::ReadContent, kind)))),
            }
            let Some(lease) = &mut self.lease else { return Poll::Ready(None) };
            let Poll::Ready(received) = lease.connection().poll_receive(cx) else { break };
            lease.end_wait();
            let kind = match received {
                Ok(1..) => continue,
                Ok(_) => {
                    let is_complete =
                        matches!(self.framing, Remaining::UntilClose) && lease.connection().link.has_ended_cleanly();
                    if is_complete {
                        self.finish();
                        return Poll::Ready(None);
                    }
                    ClientErrorKind::Closed
                }
                Err(error) => ClientErrorKind::of_io(&error),
            };
            return Poll::Ready(Some(Err(self.fail(ClientPhase::ReadContent, kind))));
        }
        ready!(self.poll_timeout(cx));
        Poll::Ready(Some(Err(self.fail(ClientPhase::ReadContent, ClientErrorKind::TimedOut))))
    }
}

impl Chunks for Http1Content {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        self.poll_piece(cx).map_err(|error| StreamError(error.to_string()))
    }

    fn poll_splice(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pipe: &mut SplicePipe,
    ) -> Poll<Result<usize, StreamError>> {
        let this = &mut *self;
        if this.first.is_some() {
            return Poll::Ready(Ok(0));
        }
        let (Some(count), Some(lease)) = (this.spliceable(), &mut this.lease) else { return Poll::Ready(Ok(0)) };
        // Without a pipe, or a system that supports this, the content is copied.
        if !pipe.open() {
            return Poll::Ready(Ok(0));
        }
        match lease.connection().link.socket().poll_splice(cx, pipe, count) {
            Poll::Ready(Ok(count)) => {
                this.note_spliced(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Unsupported => Poll::Ready(Ok(0)),
            Poll::Ready(Err(error)) => {
                let failure = this.fail(ClientPhase::ReadContent, ClientErrorKind::of_io(&error));
                Poll::Ready(Err(StreamError(failure.to_string())))
            }
            Poll::Pending => {
                ready!(this.poll_timeout(cx));
                let failure = this.fail(ClientPhase::ReadContent, ClientErrorKind::TimedOut);
                Poll::Ready(Err(StreamError(failure.to_string())))
            }
        }
    }

    fn poll_progress(mut self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = &mut *self;
        if this.upload_error.is_none() {
            this.upload_error = this.poll_upload(cx).err();
        }
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        std::mem::take(&mut self.trailers)
    }
}
