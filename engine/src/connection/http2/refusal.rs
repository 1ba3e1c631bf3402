//! Refuses heads of requests that never reach the application.

use super::connection::Connection;
use super::respond::send_refusal;
use crate::connection::app_context::AppContext;
use crate::connection::exchange::ResponseRecord;
use crate::net::stream::Stream;
use crate::service::{CloseReason, Observer, Response, ServerEvent};
use selvedge_proto::field_section::{FieldClass, MalformedMessage, SectionError};
use selvedge_proto::head::Expectation;
use selvedge_proto::http2::{End, ErrorCode, StreamError, StreamId};
use selvedge_proto::method::Method;
use selvedge_proto::{Reject, StatusCode};
use std::net::SocketAddr;

/// Streams without a request that were refused for one reason since the last report. A burst of them is reported at
/// once, so that a flood causes few reports.
#[derive(Default)]
pub(super) struct RefusedStreams(Option<(StreamError, u32)>);

impl RefusedStreams {
    /// Counts a stream. Reports those that were refused for another reason.
    pub(super) fn count(&mut self, error: StreamError, peer: SocketAddr, observer: &impl Observer) {
        match &mut self.0 {
            Some((counted, count)) if *counted == error => *count += 1,
            _ => {
                self.report(peer, observer);
                self.0 = Some((error, 1));
            }
        }
    }

    /// Reports the streams since the last report.
    pub(super) fn report(&mut self, peer: SocketAddr, observer: &impl Observer) {
        if let Some((error, count)) = self.0.take() {
            observer.event(&ServerEvent::StreamsRefused { peer, error, count });
        }
    }
}

/// Refuses a head: a malformed message resets its stream, another one gets an error response.
pub(super) fn refuse<S: Stream, T, O: Observer>(
    connection: &Connection<S>,
    app: &AppContext<T, O>,
    (stream, end): (StreamId, End),
    error: SectionError,
) {
    match error {
        //= RFC 9113 §8.1.1: a malformed request is a stream error of type PROTOCOL_ERROR
        SectionError::Malformed(malformed) => reset_malformed(connection, app, stream, malformed),
        SectionError::Rejected(reject) => respond_with_error(connection, app, (stream, end), reject),
    }
}

fn reset_malformed<S: Stream, T, O: Observer>(
    connection: &Connection<S>,
    app: &AppContext<T, O>,
    stream: StreamId,
    malformed: MalformedMessage,
) {
    connection.reset(stream, ErrorCode::PROTOCOL_ERROR);
    let reason = CloseReason::MessageMalformed(malformed);
    let mut record = ResponseRecord::client_disconnected(reason);
    record.status = StatusCode::BAD_REQUEST;
    record.reset = Some(reason);
    record.report_refusal(app, &connection.transport, (b"", None), connection.facts(stream, None));
}

fn respond_with_error<S: Stream, T, O: Observer>(
    connection: &Connection<S>,
    app: &AppContext<T, O>,
    (stream, end): (StreamId, End),
    reject: Reject,
) {
    //= RFC 9110 §9.3.2: a response to HEAD has no content, also if the rest of its head is refused
    let is_head = connection
        .protocol
        .borrow()
        .fields()
        .iter()
        .any(|field| field.class == FieldClass::Method && field.value == b"HEAD");
    let method = if is_head { Method::Head } else { Method::Other };
    let response = {
        let protocol = connection.protocol.borrow();
        // As far as it was read.
        let accept = protocol.fields().iter().filter(|field| field.name == b"accept").map(|field| field.value);
        Response::to_refused_head(reject.status(), reject.message(), accept)
    };
    let response = app.shared.error_hook.apply(response, None);
    let record = send_refusal(connection, stream, method, response);
    if end == End::More && record.outcome.is_ok() {
        connection.contents.borrow_mut().begin(stream, Expectation::None);
        connection.finish_content(stream);
    }
    record.report_refusal(app, &connection.transport, (b"", Some(reject)), connection.facts(stream, None));
}
