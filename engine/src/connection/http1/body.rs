//! Request content: framing, deadlines, and discarding what the application does not read.

use super::body_state::{BodyPhase, BodyState, Remaining};
use crate::buffer::Size;
use crate::connection::progress::{Progress, TransferLimits};
use crate::connection::receive_buffer::ReceiveBuffer;
use crate::connection::transport::{Received, Transport};
use crate::limits::{BUFFER_BYTES, BYTES_PER_YIELD, COPY_BYTES_MAX};
use crate::net::clock::ticks;
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::stream::Stream;
use crate::service::{CloseReason, ContentError, StreamId};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::head::{Expectation, RequestFraming};
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::http1::write::write_interim;
use selvedge_proto::limits::MessageLimits;
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

/// The content of the current request, if it has any.
#[derive(Default)]
pub(super) struct RequestBody(RefCell<Option<Box<BodyState>>>);

impl RequestBody {
    /// Starts the content of a request. Returns its length, if the head states it.
    pub(super) fn begin<S: Stream>(
        &self,
        transport: &Transport<S>,
        stream: StreamId,
        framing: RequestFraming,
        expectation: Expectation,
    ) -> Option<u64> {
        let (remaining, length) = match framing {
            // No HTTP/1 request ends with a stream.
            RequestFraming::None | RequestFraming::UntilStreamEnd => (Remaining::Nothing(None), Some(0)),
            RequestFraming::Length(length) => (Remaining::Length(length), Some(length)),
            RequestFraming::Chunked => (Remaining::Chunks(ChunkedDecoder::new()), None),
        };
        let limits = &transport.shared.limits;
        *self.0.borrow_mut() = Some(Box::new(BodyState {
            stream,
            remaining,
            phase: BodyPhase::Unread,
            expects_continue: expectation == Expectation::Continue,
            reads_while_responding: false,
            last_activity: 0,
            progress: Progress {
                began: transport.timeouts.worker.clock.tick(),
                bytes: 0,
                limits: TransferLimits::of_content(limits),
            },
            next_buffer_size: Size::Usual,
            bytes_since_yield: 0,
            time_waited: 0,
            reader: None,
            ended_at: None,
        }));
        length
    }

    /// Whether the connection has no request with content.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.0.borrow().is_none()
    }

    /// Returns when all of the content had arrived and was read; `None` without content or before that.
    #[inline]
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.0.borrow().as_ref().and_then(|content| content.ended_at)
    }

    /// Wakes the reader, which may be a task of the application. Returns whether one waits.
    #[inline]
    pub(super) fn wake_reader(&self) -> bool {
        let reader = self.0.borrow_mut().as_mut().and_then(|content| content.reader.take());
        reader.inspect(Waker::wake_by_ref).is_some()
    }

    /// Sets the deadline for content, if a reader waits and nothing is left to send.
    pub(super) fn wait_alone<S>(&self, transport: &Transport<S>) {
        match self.0.borrow().as_deref() {
            Some(content) if content.phase == BodyPhase::Waiting => transport.timeouts.wait_for_progress_since(
                Deadline::RequestBody,
                &content.progress,
                content.last_activity,
            ),
            _ => transport.timeouts.clear(),
        }
    }

    /// Lets a client send its content before it reads the response: while that arrives at its minimum rate, and for the
    /// time limit of sending after it, the client is not late with the response.
    pub(super) fn extend_send_deadline<S>(&self, transport: &Transport<S>) {
        let content = self.0.borrow();
        let Some(content) = content.as_deref().filter(|content| content.reads_while_responding) else { return };
        let (deadline, due) = transport.timeouts.deadline_and_due();
        let by_rate = content.progress.limits.due_by_rate(content.progress.began, content.progress.bytes);
        let by_last =
            content.last_activity.saturating_add(ticks(transport.shared.limits.send_timeout)).saturating_add(1);
        if deadline == Deadline::ResponseProgress && due < by_rate.min(by_last) {
            transport.timeouts.wait_until(Deadline::ResponseProgress, by_rate.min(by_last));
        }
    }

    /// Marks that the application generates the response from the content, and sends `100 Continue` now, because that
    /// is impossible after the response has begun.
    pub(super) fn read_while_responding<S: Stream>(&self, transport: &Transport<S>) {
        if let Some(content) = self.0.borrow_mut().as_mut() {
            content.reads_while_responding = true;
            send_continue(content, transport);
        }
    }

    /// Returns why unread content makes this response the last one of the connection.
    #[inline]
    pub(super) fn forces_close(&self, discard_bytes_max: u64) -> Option<CloseReason> {
        let mut content = self.0.borrow_mut();
        let content = content.as_mut()?;
        match (&content.remaining, content.phase) {
            (_, BodyPhase::Failed(error)) => Some(close_reason(error)),
            (Remaining::Nothing(_), _) => None,
            //= RFC 9110 §10.1.1: without `100 Continue`, the client may send its content or not, so
            //= the start of the next request is unknown
            _ if std::mem::take(&mut content.expects_continue) => Some(CloseReason::ClosedAfterResponse),
            // The rest is discarded after the response, or the connection closes without an announcement.
            _ if content.reads_while_responding => None,
            (Remaining::Length(remaining), _) if *remaining > discard_bytes_max => Some(CloseReason::ContentUnread),
            _ => None,
        }
    }

    /// Discards unread content so that the next request can be parsed, or closes so that the client can read the
    /// response.
    pub(super) async fn finish<S: Stream>(
        &self,
        transport: &Transport<S>,
        close: Option<CloseReason>,
    ) -> Result<(), CloseReason> {
        if self.0.borrow().as_ref().is_none_or(|content| content.is_done()) {
            drop(self.0.take());
            return Ok(());
        }
        let failed = self.0.borrow_mut().as_mut().and_then(|content| {
            content.reads_while_responding = false;
            match content.phase {
                BodyPhase::Failed(error) => return Some(error),
                BodyPhase::Waiting => content.phase = BodyPhase::Discarding,
                BodyPhase::Unread | BodyPhase::Stopped | BodyPhase::Discarding => {
                    content.begin_wait(BodyPhase::Discarding, transport.timeouts.worker.clock.tick());
                }
            }
            None
        });
        self.wake_reader();
        transport.flush().await?;
        let discarded = match failed.map(close_reason).or(close) {
            None => self.discard(transport).await,
            Some(reason) => Err(reason),
        };
        drop(self.0.take());
        if discarded.is_ok() {
            // The deadline of the next request is not set yet.
            transport.timeouts.clear();
        }
        match discarded {
            Err(CloseReason::Reset | CloseReason::ContentIncomplete) | Ok(()) => {}
            Err(_) => {
                transport.send_and_shutdown().await?;
                transport.linger().await;
            }
        }
        discarded
    }

    async fn discard<S: Stream>(&self, transport: &Transport<S>) -> Result<(), CloseReason> {
        let mut discarded = 0;
        loop {
            match poll_fn(|cx| self.poll_piece(transport, cx)).await {
                None => return Ok(()),
                Some(Err(error)) => return Err(close_reason(error)),
                Some(Ok(bytes)) => discarded += bytes.len() as u64,
            }
            if discarded > transport.shared.limits.discard_bytes_max {
                return Err(CloseReason::ContentUnread);
            }
        }
    }

    /// Returns the next piece of content for the application.
    pub(super) fn poll_content<S: Stream>(
        &self,
        transport: &Transport<S>,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ContentError>>> {
        let unreadable = match self.0.borrow().as_deref() {
            Some(content) if content.stream == stream => match content.phase {
                BodyPhase::Unread | BodyPhase::Waiting => None,
                BodyPhase::Stopped => Some(ContentError::TooLarge),
                BodyPhase::Discarding => Some(ContentError::Ended),
                BodyPhase::Failed(error) => Some(error),
            },
            _ => Some(ContentError::Ended),
        };
        if let Some(error) = unreadable {
            return Poll::Ready(Some(Err(error)));
        }
        let Poll::Ready(piece) = self.poll_piece(transport, cx) else { return Poll::Pending };
        let mut reader = None;
        let mut has_waited = false;
        if let Some(content) = self.0.borrow_mut().as_mut() {
            has_waited = content.phase == BodyPhase::Waiting;
            if has_waited {
                content.phase = BodyPhase::Unread;
                let now = transport.timeouts.worker.clock.tick();
                content.time_waited = now.saturating_sub(content.progress.began);
                reader = content.reader.take();
            }
            if let Some(Err(error)) = piece {
                content.phase = BodyPhase::Failed(error);
            }
        }
        if has_waited {
            // The application runs now, so the client is not waited for.
            if transport.timeouts.deadline() == Deadline::RequestBody {
                transport.timeouts.clear();
            }
            // A task of the application may have waited instead of the connection's task.
            transport.timeouts.worker.connections.wake(transport.timeouts.id, Some(cx.waker()));
        }
        // Dropping the waker may run application code, so drop it after all borrows have ended.
        drop(reader);
        Poll::Ready(piece)
    }

    /// Returns the next piece of content.
    fn poll_piece<S: Stream>(
        &self,
        transport: &Transport<S>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ContentError>>> {
        let mut guard = self.0.borrow_mut();
        let Some(content) = guard.as_mut() else { return Poll::Ready(Some(Err(ContentError::Ended))) };
        loop {
            match take_piece(content, &mut transport.input.borrow_mut(), &transport.shared.limits.message) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(None) if content.is_done() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            // A client that sent its content without waiting needs no `100 Continue`.
            send_continue(content, transport);
            if content.phase == BodyPhase::Unread {
                content.begin_wait(BodyPhase::Waiting, transport.timeouts.worker.clock.tick());
            }
            if transport.timeouts.deadline() != Deadline::RequestBody {
                wait_for_content(content, transport);
            }
            content.reader = Some(cx.waker().clone());
            if content.bytes_since_yield >= BYTES_PER_YIELD {
                content.bytes_since_yield = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // The content deadline also applies to a client that does not read earlier responses. During a response
            // the connection itself flushes, and only one task can wait for that.
            if !content.reads_while_responding && ready!(transport.poll_flush(cx)).is_err() {
                return Poll::Ready(Some(Err(ContentError::Disconnected)));
            }
            let had = transport.input.borrow().bytes().len();
            if content.next_buffer_size == Size::Long {
                transport.input.borrow_mut().use_long_buffer();
            }
            let Poll::Ready(received) = transport.poll_receive(cx) else {
                content.bytes_since_yield = 0;
                return Poll::Pending;
            };
            let error = match received {
                Received::More => {
                    let has = transport.input.borrow().bytes().len();
                    content.next_buffer_size = if has < BUFFER_BYTES { Size::Usual } else { Size::Long };
                    content.progress.bytes += (has - had) as u64;
                    content.bytes_since_yield += has - had;
                    content.last_activity = transport.timeouts.worker.clock.tick();
                    wait_for_content(content, transport);
                    continue;
                }
                // The connection sends, and received bytes wake this task.
                Received::SendStalled if content.reads_while_responding => return Poll::Pending,
                Received::SendStalled => continue,
                // Interrupts for idle connections do not apply here.
                Received::Interrupted(Interrupt::TimedOut) => ContentError::TooSlow,
                Received::Interrupted(
                    Interrupt::None | Interrupt::Evict | Interrupt::Drain | Interrupt::Park | Interrupt::AbortStreams,
                ) => {
                    wait_for_content(content, transport);
                    continue;
                }
                Received::Interrupted(Interrupt::Abort) | Received::End | Received::Failed => {
                    ContentError::Disconnected
                }
            };
            return Poll::Ready(Some(Err(error)));
        }
    }

    /// Returns the trailer fields of complete content.
    pub(super) fn trailers(&self, stream: StreamId) -> Option<Fields> {
        match self.0.borrow().as_deref() {
            Some(BodyState { stream: own, remaining: Remaining::Nothing(trailers), .. }) if *own == stream => {
                trailers.clone()
            }
            _ => None,
        }
    }

    /// Records that the application reads no more of this content.
    pub(super) fn stop_reading(&self, stream: StreamId) {
        if let Some(content) = self.0.borrow_mut().as_mut().filter(|content| content.stream == stream)
            && matches!(content.phase, BodyPhase::Unread | BodyPhase::Waiting)
        {
            content.phase = BodyPhase::Stopped;
        }
    }

    /// Returns why the content could not be read to its end, if reading failed.
    pub(super) fn failure(&self, stream: StreamId) -> Option<ContentError> {
        match self.0.borrow().as_deref().filter(|content| content.stream == stream)?.phase {
            BodyPhase::Failed(error) => Some(error),
            BodyPhase::Stopped => Some(ContentError::TooLarge),
            BodyPhase::Unread | BodyPhase::Waiting | BodyPhase::Discarding => None,
        }
    }
}

/// Sets the deadline for content, unless a response is being sent: then the send deadline applies.
fn wait_for_content<S>(content: &BodyState, transport: &Transport<S>) {
    let timeouts = &transport.timeouts;
    if !(content.reads_while_responding && timeouts.deadline() == Deadline::ResponseProgress) {
        timeouts.wait_for_progress_since(Deadline::RequestBody, &content.progress, content.last_activity);
    }
}

/// Sends `100 Continue` if the client expects it and has not sent content.
fn send_continue<S>(content: &mut BodyState, transport: &Transport<S>) {
    if std::mem::take(&mut content.expects_continue) && transport.input.borrow().bytes().is_empty() {
        write_interim(StatusCode::CONTINUE, &Fields::new(), transport.output.borrow_mut().bytes());
    }
}

/// Returns content that was received already; `None` if more has to arrive first or the content is complete.
fn take_piece(
    content: &mut BodyState,
    input: &mut ReceiveBuffer,
    limits: &MessageLimits,
) -> Result<Option<Bytes>, ContentError> {
    match &mut content.remaining {
        Remaining::Nothing(_) => Ok(None),
        Remaining::Length(remaining) => {
            let available = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.bytes().len());
            if available == 0 {
                return Ok(None);
            }
            content.expects_continue = false;
            *remaining -= available as u64;
            if *remaining == 0 {
                content.end(None);
            }
            Ok(Some(take_bytes(input, available)))
        }
        Remaining::Chunks(decoder) => {
            if !input.bytes().is_empty() {
                content.expects_continue = false;
            }
            let mut joined = Vec::new();
            let trailers = loop {
                match decoder.decode_next(input.bytes(), limits).map_err(ContentError::Rejected)? {
                    ChunkEvent::Data { start, end } => {
                        joined.extend_from_slice(&input.bytes()[start..end]);
                        input.consume(end);
                    }
                    ChunkEvent::NeedMore { consumed } => {
                        input.consume(consumed);
                        break None;
                    }
                    ChunkEvent::Done { consumed } => {
                        input.consume(consumed);
                        break Some(decoder.trailers().clone());
                    }
                }
            };
            if let Some(trailers) = trailers {
                content.end(Some(trailers));
            }
            Ok((!joined.is_empty()).then(|| joined.into()))
        }
    }
}

/// Takes the first `count` bytes. A large piece that is all of the buffer takes the buffer itself, without a copy.
fn take_bytes(input: &mut ReceiveBuffer, count: usize) -> Bytes {
    if count > COPY_BYTES_MAX / 2
        && count == input.bytes().len()
        && let Some(buffer) = input.buffer.take_if(|buffer| buffer.is_well_filled())
    {
        let at = std::mem::take(&mut input.at);
        return Bytes::from_owner(buffer).slice(at..);
    }
    let bytes = Bytes::copy_from_slice(&input.bytes()[..count]);
    input.consume(count);
    bytes
}

fn close_reason(error: ContentError) -> CloseReason {
    match error {
        ContentError::Rejected(reject) => CloseReason::ContentRejected(reject),
        ContentError::TooSlow => CloseReason::ContentTooSlow,
        ContentError::Disconnected => CloseReason::ContentIncomplete,
        ContentError::TooLarge | ContentError::Ended => CloseReason::ContentUnread,
    }
}
