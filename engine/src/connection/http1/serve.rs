//! The request loop: reads a head, calls the application, writes its response, and keeps or closes the connection.

use super::connection::Connection;
use super::request_pool;
use super::respond::PendingBody;
use crate::connection::app_context::AppContext;
use crate::connection::exchange::ResponseRecord;
use crate::connection::exit::Exit;
use crate::connection::receive_buffer::ReceiveBuffer;
use crate::connection::response_plan::PANICKED;
use crate::connection::timeouts::abort_reason;
use crate::limits::REQUESTS_PER_YIELD;
use crate::net::connection_table::Deadline;
use crate::net::panic;
use crate::net::runtime::yield_now;
use crate::net::stream::Stream;
use crate::service::{CloseReason, Observer, Request, Response, ServerEvent, Service};
use selvedge_proto::StatusCode;
use selvedge_proto::head::RequestFraming;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// What follows a response that was sent.
enum AfterResponse {
    /// The next request can be read.
    Next,
    /// Content has to be discarded, or the connection has to be closed for this reason.
    Finish(Option<CloseReason>),
}

/// The result of sending a response.
type Sent = Result<AfterResponse, CloseReason>;

/// Serves requests until the connection ends or parks.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice, as long as the connection lasts")]
pub(in crate::connection) fn serve<S: Stream, T: Service, O: Observer>(
    connection: &Rc<Connection<S>>,
    app: &AppContext<T, O>,
) -> impl Future<Output = Exit> {
    async move {
        let mut served_since_yield = 0;
        connection.half_closed.set(app.service.half_closed());
        loop {
            let mut request = match connection.read_request(app).await {
                Ok(request) => request,
                Err(exit) => return exit,
            };
            connection.attach_extensions(&mut request, app);
            let began = app.observer.wants_elapsed().then(Instant::now);
            if let Some(began) = began {
                connection.transport.marks.take(began, &mut request.inner.log_info.phases);
            }
            let mut has_waited = false;
            let response = {
                let mut call = pin!(app.service.call(&mut request));
                poll_fn(|cx| {
                    let polled = poll_call(connection, cx, call.as_mut(), app);
                    has_waited |= polled.is_pending();
                    polled
                })
                .await
            };
            if has_waited {
                request.inner.log_info.end_application(began);
            }
            let sent = match connection.respond(request, response, app, began) {
                ControlFlow::Break(sent) => sent,
                ControlFlow::Continue(sending) => sending.await,
            };
            match sent {
                Ok(AfterResponse::Next) => {}
                Err(reason) => return Exit::Closed(reason),
                Ok(AfterResponse::Finish(close)) => {
                    if let Err(reason) = Box::pin(finish_request(connection, close)).await {
                        return Exit::Closed(reason);
                    }
                }
            }
            served_since_yield += 1;
            if served_since_yield == REQUESTS_PER_YIELD {
                served_since_yield = 0;
                if let Err(reason) = connection.transport.flush().await {
                    return Exit::Closed(reason);
                }
                yield_now().await;
            }
        }
    }
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
    async fn send(mut self, rest: PendingBody) -> Sent {
        let (_, record) = self.pending.as_mut().expect(PENDING_UNTIL_SENT);
        self.connection.send_pending(rest, record).await;
        let (request, record) = self.pending.take().expect(PENDING_UNTIL_SENT);
        self.connection.finish_exchange(request, record, self.app, self.began)
    }
}

impl<S: Stream, T: Service, O: Observer> Drop for Sending<'_, S, T, O> {
    fn drop(&mut self) {
        if let Some((request, record)) = &mut self.pending {
            let transport = &self.connection.transport;
            record.outcome = Err(abort_reason(&transport.timeouts.worker));
            record.report(self.app, transport, request, self.connection.facts(self.began));
        }
    }
}

/// Polls the application's call. Buffered responses are flushed while a call is pending.
fn poll_call<S: Stream, T, O: Observer>(
    connection: &Connection<S>,
    cx: &mut Context<'_>,
    call: Pin<&mut impl Future<Output = Response>>,
    app: &AppContext<T, O>,
) -> Poll<Result<Response, CloseReason>> {
    match panic::catch(|| call.poll(cx)) {
        Ok(Poll::Ready(response)) => Poll::Ready(Ok(response)),
        Ok(Poll::Pending) => {
            let transport = &connection.transport;
            // A call that is ready at its first poll does not pay for clearing the deadline.
            if matches!(transport.timeouts.deadline(), Deadline::KeepAlive | Deadline::RequestHead) {
                transport.timeouts.clear();
            }
            let has_output = transport.unsent_len() > 0;
            match transport.poll_flush(cx) {
                Poll::Ready(Err(reason)) => return Poll::Ready(Err(reason)),
                // A body reader may have waited for this flush. The stream wakes one task only, so wake it here.
                Poll::Ready(Ok(())) if has_output => {
                    connection.body.wake_reader();
                }
                _ => {}
            }
            connection.poll_client_disconnected(cx).map(|()| Err(CloseReason::ClientDisconnected))
        }
        Err(message) => {
            app.observer.event(&ServerEvent::Panic { peer: connection.transport.ends.peer, message });
            Poll::Ready(Ok(Response::engine_error(StatusCode::INTERNAL_SERVER_ERROR, "").log_reason(PANICKED)))
        }
    }
}

impl<S: Stream> Connection<S> {
    /// Writes the response to a request as far as possible without waiting. Returns a future that sends the rest, if
    /// one remains.
    fn respond<'a, T: Service, O: Observer>(
        &'a self,
        mut request: Request,
        response: Result<Response, CloseReason>,
        app: &'a AppContext<T, O>,
        began: Option<Instant>,
    ) -> ControlFlow<Sent, Pin<Box<impl Future<Output = Sent> + use<'a, S, T, O>>>> {
        let (record, rest) = match response {
            Ok(response) => {
                let response = app.shared.error_hook.apply(response, Some(&request));
                self.begin_response(&request, response, app.shared.app_state.get())
            }
            Err(reason) => (ResponseRecord::client_disconnected(reason), None),
        };
        match rest {
            None => ControlFlow::Break(self.finish_exchange(request, record, app, began)),
            Some(rest) => {
                request.inner.log_info.waited_to_send = true;
                let sending = Sending { pending: Some((request, record)), app, connection: self, began };
                ControlFlow::Continue(Box::pin(sending.send(rest)))
            }
        }
    }

    /// Reports a request whose response was sent or failed, and returns pipelined bytes to the receive buffer.
    fn finish_exchange<T, O: Observer>(
        &self,
        mut request: Request,
        mut record: ResponseRecord,
        app: &AppContext<T, O>,
        began: Option<Instant>,
    ) -> Sent {
        record.blame_upstream(&request);
        request.inner.log_info.end_content(began, self.body.ended_at());
        record.report(app, &self.transport, &request, self.facts(began));
        let mut inner = request.inner;
        let consumed = inner.start + inner.head.len;
        let has_content = inner.head.framing != RequestFraming::None;
        let bytes = std::mem::take(&mut inner.bytes);
        if let Some(extensions) = inner.connection_extensions.take() {
            self.extensions.set(Some(extensions));
        }
        request_pool::release(inner);
        record.outcome?;
        if !has_content && consumed < bytes.len() {
            *self.transport.input.borrow_mut() = ReceiveBuffer { buffer: Some(bytes), at: consumed };
        }
        match record.close {
            None if !has_content => Ok(AfterResponse::Next),
            close => Ok(AfterResponse::Finish(close)),
        }
    }
}

/// Discards unread content after a response, and closes the connection if it has to end.
async fn finish_request<S: Stream>(connection: &Connection<S>, close: Option<CloseReason>) -> Result<(), CloseReason> {
    if close == Some(CloseReason::Upgraded) {
        return Err(CloseReason::Upgraded);
    }
    connection.body.finish(&connection.transport, close).await?;
    let Some(reason) = close else { return Ok(()) };
    connection.transport.send_and_shutdown().await?;
    // Pipelined requests after the last response are discarded, not served. Closing with unread bytes would send
    // a reset and destroy the response.
    let is_empty = connection.transport.input.borrow().bytes().is_empty();
    if !is_empty || (connection.transport.has_waited() && connection.transport.try_receive_more().await) {
        connection.transport.linger().await;
    }
    Err(reason)
}
