//! Request content: framing, deadlines, and discarding what the application does not read.

use crate::buffer::Size;
use crate::connection::body_state::{BodyState, Remaining};
use crate::connection::close::CloseDecision;
use crate::connection::progress::Progress;
use crate::connection::transport::{Connection, ReceiveBuffer, Received};
use crate::limits::{BATCH_BYTES, BUFFER_BYTES, BYTES_PER_YIELD, COPY_BYTES_MAX};
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::stream::Stream;
use crate::service::{CloseReason, ContentError, ContentSource, IncomingBody};
use bytes::Bytes;
use selvedge_proto::field::Fields;
use selvedge_proto::head::{Expectation, RequestFraming};
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::http1::write::write_interim;
use selvedge_proto::{Persistence, StatusCode};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// Starts the content of a request and attaches the source to the request.
pub(super) fn begin<S: Stream>(
    connection: &Rc<Connection<S>>,
    request: u32,
    framing: RequestFraming,
    expectation: Expectation,
) -> IncomingBody {
    let (remaining, length) = match framing {
        RequestFraming::None => (Remaining::Nothing(None), Some(0)),
        RequestFraming::Length(length) => (Remaining::Length(length), Some(length)),
        RequestFraming::Chunked => (Remaining::Chunks(ChunkedDecoder::new()), None),
    };
    *connection.content.borrow_mut() = Some(Box::new(BodyState {
        request,
        framing: remaining,
        expects_continue: expectation == Expectation::Continue,
        reads_while_responding: false,
        error: None,
        is_reading_stopped: false,
        is_discarding: false,
        is_reading: false,
        last_activity: 0,
        next_buffer_size: Size::Usual,
        bytes_since_yield: 0,
        time_waited: 0,
        progress: Progress {
            began: connection.worker.clock.tick(),
            bytes: 0,
            timeout: connection.shared.limits.body_timeout,
            min_rate: connection.shared.limits.body_min_rate,
        },
        reader: None,
    }));
    let source: Weak<Connection<S>> = Rc::downgrade(connection);
    IncomingBody::new(source, request, length, connection.shared.limits.body_bytes_max)
}

impl<S: Stream> Connection<S> {
    /// Wakes the body reader, which may be a task of the application. Returns whether one waits.
    pub(super) fn wake_reader(&self) -> bool {
        let reader = self.content.borrow_mut().as_mut().and_then(|content| content.reader.take());
        reader.inspect(Waker::wake_by_ref).is_some()
    }

    /// Sets the deadline for content, if a reader waits and nothing is left to send.
    pub(super) fn wait_for_content_alone(&self) {
        match self.content.borrow().as_deref() {
            Some(content) if content.is_reading => {
                self.wait_for_progress_since(Deadline::RequestBody, &content.progress, content.last_activity);
            }
            _ => self.clear_deadline(),
        }
    }

    /// Sets the deadline for content, unless a response is being sent: then the send deadline applies.
    fn wait_for_content(&self, content: &BodyState) {
        if !(content.reads_while_responding && self.deadline() == Deadline::ResponseProgress) {
            self.wait_for_progress_since(Deadline::RequestBody, &content.progress, content.last_activity);
        }
    }

    /// Marks that the application generates the response from the content, and sends `100 Continue` now, because that
    /// is impossible after the response has begun.
    pub(super) fn read_while_responding(&self) {
        if let Some(content) = self.content.borrow_mut().as_mut() {
            content.reads_while_responding = true;
            self.send_continue(content);
        }
    }

    /// Sends `100 Continue` if the client expects it and has not sent content.
    fn send_continue(&self, content: &mut BodyState) {
        if std::mem::take(&mut content.expects_continue) && self.input.borrow().bytes().is_empty() {
            write_interim(StatusCode::CONTINUE, &Fields::new(), self.output.borrow_mut().bytes());
        }
    }

    /// Returns why unread content makes this response the last one of the connection.
    pub(super) fn content_forces_close(&self) -> Option<CloseReason> {
        let mut content = self.content.borrow_mut();
        let content = content.as_mut()?;
        match (&content.framing, content.error) {
            (_, Some(error)) => Some(close_reason(error)),
            (Remaining::Nothing(_), _) => None,
            //= RFC 9110 §10.1.1: without `100 Continue`, the client may send its content or not, so
            //= the start of the next request is unknown
            _ if std::mem::take(&mut content.expects_continue) => Some(CloseReason::ClosedAfterResponse),
            // The rest is discarded after the response, or the connection closes without an announcement.
            _ if content.reads_while_responding => None,
            (Remaining::Length(remaining), _) if *remaining > self.shared.limits.discard_bytes_max => {
                Some(CloseReason::ContentUnread)
            }
            _ => None,
        }
    }

    /// Discards unread content so that the next request can be parsed, or closes so that the client can read the
    /// response.
    pub(super) async fn finish_content(&self, close_decision: CloseDecision) -> Result<(), CloseReason> {
        let done = self.content.borrow().as_ref().is_none_or(|content| content.is_done());
        if done {
            *self.content.borrow_mut() = None;
            return Ok(());
        }
        if let Some(content) = self.content.borrow_mut().as_mut() {
            content.is_discarding = true;
            content.reads_while_responding = false;
        }
        self.wake_reader();
        self.flush().await?;
        let failed = self.content.borrow().as_ref().and_then(|content| content.error);
        let discarded = match (close_decision.persistence, failed) {
            (Persistence::KeepAlive, None) => self.discard_content().await,
            (Persistence::KeepAlive, Some(error)) => Err(close_reason(error)),
            (Persistence::Close, error) => Err(error.map_or(close_decision.close_reason, close_reason)),
        };
        *self.content.borrow_mut() = None;
        if discarded.is_ok() {
            // The deadline of the next request is not set yet.
            self.clear_deadline();
        }
        match discarded {
            Err(CloseReason::Reset | CloseReason::ContentIncomplete) | Ok(()) => {}
            Err(_) => {
                self.send_and_shutdown().await?;
                self.linger().await;
            }
        }
        discarded
    }

    async fn discard_content(&self) -> Result<(), CloseReason> {
        let mut discarded = 0;
        loop {
            match poll_fn(|cx| self.poll_piece(cx)).await {
                None => return Ok(()),
                Some(Err(error)) => return Err(close_reason(error)),
                Some(Ok(bytes)) => discarded += bytes.len() as u64,
            }
            if discarded > self.shared.limits.discard_bytes_max {
                return Err(CloseReason::ContentUnread);
            }
        }
    }

    /// Returns the next piece of content.
    fn poll_piece(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        let mut guard = self.content.borrow_mut();
        let Some(content) = guard.as_mut() else { return Poll::Ready(Some(Err(ContentError::Ended))) };
        if let Some(error) = content.error {
            return Poll::Ready(Some(Err(error)));
        }
        loop {
            match self.take_piece(content) {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(bytes))),
                Ok(None) if content.is_done() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(set_error(content, error)))),
            }
            // A client that sent its content without waiting needs no `100 Continue`.
            self.send_continue(content);
            if !content.is_reading {
                content.is_reading = true;
                content.last_activity = self.worker.clock.tick();
                content.progress.began = content.last_activity.saturating_sub(content.time_waited);
            }
            if self.deadline() != Deadline::RequestBody {
                self.wait_for_content(content);
            }
            content.reader = Some(cx.waker().clone());
            if content.bytes_since_yield >= BYTES_PER_YIELD {
                content.bytes_since_yield = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // The content deadline also applies to a client that does not read earlier responses. During a response
            // the connection itself flushes, and only one task can wait for that.
            if !content.reads_while_responding && ready!(self.poll_flush(cx)).is_err() {
                return Poll::Ready(Some(Err(set_error(content, ContentError::Disconnected))));
            }
            let had = self.input.borrow().bytes().len();
            if content.next_buffer_size == Size::Long {
                self.input.borrow_mut().use_long_buffer();
            }
            let Poll::Ready(received) = self.poll_receive(cx) else {
                content.bytes_since_yield = 0;
                return Poll::Pending;
            };
            let error = match received {
                Received::More => {
                    let has = self.input.borrow().bytes().len();
                    content.next_buffer_size = if has < BUFFER_BYTES { Size::Usual } else { Size::Long };
                    content.progress.bytes += (has - had) as u64;
                    content.bytes_since_yield += has - had;
                    content.last_activity = self.worker.clock.tick();
                    self.wait_for_content(content);
                    continue;
                }
                Received::SendStalled => continue,
                // Interrupts for idle connections do not apply here.
                Received::Interrupted(Interrupt::TimedOut) => ContentError::TooSlow,
                Received::Interrupted(Interrupt::None | Interrupt::Evict | Interrupt::Drain | Interrupt::Park) => {
                    self.wait_for_content(content);
                    continue;
                }
                Received::Interrupted(Interrupt::Abort) | Received::End | Received::Failed => {
                    ContentError::Disconnected
                }
            };
            return Poll::Ready(Some(Err(set_error(content, error))));
        }
    }

    /// Returns content that was received already; `None` if more has to arrive first or the content is complete.
    fn take_piece(&self, content: &mut BodyState) -> Result<Option<Bytes>, ContentError> {
        let mut input = self.input.borrow_mut();
        match &mut content.framing {
            Remaining::Nothing(_) => Ok(None),
            Remaining::Length(remaining) => {
                let available = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.bytes().len());
                if available == 0 {
                    return Ok(None);
                }
                content.expects_continue = false;
                *remaining -= available as u64;
                if *remaining == 0 {
                    content.framing = Remaining::Nothing(None);
                }
                Ok(Some(take_bytes(&mut input, available)))
            }
            Remaining::Chunks(decoder) => {
                if !input.bytes().is_empty() {
                    content.expects_continue = false;
                }
                let mut joined = Vec::new();
                let trailers = loop {
                    match decoder
                        .decode_next(input.bytes(), &self.shared.limits.message)
                        .map_err(ContentError::Rejected)?
                    {
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
                    content.framing = Remaining::Nothing(Some(trailers));
                }
                Ok((!joined.is_empty()).then(|| joined.into()))
            }
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

fn set_error(content: &mut BodyState, error: ContentError) -> ContentError {
    content.error = Some(error);
    error
}

fn close_reason(error: ContentError) -> CloseReason {
    match error {
        ContentError::Rejected(reject) => CloseReason::ContentRejected(reject),
        ContentError::TooSlow => CloseReason::ContentTooSlow,
        ContentError::Disconnected => CloseReason::ContentIncomplete,
        ContentError::TooLarge | ContentError::Ended => CloseReason::ContentUnread,
    }
}

impl<S: Stream> ContentSource for Connection<S> {
    fn poll_content(&self, request: u32, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        if self.content.borrow().as_ref().is_none_or(|content| content.request != request || content.is_discarding) {
            return Poll::Ready(Some(Err(ContentError::Ended)));
        }
        let polled = self.poll_piece(cx);
        let reader = match self.content.borrow_mut().as_mut() {
            Some(content) if polled.is_ready() && content.is_reading => {
                content.is_reading = false;
                content.time_waited = self.worker.clock.tick().saturating_sub(content.progress.began);
                content.reader.take()
            }
            _ => return polled,
        };
        // The application runs now, so the client is not waited for.
        if self.deadline() == Deadline::RequestBody {
            self.clear_deadline();
        }
        // A task of the application may have waited instead of the connection's task.
        self.worker.connections.wake(self.id(), Some(cx.waker()));
        // Dropping the waker may run application code, so drop it after all borrows have ended.
        drop(reader);
        polled
    }

    fn trailers(&self, request: u32) -> Option<Fields> {
        match self.content.borrow().as_deref() {
            Some(BodyState { request: own, framing: Remaining::Nothing(trailers), .. }) if *own == request => {
                trailers.clone()
            }
            _ => None,
        }
    }

    fn stop_reading(&self, request: u32) {
        if let Some(content) = self.content.borrow_mut().as_mut().filter(|content| content.request == request) {
            content.is_reading_stopped = true;
        }
    }

    fn failure(&self, request: u32) -> Option<ContentError> {
        let content = self.content.borrow();
        let content = content.as_ref().filter(|content| content.request == request)?;
        content.error.or(content.is_reading_stopped.then_some(ContentError::TooLarge))
    }

    fn send_interim(&self, request: u32, status: StatusCode, fields: &Fields) -> Result<(), ContentError> {
        if request != self.requests() {
            return Err(ContentError::Ended);
        }
        let mut output = self.output.borrow_mut();
        if output.len() >= BATCH_BYTES {
            return Err(ContentError::Disconnected);
        }
        write_interim(status, fields, output.bytes());
        self.worker.connections.wake(self.id(), None);
        Ok(())
    }
}
