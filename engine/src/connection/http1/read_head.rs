//! Reads the head of the next request.

use super::connection::Connection;
use super::request_pool;
use super::respond::{first_line, without_empty_line};
use crate::buffer::Buffer;
use crate::connection::app_context::AppContext;
use crate::connection::exchange::StreamFacts;
use crate::connection::exit::{Exit, FirstProtocol};
use crate::connection::receive_buffer::ReceiveBuffer;
use crate::connection::transport::{Received, Transport};
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::stream::Stream;
use crate::service::{
    CloseReason, ContentSource, IncomingBody, InterimSender, Observer, Request, RequestInner, Response, Service,
    Timestamp,
};
use selvedge_proto::accept::values_in_lines;
use selvedge_proto::head::RequestFraming;
use selvedge_proto::http1::parse_request;
use selvedge_proto::{Reject, StatusCode};
use std::rc::{Rc, Weak};

/// The start of a version of HTTP/1 in a request line.
const HTTP1_NAME: &[u8] = b"HTTP/1.";

/// An error response to a request that never reaches the application.
struct Refusal {
    status: StatusCode,
    text: &'static str,
    reject: Option<Reject>,
    reason: CloseReason,
}

impl Refusal {
    const HEAD_TOO_SLOW: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        text: CloseReason::HeadTooSlow.explain(),
        reject: None,
        reason: CloseReason::HeadTooSlow,
    };
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

/// Whether a refused first line is one of HTTP/1: it names a version, or it begins as a request for a path or a URL and is
/// too long or invalid before its version. The preface of HTTP/2 begins with `PRI *`.
fn begins_http1(line: &[u8]) -> bool {
    let method = line.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let has_target = [&b" /"[..], b" http"].iter().any(|begin| line[method..].starts_with(begin));
    (method > 0 && has_target) || line.windows(HTTP1_NAME.len()).any(|part| part == HTTP1_NAME)
}

impl<S: Stream> Connection<S> {
    /// Waits for the next request head and parses it. Refuses an invalid one, or returns why none arrives.
    pub(super) async fn read_request<T: Service, O: Observer>(
        self: &Rc<Self>,
        app: &AppContext<T, O>,
    ) -> Result<Request, Exit> {
        let transport = &self.transport;
        let mut begun: Option<Box<RequestInner>> = None;
        // Whether the deadline of this head is set. A response that was sent at once leaves the deadline of the
        // previous head set.
        let mut is_timed = false;
        if self.is_resumed.take() {
            // The deadline from before parking still applies. An interrupt may be pending.
        } else if self.requests.get() == 0 {
            // The time of a handshake counts.
            if transport.timeouts.deadline() != Deadline::RequestHead {
                let time = transport.timeouts.worker.idle_time(transport.shared.limits.header_timeout);
                transport.timeouts.wait_for(Deadline::RequestHead, time);
            }
            // When the server drains, the time without a byte is shorter than that of a head.
            is_timed = !transport.timeouts.worker.is_draining();
        } else if !has_partial_head(transport) {
            transport.send_deferred().await.map_err(Exit::Closed)?;
            // If the server began to drain after the head of the last response, too late for `Connection: close`, the
            // client has a moment for a request that it may have begun to send.
            transport.wait_for_request();
        }
        loop {
            if !transport.input.borrow().bytes().is_empty() {
                let complete = {
                    let input = transport.input.borrow();
                    let head = &mut begun.get_or_insert_with(request_pool::acquire).head;
                    parse_request(input.bytes(), &transport.shared.limits.message, head)
                };
                match complete {
                    Err(_) if self.begins_http2() => return Err(Exit::Http2),
                    Err(reject) => return Err(Box::pin(self.refuse(reject.into(), app)).await),
                    Ok(true) => {
                        if let Some(inner) = begun.take() {
                            return Ok(self.make_request(inner));
                        }
                    }
                    Ok(false) => {}
                }
                if app.observer.wants_elapsed() && has_partial_head(transport) {
                    transport.marks.begin_head();
                }
                transport.flush().await.map_err(Exit::Closed)?;
                if has_partial_head(transport) && !(is_timed && transport.timeouts.deadline() == Deadline::RequestHead)
                {
                    transport.timeouts.wait_for(Deadline::RequestHead, transport.shared.limits.header_timeout);
                    is_timed = true;
                }
            }
            loop {
                let received = transport.receive().await;
                if matches!(received, Received::More) {
                    break;
                }
                if let Some(exit) = Box::pin(self.end_of_wait(received, app)).await {
                    return Err(exit);
                }
            }
        }
    }

    /// Whether the client begins with HTTP/2, and may. Its preface is an invalid request of HTTP/1 (RFC 9113 §3.4). What
    /// does not begin as HTTP/1 is left to HTTP/2 as well, which ends the connection.
    #[cold]
    fn begins_http2(&self) -> bool {
        let may_begin = self.requests.get() == 0 && self.first_protocol == FirstProtocol::Http1OrHttp2;
        let input = self.transport.input.borrow();
        may_begin && !begins_http1(first_line(input.bytes()))
    }

    /// Decides what follows a wait in which no bytes arrived; `None` to wait again.
    async fn end_of_wait<T: Service, O: Observer>(
        self: &Rc<Self>,
        received: Received,
        app: &AppContext<T, O>,
    ) -> Option<Exit> {
        let transport = &self.transport;
        if matches!(received, Received::Interrupted(Interrupt::Park)) {
            if self.is_parkable() {
                return Some(Exit::Parked);
            }
            transport.timeouts.clear_interrupt();
            if transport.unsent_len() == 0 {
                return None;
            }
        }
        // A deferred response leaves before the connection ends.
        if !matches!(received, Received::Failed)
            && let Err(reason) = transport.flush().await
        {
            return Some(Exit::Closed(reason));
        }
        let has_bytes = !transport.input.borrow().bytes().is_empty();
        // Everything that can happen between two requests, and within a head.
        let reason = match (received, has_partial_head(transport)) {
            (Received::More, _) => return None,
            (
                Received::SendStalled
                | Received::Interrupted(Interrupt::Park | Interrupt::None | Interrupt::AbortStreams),
                _,
            ) => {
                transport.wait_for_request();
                return None;
            }
            // A partial head may be completed within its deadline.
            (Received::Interrupted(Interrupt::Drain), true) => {
                transport.timeouts.clear_interrupt();
                return None;
            }
            (Received::Interrupted(Interrupt::TimedOut), true) => {
                return Some(self.refuse(Refusal::HEAD_TOO_SLOW, app).await);
            }
            (Received::Interrupted(Interrupt::TimedOut), false) if transport.timeouts.worker.is_draining() => {
                CloseReason::Draining
            }
            (Received::Interrupted(Interrupt::TimedOut), false) if self.requests.get() == 0 => {
                CloseReason::NothingReceived
            }
            (Received::Interrupted(Interrupt::TimedOut), false) => CloseReason::KeepAliveTimeout,
            (Received::Interrupted(Interrupt::Evict), _) => CloseReason::Evicted,
            (Received::Interrupted(Interrupt::Drain | Interrupt::Abort), _) => CloseReason::Draining,
            (Received::End, _) if has_bytes => CloseReason::HeadIncomplete,
            (Received::End, _) => CloseReason::ClientClosed,
            (Received::Failed, _) => CloseReason::Reset,
        };
        Some(Exit::Closed(reason))
    }

    /// Makes a request from a complete head: its bytes move from the connection to the request.
    fn make_request(self: &Rc<Self>, mut inner: Box<RequestInner>) -> Request {
        let transport = &self.transport;
        self.requests.set(self.requests.get().wrapping_add(1));
        let clock = &transport.timeouts.worker.clock;
        inner.peer = transport.ends.peer;
        inner.local.clone_from(&transport.ends.local);
        inner.tls = transport.link.tls_info();
        inner.received_at = Timestamp { since_worker_start: clock.elapsed(), unix_time: clock.unix_seconds() };
        if inner.head.framing == RequestFraming::None {
            let ReceiveBuffer { buffer, at } = std::mem::take(&mut *transport.input.borrow_mut());
            (inner.bytes, inner.start) = (buffer.unwrap_or_default(), at);
        } else {
            // Bytes after the head are content and stay in the connection's buffer. The head is copied, so a request
            // does not hold a long buffer.
            let mut input = transport.input.borrow_mut();
            (inner.bytes, inner.start) = (Buffer::of(&input.bytes()[..inner.head.len]), 0);
            input.consume(inner.head.len);
            drop(input);
            let stream = self.stream_id();
            let length = self.body.begin(transport, stream, inner.head.framing, inner.head.expectation);
            let source: Weak<dyn ContentSource> = Rc::downgrade(self) as _;
            inner.content = IncomingBody::new(source, stream, length, transport.shared.limits.body_bytes_max);
        }
        Request { inner }
    }

    /// Attaches the connection's extensions and the interim sender, if the application uses them.
    pub(super) fn attach_extensions<T: Service, O>(self: &Rc<Self>, request: &mut Request, app: &AppContext<T, O>) {
        if app.service.uses_connection_extensions() {
            request.inner.connection_extensions = self.extensions.take();
        }
        if app.service.sends_interim() {
            let source: Weak<dyn ContentSource> = Rc::downgrade(self) as _;
            request.inner.interim_sender = Some(InterimSender { source, stream: self.stream_id() });
        }
    }

    /// Sends an error response to a request that never reaches the application, and ends the connection.
    async fn refuse<T, O: Observer>(self: &Rc<Self>, refusal: Refusal, app: &AppContext<T, O>) -> Exit {
        let transport = &self.transport;
        // The refusal or the close reports the reason.
        // The head may have been read far enough to show what the client prefers.
        let response = {
            let input = transport.input.borrow();
            let accept = values_in_lines(without_empty_line(input.bytes()));
            Response::to_refused_head(refusal.status, refusal.text, accept)
        };
        let response = app.shared.error_hook.apply(response, None);
        let (mut record, rest) = self.begin_refusal(response);
        if let Some(rest) = rest {
            self.send_pending(rest, &mut record).await;
        }
        {
            let input = transport.input.borrow();
            let facts = StreamFacts { stream: self.stream_id(), requests: self.requests.get(), began: None };
            record.report_refusal(app, transport, (first_line(input.bytes()), refusal.reject), facts);
        }
        let sent = match record.outcome {
            Ok(()) => transport.send_and_shutdown().await,
            outcome => outcome,
        };
        if let Err(reason) = sent {
            return Exit::Closed(reason);
        }
        transport.linger().await;
        Exit::Closed(refusal.reason)
    }
}

/// Whether a request head has begun. The empty line that a client may send before it does not count (RFC 9112 §2.2).
fn has_partial_head<S>(transport: &Transport<S>) -> bool {
    !matches!(transport.input.borrow().bytes(), b"" | b"\r" | b"\r\n")
}
