//! A call of the application for one request.

use super::connection::Connection;
use crate::connection::app_context::AppContext;
use crate::connection::exchange::ResponseRecord;
use crate::connection::http1::request_pool;
use crate::connection::response_plan::PANICKED;
use crate::net::panic;
use crate::net::stream::Stream;
use crate::service::{Observer, Request, Response, ServerEvent, Service};
use selvedge_proto::StatusCode;
use selvedge_proto::http2::StreamId;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

/// A request whose response is not complete.
pub(super) struct ActiveRequest {
    pub(super) request: Request,
    pub(super) stream: StreamId,
    pub(super) began: Option<Instant>,
}

/// The result of a call.
pub(super) struct Called {
    pub(super) active: ActiveRequest,
    pub(super) response: Response,
}

/// A request whose call is not complete. It is reported if the call is cancelled.
struct Calling<'a, S: Stream, T, O: Observer> {
    active: Option<ActiveRequest>,
    connection: &'a Connection<S>,
    app: &'a AppContext<T, O>,
}

/// The invariant of [`Calling`], as the message of `expect`.
const ACTIVE_UNTIL_RESPONSE: &str = "the request is there until its call is complete";

impl<S: Stream, T, O: Observer> Drop for Calling<'_, S, T, O> {
    fn drop(&mut self) {
        if let Some(active) = self.active.take() {
            let record = ResponseRecord::client_disconnected(self.connection.cancel_reason.get());
            finish(active, record, self.connection, self.app);
        }
    }
}

/// Calls the application. A panic becomes a response with 500.
#[expect(clippy::manual_async_fn, reason = "an async fn stores its arguments twice")]
pub(super) fn call<'a, S: Stream, T: Service, O: Observer>(
    connection: &'a Connection<S>,
    app: &'a AppContext<T, O>,
    active: ActiveRequest,
) -> impl Future<Output = Called> + use<'a, S, T, O> {
    async move {
        let mut calling = Calling { active: Some(active), connection, app };
        let mut has_waited = false;
        let response = {
            let request = &mut calling.active.as_mut().expect(ACTIVE_UNTIL_RESPONSE).request;
            // The call itself may panic, not only its future.
            let mut call = pin!(async { app.service.call(request).await });
            poll_fn(|cx| match panic::catch(|| call.as_mut().poll(cx)) {
                Ok(polled) => {
                    has_waited |= polled.is_pending();
                    polled
                }
                Err(message) => {
                    app.observer.event(&ServerEvent::Panic { peer: connection.transport.ends.peer, message });
                    Poll::Ready(Response::engine_error(StatusCode::INTERNAL_SERVER_ERROR, "").log_reason(PANICKED))
                }
            })
            .await
        };
        let mut active = calling.active.take().expect(ACTIVE_UNTIL_RESPONSE);
        if has_waited {
            active.request.inner.log_info.end_application(active.began);
        }
        Called { active, response }
    }
}

/// Ends the content of a request whose response is complete.
pub(super) fn finish_content<S: Stream>(active: &mut ActiveRequest, connection: &Connection<S>) {
    let ended = connection.contents.borrow().ended_at(active.stream);
    active.request.inner.log_info.end_content(active.began, ended);
    connection.finish_content(active.stream);
}

/// Reports a request whose response is complete or has failed, and releases its memory.
pub(super) fn finish<S: Stream, T, O: Observer>(
    active: ActiveRequest,
    mut record: ResponseRecord,
    connection: &Connection<S>,
    app: &AppContext<T, O>,
) {
    let ActiveRequest { request, stream, began } = active;
    record.blame_upstream(&request);
    // What ends a whole connection is reported with its end.
    record.reset = record.outcome.err().filter(|_| !connection.has_ended.get());
    record.report(app, &connection.transport, &request, connection.facts(stream, began));
    let mut inner = request.inner;
    if let Some(extensions) = inner.connection_extensions.take() {
        connection.extensions.borrow_mut().get_or_insert(extensions);
    }
    request_pool::release(inner);
}
