//! The record of a request and its response, for the observer.

use crate::connection::app_context::AppContext;
use crate::connection::transport::Transport;
use crate::net::stream::Stream;
use crate::service::{
    CloseReason, Exchange, FieldList, Observer, PhaseTimes, Request, ResponseOutcome, StreamId, upstream_of,
};
use selvedge_proto::field::Fields;
use selvedge_proto::{Persistence, Reject, StatusCode};
use std::time::Instant;

/// Status code in logs for a request whose client disconnected before the response. nginx introduced it. It is never
/// sent.
const CLIENT_DISCONNECTED: StatusCode = StatusCode::new(499).expect("it has three digits");

/// The facts of a response.
pub(super) struct ResponseRecord {
    pub(super) status: StatusCode,
    pub(super) reason: Option<&'static str>,
    pub(super) fields: FieldList,
    pub(super) head_bytes: usize,
    pub(super) content_bytes: u64,
    /// `Ok` if all of it was handed to the transport.
    pub(super) outcome: Result<(), CloseReason>,
    /// Why the stream was reset before the response was complete.
    pub(super) reset: Option<CloseReason>,
    /// Why the connection ends after the response.
    pub(super) close: Option<CloseReason>,
}

/// Where a response belongs.
#[derive(Clone, Copy)]
pub(super) struct StreamFacts {
    pub(super) stream: StreamId,
    /// Requests on the connection so far.
    pub(super) requests: u32,
    /// When a complete head was received, if the observer wants to know the time since then.
    pub(super) began: Option<Instant>,
}

impl ResponseRecord {
    /// The record of a request whose client disconnected before the response.
    pub(super) fn client_disconnected(reason: CloseReason) -> Self {
        Self {
            status: CLIENT_DISCONNECTED,
            reason: None,
            fields: FieldList::Own(Fields::new()),
            head_bytes: 0,
            content_bytes: 0,
            outcome: Err(reason),
            reset: None,
            close: Some(reason),
        }
    }

    /// Names the upstream as the reason of a failed stream, if the facts of the upstream have the reason.
    pub(super) fn blame_upstream(&mut self, request: &Request) {
        let has_failed = || upstream_of(request).is_some_and(|upstream| upstream.facts().failure.is_some());
        if self.outcome == Err(CloseReason::StreamFailed) && has_failed() {
            self.outcome = Err(CloseReason::UpstreamFailed);
        }
    }

    /// Reports a request and its response.
    pub(super) fn report<T, O: Observer, S: Stream>(
        &self,
        app: &AppContext<T, O>,
        transport: &Transport<S>,
        request: &Request,
        facts: StreamFacts,
    ) {
        let completed_at = facts.began.map(|_| Instant::now());
        app.observer.finished(&Exchange {
            request: Some(request),
            upstream: upstream_of(request),
            request_line: request.head().request_line.of(request.head_bytes()),
            elapsed: facts.began.zip(completed_at).map(|(began, completed)| completed.duration_since(began)),
            completed_at,
            phases: facts.began.zip(completed_at).map_or_else(PhaseTimes::default, |(began, completed)| {
                request.inner.log_info.all_phases(began, completed)
            }),
            ..self.exchange(transport, facts)
        });
    }

    /// Reports the response to a head that was refused. `request_line` is what is known of its first line.
    pub(super) fn report_refusal<T, O: Observer, S: Stream>(
        &self,
        app: &AppContext<T, O>,
        transport: &Transport<S>,
        (request_line, reject): (&[u8], Option<Reject>),
        facts: StreamFacts,
    ) {
        app.observer.finished(&Exchange { request_line, reject, ..self.exchange(transport, facts) });
    }

    fn exchange<S: Stream>(&self, transport: &Transport<S>, facts: StreamFacts) -> Exchange<'_> {
        Exchange {
            peer: transport.ends.peer,
            stream: facts.stream,
            request: None,
            request_line: &[],
            status: self.status,
            fields: self.fields.get(),
            head_bytes: self.head_bytes,
            content_bytes: self.content_bytes,
            outcome: if self.outcome.is_ok() { ResponseOutcome::Complete } else { ResponseOutcome::Aborted },
            reset: self.reset,
            persistence: if self.close.is_none() { Persistence::KeepAlive } else { Persistence::Close },
            requests: facts.requests,
            reject: None,
            reason: self.reason,
            upstream: None,
            unix_time: transport.timeouts.worker.clock.unix_seconds(),
            elapsed: None,
            completed_at: None,
            phases: PhaseTimes::default(),
        }
    }
}
