//! Writes a response: its head, and its content as far as that is small and available.

use super::call::{ActiveRequest, Called, finish, finish_content};
use super::connection::Connection;
use super::output::Outgoing;
use super::pending::PendingResponse;
use super::tunnel::{self, OutgoingTunnel};
use crate::connection::app_context::{AppContext, AppState};
use crate::connection::exchange::ResponseRecord;
use crate::connection::response_plan::{ResponseContext, ResponsePlan, response_plan};
use crate::limits::{COPY_BYTES_MAX, UNSENT_BYTES_MAX};
use crate::net::panic;
use crate::net::stream::Stream;
use crate::service::{Body, CloseReason, Observer, Response, ServerEvent, UpgradeResponse};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::http1::write::{DECIMAL_DIGITS_MAX, decimal};
use selvedge_proto::http2::{End, ErrorCode, Section, StreamId};
use selvedge_proto::message::AnnouncedLength;
use selvedge_proto::method::Method;

/// What follows the head of a response.
pub(super) enum AfterHead {
    /// The response is complete or has failed, and was reported.
    Finished,
    /// Content follows.
    Content(Box<PendingResponse>),
}

/// Writes the head of a response. Small content follows at once, if the windows permit.
pub(super) fn respond<S: Stream, T, O: Observer>(
    connection: &Connection<S>,
    app: &AppContext<T, O>,
    called: Called,
) -> AfterHead {
    let Called { mut active, response } = called;
    let mut response = app.shared.error_hook.apply(response, Some(&active.request));
    let lease = response.take_lease();
    let upgrade = tunnel::take_upgrade(&active.request, &mut response);
    let (length, has_content) = match upgrade {
        Some(_) => (AnnouncedLength::Absent, true),
        None => plan(connection, active.request.method(), &mut response),
    };
    let body = std::mem::take(&mut response.body);
    let mut record = new_record(response);
    let end = if has_content { End::More } else { End::Last };
    if let Err(reason) = write_head(connection, active.stream, &mut record, length, end) {
        record.outcome = Err(reason);
        finish(active, record, connection, app);
        return AfterHead::Finished;
    }
    let content = match body {
        _ if !has_content => None,
        Body::Empty if upgrade.is_some() => {
            upgrade.map(|upgrade| Outgoing::Tunnel(open_tunnel(connection, app, &mut active, *upgrade)))
        }
        // A client that does not receive could otherwise collect responses here.
        Body::Bytes(bytes) if connection.transport.unsent_len() > UNSENT_BYTES_MAX => Some(Outgoing::Bytes(bytes)),
        Body::Bytes(bytes) => send_small(connection, active.stream, bytes, &mut record).map(Outgoing::Bytes),
        Body::File(file) => Some(Outgoing::of_file(file)),
        Body::Stream { length, chunks } => Some(Outgoing::of_chunks(chunks, length)),
        Body::Empty | Body::Upgrade(_) => None,
    };
    let Some(content) = content else {
        finish_content(&mut active, connection);
        finish(active, record, connection, app);
        return AfterHead::Finished;
    };
    if is_conversation(&content, record.fields.get()) {
        connection.contents.borrow_mut().lift_limits(active.stream);
    }
    active.request.inner.log_info.waited_to_send = true;
    let lease = lease.map(|lease| connection.transport.timeouts.hold(lease));
    let response =
        PendingResponse { active, record, content, waits_for_content: false, stall: None, arrived_bytes: 0, lease };
    AfterHead::Content(Box::new(response))
}

/// Whether both sides send messages during the response, and each may pause. Other content is to arrive when the
/// application waits for it.
fn is_conversation(content: &Outgoing, fields: &Fields) -> bool {
    match content {
        Outgoing::Tunnel(_) => true,
        Outgoing::Stream(_) => fields.get("content-type").is_some_and(|value| value.starts_with(b"application/grpc")),
        Outgoing::Bytes(_) | Outgoing::File(_) => false,
    }
}

/// Passes a stream to the handler of another protocol. If the handler panics, it drops the stream.
fn open_tunnel<S: Stream, T, O: Observer>(
    connection: &Connection<S>,
    app: &AppContext<T, O>,
    active: &mut ActiveRequest,
    upgrade: UpgradeResponse,
) -> OutgoingTunnel {
    let (duplex, outgoing) = tunnel::open(active.request.take_body());
    if let Err(message) = panic::catch(|| (upgrade.handler)(duplex)) {
        app.observer.event(&ServerEvent::Panic { peer: connection.transport.ends.peer, message });
    }
    outgoing
}

/// Writes the response to a head that was refused.
pub(super) fn send_refusal<S: Stream>(
    connection: &Connection<S>,
    stream: StreamId,
    method: Method,
    response: Response,
) -> ResponseRecord {
    let mut response = connection.transport.shared.refusal(response);
    let (length, has_content) = plan(connection, method, &mut response);
    let body = std::mem::take(&mut response.body);
    let mut record = new_record(response);
    let end = if has_content { End::More } else { End::Last };
    record.outcome = write_head(connection, stream, &mut record, length, end);
    if let Body::Bytes(bytes) = body
        && record.outcome.is_ok()
        && has_content
        && send_small(connection, stream, bytes, &mut record).is_some()
    {
        // The client has closed its windows. The status is all that it gets.
        connection.reset(stream, ErrorCode::CANCEL);
        record.outcome = Err(CloseReason::SendTooSlow);
        record.reset = Some(CloseReason::SendTooSlow);
    }
    record
}

fn new_record(response: Response) -> ResponseRecord {
    ResponseRecord {
        status: response.status,
        reason: response.reason(),
        head_bytes: 0,
        content_bytes: 0,
        outcome: Ok(()),
        reset: None,
        close: None,
        fields: response.into_fields(),
    }
}

/// Plans a response. A response that the application may not give becomes an error.
fn plan<S: Stream>(connection: &Connection<S>, method: Method, response: &mut Response) -> (AnnouncedLength, bool) {
    let context = ResponseContext {
        method,
        close_requested: None,
        unread_content: None,
        is_draining: false,
        app_state: AppState::Current,
    };
    match response_plan(context, response) {
        ResponsePlan::Final { length, has_content, .. } => (length, has_content),
        ResponsePlan::Invalid(status, reason) => {
            let error = Response::engine_error(status, "").log_reason(reason);
            *response = connection.transport.shared.error_hook.apply(error, None);
            plan(connection, method, response)
        }
        //= RFC 9113 §8.6: HTTP/2 has no 101
        ResponsePlan::Upgrade => {
            let reason = "the application responded with 101 over HTTP/2";
            let error = Response::engine_error(StatusCode::INTERNAL_SERVER_ERROR, "").log_reason(reason);
            *response = connection.transport.shared.error_hook.apply(error, None);
            plan(connection, method, response)
        }
    }
}

/// Writes the head.
fn write_head<S: Stream>(
    connection: &Connection<S>,
    stream: StreamId,
    record: &mut ResponseRecord,
    length: AnnouncedLength,
    end: End,
) -> Result<(), CloseReason> {
    let common_fields = connection.transport.common_fields();
    let mut digits = [0; DECIMAL_DIGITS_MAX];
    let length = match length {
        AnnouncedLength::Known(length) => Some(decimal(length, &mut digits)),
        AnnouncedLength::Absent | AnnouncedLength::Unknown => None,
    };
    let (status, fields) = (record.status, record.fields.get());
    let (before, after, sent) = connection.with_protocol(|protocol, out| {
        let before = out.len();
        let sent = protocol.send_fields(stream, Section::Head(end), out, |block| {
            block.status(status);
            block.common_fields(&common_fields, fields);
            block.fields(fields);
            if let Some(length) = length {
                block.field(b"content-length", length);
            }
        });
        (before, out.len(), sent)
    });
    record.head_bytes = after - before;
    sent.map_err(|_| CloseReason::ClientDisconnected)
}

/// Sends content that is small and that the windows permit. Returns content that has to wait for its turn.
fn send_small<S: Stream>(
    connection: &Connection<S>,
    stream: StreamId,
    bytes: Bytes,
    record: &mut ResponseRecord,
) -> Option<Bytes> {
    let is_sent = connection.with_protocol(|protocol, out| {
        let fits = bytes.len() <= COPY_BYTES_MAX && bytes.len() <= protocol.sendable(stream);
        let is_sent = fits && protocol.begin_data(stream, bytes.len(), End::Last, out).is_ok();
        if is_sent {
            out.extend_from_slice(&bytes);
        }
        is_sent
    });
    if !is_sent {
        return Some(bytes);
    }
    record.content_bytes = bytes.len() as u64;
    None
}
