//! What clients send: heads, content, trailers, and resets.

use super::call::{ActiveRequest, Called};
use super::refusal::refuse;
use super::serve::ConnectionTask;
use crate::buffer::Buffer;
use crate::connection::http1::request_pool;
use crate::net::stream::Stream;
use crate::service::{
    CloseReason, ContentError, ContentSource, IncomingBody, InterimSender, Observer, Request, RequestInner, Service,
    StreamId as RequestId, Timestamp,
};
use selvedge_proto::field_section::{Protocols, RequestRules, SectionError, StreamEnd, read_trailers};
use selvedge_proto::head::Version;
use selvedge_proto::http2::{End, ErrorCode, FieldSection, Priority, ResetCause, StreamId};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::time::Instant;

/// Requests in progress whose heads may be in pooled buffers.
const POOLED_HEADS_MAX: usize = 2;

impl<S, T, O, M, F> ConnectionTask<'_, S, T, O, M, F>
where
    S: Stream,
    T: Service,
    O: Observer,
    M: Fn(ActiveRequest) -> F,
    F: Future<Output = Called>,
{
    /// Begins a request, or refuses its head.
    pub(super) fn begin_request(&mut self, stream: StreamId, end: End, section: FieldSection) {
        let connection = self.connection;
        connection.requests.set(connection.requests.get().wrapping_add(1));
        connection.idle_since.set(None);
        let mut inner = request_pool::acquire();
        inner.bytes = Buffer::take();
        inner.start = 0;
        let protocols = match self.app.service.accepts_extended_connect() {
            true => Protocols::Any,
            false => Protocols::None,
        };
        let built = {
            let rules = RequestRules {
                version: Version::Http2,
                limits: &connection.transport.shared.limits.message,
                protocols,
            };
            let end = if end == End::Last { StreamEnd::Ended } else { StreamEnd::Open };
            let RequestInner { bytes, head, .. } = &mut *inner;
            self.repeated_head.build(&connection.protocol.borrow(), (section, end), &rules, (bytes, head))
        };
        match built {
            Ok(length) => {
                if self.streams.used() >= POOLED_HEADS_MAX {
                    // Many requests that wait would hold much more than their heads.
                    inner.bytes.shrink_for_waiting();
                }
                self.set_priority(stream);
                self.start_request(stream, end, length, inner);
            }
            Err(error) => {
                request_pool::release(inner);
                refuse(self.connection, self.app, (stream, end), error);
            }
        }
    }

    /// Applies the priority that a request states (RFC 9218 §5).
    fn set_priority(&self, stream: StreamId) {
        let mut protocol = self.connection.protocol.borrow_mut();
        let stated = protocol.fields().iter().find(|field| field.name == b"priority");
        if let Some(priority) = stated.map(|field| Priority::parse(field.value)) {
            protocol.set_priority(stream, priority);
        }
    }

    fn start_request(&mut self, stream: StreamId, end: End, length: Option<u64>, mut inner: Box<RequestInner>) {
        let connection = self.connection;
        let transport = &connection.transport;
        let clock = &transport.timeouts.worker.clock;
        inner.peer = transport.ends.peer;
        inner.local.clone_from(&transport.ends.local);
        inner.tls = transport.link.tls_info();
        inner.received_at = Timestamp { since_worker_start: clock.elapsed(), unix_time: clock.unix_seconds() };
        let id = RequestId(stream.get().into());
        if let Some(length) = length {
            let expected = connection.with_protocol(|protocol, out| protocol.expect_content(stream, length, out));
            if expected.is_err() {
                return request_pool::release(inner);
            }
        }
        let source = || -> Weak<dyn ContentSource> { Rc::downgrade(connection) as _ };
        if end == End::More {
            connection.contents.borrow_mut().begin(stream, inner.head.expectation);
            inner.content = IncomingBody::new(source(), id, length, transport.shared.limits.body_bytes_max);
        }
        if self.app.service.uses_connection_extensions() {
            inner.connection_extensions = connection.extensions.borrow().clone();
        }
        if self.app.service.sends_interim() {
            inner.interim_sender = Some(InterimSender { source: source(), stream: id });
        }
        let began = self.app.observer.wants_elapsed().then(Instant::now);
        if let Some(began) = began {
            transport.marks.take(began, &mut inner.log_info.phases);
        }
        self.start_call(ActiveRequest { request: Request { inner }, stream, began });
    }

    /// Ends content with trailers.
    pub(super) fn end_content(&mut self, stream: StreamId) {
        let connection = self.connection;
        let limits = &connection.transport.shared.limits.message;
        let trailers = read_trailers(connection.protocol.borrow().fields(), limits);
        let reader = match trailers {
            Ok(trailers) => connection.contents.borrow_mut().end(stream, Some(trailers)),
            Err(SectionError::Rejected(reject)) => {
                connection.contents.borrow_mut().fail(stream, ContentError::Rejected(reject))
            }
            Err(SectionError::Malformed(malformed)) => {
                connection.reset(stream, ErrorCode::PROTOCOL_ERROR);
                return self.cancel(stream, CloseReason::MessageMalformed(malformed));
            }
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Cancels the request of a stream that was reset.
    pub(super) fn on_reset(&mut self, stream: StreamId, cause: ResetCause) {
        let reason = match cause {
            ResetCause::Peer | ResetCause::NotProcessed => CloseReason::ClientCancelled,
            ResetCause::Violation(error) => {
                let is_discarded = self.connection.contents.borrow().is_discarded(stream);
                if self.streams.find(stream).is_none() && !is_discarded {
                    self.refused.count(error, self.connection.transport.ends.peer, &self.app.observer);
                }
                CloseReason::StreamInvalid(error)
            }
        };
        self.cancel(stream, reason);
    }
}
