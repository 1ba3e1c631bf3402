//! Runs an HTTP/1 connection: reads a head, calls the application, writes its response, and keeps or closes the
//! connection.

use crate::buffer::Buffer;
use crate::connection::app_context::AppContext;
use crate::connection::close::{CloseDecision, PANICKED};
use crate::connection::respond::{PendingBody, ResponseRecord};
use crate::connection::transport::{Connection, ReceiveBuffer, Received};
use crate::connection::{request_body, request_pool};
use crate::limits::REQUESTS_PER_YIELD;
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::panic;
use crate::net::runtime::yield_now;
use crate::net::stream::Stream;
use crate::service::{
    CloseReason, InterimSender, Observer, Request, RequestInner, Response, ServerEvent, Service, Timestamp,
};
use selvedge_proto::head::RequestFraming;
use selvedge_proto::http1::parse_request;
use selvedge_proto::{Persistence, Reject, StatusCode};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

/// Why no further request was read.
enum ReadOutcome {
    /// The connection ends without a response.
    Ended(CloseReason),
    /// The connection ends with an error response.
    Refused(Refusal),
    /// The connection is idle and parks.
    Parked,
}

/// Why the request loop ended.
pub(super) enum LoopExit {
    /// The connection ended.
    Ended(CloseReason),
    /// The connection is idle and continues without a task.
    Parked,
}

/// What follows a finished response.
enum NextStep {
    /// The next request can be read.
    Next,
    /// Content has to be discarded, or the connection has to be closed.
    Unfinished(CloseDecision),
    /// The connection has ended.
    Ended(CloseReason),
}

/// An error response to a request that never reaches the application.
struct Refusal {
    status: StatusCode,
    text: &'static str,
    reject: Option<Reject>,
    reason: CloseReason,
}

/// Serves requests until the connection ends or parks.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as long as the connection lasts")]
pub(super) fn serve<S: Stream, T: Service, O: Observer>(
    connection: &Rc<Connection<S>>,
    app: &AppContext<T, O>,
) -> impl Future<Output = LoopExit> {
    async move {
        let mut served_since_yield = 0;
        connection.half_closed.set(app.service.half_closed());
        loop {
            let mut request = match connection.read_request().await {
                Ok(request) => request,
                Err(ReadOutcome::Ended(reason)) => return LoopExit::Ended(reason),
                Err(ReadOutcome::Refused(refusal)) => {
                    return LoopExit::Ended(Box::pin(connection.refuse(&refusal, app)).await);
                }
                Err(ReadOutcome::Parked) => return LoopExit::Parked,
            };
            connection.attach_extensions(&mut request, app);
            let began = app.observer.wants_elapsed().then(Instant::now);
            let response = {
                let mut call = pin!(app.service.call(&mut request));
                poll_fn(|cx| connection.poll_call(cx, call.as_mut(), app)).await
            };
            let next_step = match connection.respond(request, response, app, began) {
                SendOutcome::Complete(next_step) => next_step,
                SendOutcome::Sending(rest) => rest.await,
            };
            match next_step {
                NextStep::Next => {}
                NextStep::Ended(reason) => return LoopExit::Ended(reason),
                NextStep::Unfinished(close_decision) => {
                    if let Err(reason) = Box::pin(connection.finish_request(close_decision)).await {
                        return LoopExit::Ended(reason);
                    }
                }
            }
            served_since_yield += 1;
            if served_since_yield == REQUESTS_PER_YIELD {
                served_since_yield = 0;
                if let Err(reason) = connection.flush().await {
                    return LoopExit::Ended(reason);
                }
                yield_now().await;
            }
        }
    }
}

/// The result of writing a response.
enum SendOutcome<F> {
    /// The response is complete.
    Complete(NextStep),
    /// A part is not sent yet. The future sends it and finishes the exchange.
    Sending(Pin<Box<F>>),
}

/// A response that is being sent. It is reported even if the connection is aborted before its end.
struct Sending<'a, S: Stream, T: Service, O: Observer> {
    pending: Option<(Request, ResponseRecord)>,
    app: &'a AppContext<T, O>,
    connection: &'a Connection<S>,
    began: Option<Instant>,
}

/// The invariant of [`Sending`], as the message of `expect`.
const PENDING_UNTIL_SENT: &str = "the response is pending until it was sent";

impl<S: Stream, T: Service, O: Observer> Sending<'_, S, T, O> {
    /// Sends the pending body until its end or the end of the connection, and finishes the exchange.
    async fn send(mut self, rest: PendingBody) -> NextStep {
        let (_, record) = self.pending.as_mut().expect(PENDING_UNTIL_SENT);
        self.connection.send_pending(rest, record).await;
        let (request, record) = self.pending.take().expect(PENDING_UNTIL_SENT);
        self.connection.finish_exchange(request, record, self.app, self.began)
    }
}

impl<S: Stream, T: Service, O: Observer> Drop for Sending<'_, S, T, O> {
    fn drop(&mut self) {
        if let Some((request, record)) = &mut self.pending {
            record.outcome = Err(self.connection.abort_reason());
            record.report(self.app, self.connection, request, self.began);
        }
    }
}

impl<S: Stream> Connection<S> {
    /// Waits for the next request head and parses it.
    async fn read_request(self: &Rc<Self>) -> Result<Request, ReadOutcome> {
        let mut begun: Option<Box<RequestInner>> = None;
        // Whether the deadline of this head is set. A response that was sent at once leaves the deadline of the
        // previous head set.
        let mut is_timed = false;
        if self.is_resumed.take() {
            // The deadline from before parking still applies. An interrupt may be pending.
        } else if self.requests() == 0 {
            // A new connection without a byte closes when the server drains.
            if self.worker.is_draining.get() && !self.try_receive_more().await {
                return Err(ReadOutcome::Ended(CloseReason::Draining));
            }
            self.wait_for(Deadline::RequestHead, self.shared.limits.header_timeout);
            is_timed = true;
        } else if !self.has_partial_head() {
            self.send_deferred().await.map_err(ReadOutcome::Ended)?;
            // The server began to drain after the head of the last response, too late for `Connection: close`. A
            // pipelined request is still served: closing now would destroy the unsent response.
            if self.worker.is_draining.get() && !self.try_receive_more().await {
                let reason = self.flush().await.err().unwrap_or(CloseReason::Draining);
                return Err(ReadOutcome::Ended(reason));
            }
            self.wait_for(Deadline::KeepAlive, self.shared.limits.keep_alive_timeout);
        }
        loop {
            if !self.input.borrow().bytes().is_empty() {
                let complete = {
                    let input = self.input.borrow();
                    let head = &mut begun.get_or_insert_with(request_pool::acquire).head;
                    parse_request(input.bytes(), &self.shared.limits.message, head)
                };
                if complete.map_err(|reject| ReadOutcome::Refused(reject.into()))?
                    && let Some(inner) = begun.take()
                {
                    return Ok(self.make_request(inner));
                }
                self.flush().await.map_err(ReadOutcome::Ended)?;
                if self.has_partial_head() && !(is_timed && self.deadline() == Deadline::RequestHead) {
                    self.wait_for(Deadline::RequestHead, self.shared.limits.header_timeout);
                    is_timed = true;
                }
            }
            self.receive_head_bytes().await?;
        }
    }

    /// Whether a request head has begun. The empty line that a client may send before it does not count (RFC 9112
    /// §2.2).
    fn has_partial_head(&self) -> bool {
        !matches!(self.input.borrow().bytes(), b"" | b"\r" | b"\r\n")
    }

    /// Receives available bytes without waiting. Returns whether any arrived.
    async fn try_receive_more(&self) -> bool {
        poll_fn(|cx| Poll::Ready(matches!(self.poll_receive(cx), Poll::Ready(Received::More)))).await
    }

    /// Receives more of a head, or returns why none arrives.
    async fn receive_head_bytes(&self) -> Result<(), ReadOutcome> {
        loop {
            let mut received = self.receive().await;
            if matches!(received, Received::More) {
                return Ok(());
            }
            if matches!(received, Received::Interrupted(Interrupt::Park)) {
                if self.is_parkable() {
                    return Err(ReadOutcome::Parked);
                }
                self.worker.connections.clear_interrupt(self.id());
                if self.output.borrow().len() == 0 {
                    continue;
                }
                received = Received::SendStalled;
            }
            // A deferred response leaves before the connection ends.
            if !matches!(received, Received::Failed) {
                self.flush().await.map_err(ReadOutcome::Ended)?;
            }
            let begun = self.has_partial_head();
            return Err(ReadOutcome::Ended(match received {
                Received::More => return Ok(()),
                Received::SendStalled => {
                    self.wait_for(Deadline::KeepAlive, self.shared.limits.keep_alive_timeout);
                    continue;
                }
                Received::End if !self.input.borrow().bytes().is_empty() => CloseReason::HeadIncomplete,
                Received::End => CloseReason::ClientClosed,
                Received::Failed => CloseReason::Reset,
                Received::Interrupted(Interrupt::TimedOut) if begun => {
                    return Err(ReadOutcome::Refused(Refusal {
                        status: StatusCode::REQUEST_TIMEOUT,
                        text: CloseReason::HeadTooSlow.explain(),
                        reject: None,
                        reason: CloseReason::HeadTooSlow,
                    }));
                }
                Received::Interrupted(Interrupt::TimedOut) if self.requests() == 0 => CloseReason::NothingReceived,
                Received::Interrupted(Interrupt::TimedOut) => CloseReason::KeepAliveTimeout,
                Received::Interrupted(Interrupt::Evict) => CloseReason::Evicted,
                // A partial head may be completed within its deadline.
                Received::Interrupted(Interrupt::Drain) if begun => {
                    self.worker.connections.clear_interrupt(self.id());
                    continue;
                }
                Received::Interrupted(_) => CloseReason::Draining,
            }));
        }
    }

    /// Makes a request from a complete head: its bytes move from the connection to the request.
    fn make_request(self: &Rc<Self>, mut inner: Box<RequestInner>) -> Request {
        let number = self.count_request();
        let clock = &self.worker.clock;
        inner.peer = self.peer();
        inner.received_at = Timestamp { since_worker_start: clock.elapsed(), unix_time: clock.unix_seconds() };
        if inner.head.framing == RequestFraming::None {
            let ReceiveBuffer { buffer, at } = std::mem::take(&mut *self.input.borrow_mut());
            (inner.bytes, inner.start) = (buffer.unwrap_or_default(), at);
        } else {
            // Bytes after the head are content and stay in the connection's buffer. The head is copied, so a request
            // does not hold a long buffer.
            let mut input = self.input.borrow_mut();
            (inner.bytes, inner.start) = (Buffer::of(&input.bytes()[..inner.head.len]), 0);
            input.consume(inner.head.len);
            drop(input);
            inner.content = request_body::begin(self, number, inner.head.framing, inner.head.expectation);
        }
        Request { inner }
    }

    /// Attaches the connection's extensions and the interim sender, if the application uses them.
    fn attach_extensions<T: Service, O>(self: &Rc<Self>, request: &mut Request, app: &AppContext<T, O>) {
        if app.service.uses_connection_extensions() {
            request.inner.connection_extensions = self.extensions.take();
        }
        if app.service.sends_interim() {
            let source: Weak<Self> = Rc::downgrade(self);
            request.inner.interim_sender = Some(InterimSender { source, request: self.requests() });
        }
    }

    /// Polls the application's call. Buffered responses are flushed while a call is pending.
    fn poll_call<T, O: Observer>(
        &self,
        cx: &mut Context<'_>,
        call: Pin<&mut impl Future<Output = Response>>,
        app: &AppContext<T, O>,
    ) -> Poll<Result<Response, CloseReason>> {
        match panic::catch(|| call.poll(cx)) {
            Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
            Ok(Poll::Pending) => {
                // A call that is ready at its first poll does not pay for clearing the deadline.
                if matches!(self.deadline(), Deadline::KeepAlive | Deadline::RequestHead) {
                    self.clear_deadline();
                }
                let has_output = self.output.borrow().len() > 0;
                match self.poll_flush(cx) {
                    Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason)),
                    // A body reader may have waited for this flush. The stream wakes one task only, so wake it here.
                    Poll::Ready(Ok(())) if has_output => {
                        self.wake_reader();
                    }
                    _ => {}
                }
                self.poll_client_disconnected(cx).map(|()| Err(CloseReason::ClientDisconnected))
            }
            Err(message) => {
                app.observer.event(&ServerEvent::Panic { peer: self.peer(), message });
                Poll::Ready(Ok(Response::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason(PANICKED)))
            }
        }
    }

    /// Writes the response to a request as far as possible without waiting.
    fn respond<'a, T: Service, O: Observer>(
        &'a self,
        request: Request,
        response: Result<Response, CloseReason>,
        app: &'a AppContext<T, O>,
        began: Option<Instant>,
    ) -> SendOutcome<impl Future<Output = NextStep> + use<'a, S, T, O>> {
        let (record, rest) = match response {
            Ok(response) => self.begin_response(&request, response, app.shared.app_state.get()),
            Err(reason) => (ResponseRecord::client_disconnected(reason), None),
        };
        match rest {
            None => SendOutcome::Complete(self.finish_exchange(request, record, app, began)),
            Some(rest) => {
                let sending = Sending { pending: Some((request, record)), app, connection: self, began };
                SendOutcome::Sending(Box::pin(sending.send(rest)))
            }
        }
    }

    /// Reports a request whose response was sent or failed, and returns pipelined bytes to the receive buffer.
    fn finish_exchange<T, O: Observer>(
        &self,
        request: Request,
        record: ResponseRecord,
        app: &AppContext<T, O>,
        began: Option<Instant>,
    ) -> NextStep {
        record.report(app, self, &request, began);
        let mut inner = request.inner;
        let consumed = inner.start + inner.head.len;
        let has_content = inner.head.framing != RequestFraming::None;
        let bytes = std::mem::take(&mut inner.bytes);
        if let Some(extensions) = inner.connection_extensions.take() {
            self.extensions.set(Some(extensions));
        }
        request_pool::release(inner);
        if let Err(reason) = record.outcome {
            return NextStep::Ended(reason);
        }
        if !has_content && consumed < bytes.len() {
            *self.input.borrow_mut() = ReceiveBuffer { buffer: Some(bytes), at: consumed };
        }
        match record.close_decision.persistence {
            Persistence::KeepAlive if !has_content => NextStep::Next,
            _ => NextStep::Unfinished(record.close_decision),
        }
    }

    /// Discards unread content after a response, and closes the connection if it has to end.
    async fn finish_request(&self, close_decision: CloseDecision) -> Result<(), CloseReason> {
        if close_decision.close_reason == CloseReason::Upgraded {
            return Err(CloseReason::Upgraded);
        }
        self.finish_content(close_decision).await?;
        if close_decision.persistence == Persistence::KeepAlive {
            return Ok(());
        }
        self.send_and_shutdown().await?;
        // Pipelined requests after the last response are discarded, not served. Closing with unread bytes would send
        // a reset and destroy the response.
        let is_empty = self.input.borrow().bytes().is_empty();
        if !is_empty || (self.has_waited.get() && self.try_receive_more().await) {
            self.linger().await;
        }
        Err(close_decision.close_reason)
    }

    /// Sends an error response to a request that never reaches the application, and ends the connection.
    async fn refuse<T, O: Observer>(self: &Rc<Self>, refusal: &Refusal, app: &AppContext<T, O>) -> CloseReason {
        // The refusal or the close reports the reason.
        let response = Response::error_with_text(refusal.status, refusal.text).no_log_reason();
        let (mut record, rest) = self.begin_refusal(response);
        if let Some(rest) = rest {
            self.send_pending(rest, &mut record).await;
        }
        record.report_refusal(app, self, refusal.reject);
        if let Err(reason) = record.outcome {
            return reason;
        }
        if let Err(reason) = self.send_and_shutdown().await {
            return reason;
        }
        self.linger().await;
        refusal.reason
    }
}

impl From<Reject> for Refusal {
    fn from(reject: Reject) -> Self {
        Self {
            status: reject.status(),
            text: reject.message(),
            reject: Some(reject),
            reason: CloseReason::Rejected(reject),
        }
    }
}
