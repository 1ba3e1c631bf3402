//! Refuses heads of requests that never reach the application.

use super::connection::Connection;
use super::respond::send_refusal;
use crate::connection::app_context::AppContext;
use crate::connection::exchange::ResponseRecord;
use crate::net::stream::Stream;
use crate::service::{CloseReason, Observer, Response};
use selvedge_proto::field_section::{FieldClass, MalformedMessage, SectionError};
use selvedge_proto::http2::{End, ErrorCode, StreamId};
use selvedge_proto::method::Method;
use selvedge_proto::{Reject, StatusCode};

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
    let mut record = ResponseRecord::client_disconnected(CloseReason::MessageMalformed(malformed));
    record.status = StatusCode::BAD_REQUEST;
    record.reason = Some(malformed.message());
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
    let response = Response::error_with_text(reject.status(), reject.message()).no_log_reason();
    let record = send_refusal(connection, stream, method, response);
    if end == End::More {
        connection.reset(stream, ErrorCode::NO_ERROR);
    }
    record.report_refusal(app, &connection.transport, (b"", Some(reject)), connection.facts(stream, None));
}
