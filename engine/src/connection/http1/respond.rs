//! Writes a response: its head and its content.

use super::connection::{Connection, PendingUpgrade};
use super::send_file;
use crate::connection::app_context::AppState;
use crate::connection::exchange::ResponseRecord;
use crate::connection::response_plan::{ResponseContext, ResponsePlan, response_plan};
use crate::connection::send_queue;
use crate::connection::timeouts::HeldLease;
use crate::limits::{BATCH_BYTES, COPY_BYTES_MAX};
use crate::net::stream::Stream;
use crate::service::{Body, CloseReason, Request, Response};
use selvedge_proto::Persistence;
use selvedge_proto::forward::TeTrailers;
use selvedge_proto::head::Version;
use selvedge_proto::http1::write::{self, ResponseFraming, ResponseHead};
use selvedge_proto::message::AnnouncedLength;
use selvedge_proto::method::Method;

/// The response to a client that sends plain HTTP to a listener with TLS.
pub(crate) const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 86\r\nconnection: close\r\n\r\n\
      This port expects HTTPS, and the request was plain HTTP. Use https:// in the address.\n";

/// The response to a client that is accepted only to be refused.
pub(crate) const UNAVAILABLE_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nserver: selvedge\r\nretry-after: 1\r\ncontent-length: 0\r\n\
      connection: close\r\n\r\n";

/// Content that could not be appended to the head.
pub(super) struct PendingBody {
    body: Body,
    framing: ResponseFraming,
    /// Lets streamed content outlive a replacement of the application.
    lease: Option<HeldLease>,
}

/// What the framing of a response depends on beside the response.
#[derive(Clone, Copy)]
struct Recipient {
    version: Version,
    /// Whether the client gets the trailers of content of known length, which may have some.
    te: TeTrailers,
}

impl Recipient {
    fn framing(self, length: AnnouncedLength, method: Method) -> ResponseFraming {
        //= RFC 9112 §7.1.2: only chunked content has trailers, and §6.2 forbids Content-Length beside it
        if self.te == TeTrailers::Accepted && self.version == Version::Http11 && length.has_content(method) {
            return ResponseFraming::Chunked;
        }
        ResponseFraming::new(length, self.version)
    }
}

impl<S: Stream> Connection<S> {
    /// Writes the head and, if it is small and available, the content into the send buffer. Sends nothing.
    pub(super) fn begin_response(
        &self,
        request: &Request,
        response: Response,
        app_state: AppState,
    ) -> (ResponseRecord, Option<PendingBody>) {
        // The application took the content and generates the response from it, so both directions run at once.
        if request.inner.content.is_empty() && matches!(response.body, Body::Stream { .. }) {
            self.body.read_while_responding(&self.transport);
        }
        let context = ResponseContext {
            method: request.method(),
            close_requested: match request.head().persistence {
                Persistence::KeepAlive => None,
                Persistence::Close => Some(CloseReason::CloseRequested),
            },
            unread_content: self.body.forces_close(self.transport.shared.limits.discard_bytes_max),
            is_draining: self.transport.timeouts.worker.is_draining.get(),
            app_state,
        };
        let may_have_trailers = matches!(
            &response.body,
            Body::Stream { length: Some(_), chunks } if chunks.may_have_trailers()
        );
        let te = if may_have_trailers {
            TeTrailers::of_request(request.head(), request.head_bytes())
        } else {
            TeTrailers::Absent
        };
        self.begin(context, Recipient { version: request.version(), te }, response)
    }

    /// Writes the error response to a head that was refused, and whose method may be all that is known of it.
    pub(super) fn begin_refusal(&self, response: Response) -> (ResponseRecord, Option<PendingBody>) {
        //= RFC 9110 §9.3.2: a client that sent HEAD takes content for the next response
        let is_head = without_empty_line(self.transport.input.borrow().bytes()).starts_with(b"HEAD ");
        let context = ResponseContext {
            method: if is_head { Method::Head } else { Method::Other },
            close_requested: Some(CloseReason::ClosedAfterResponse),
            unread_content: None,
            is_draining: false,
            app_state: AppState::Current,
        };
        self.begin(context, Recipient { version: Version::Http11, te: TeTrailers::Absent }, response)
    }

    fn begin(
        &self,
        context: ResponseContext,
        recipient: Recipient,
        mut response: Response,
    ) -> (ResponseRecord, Option<PendingBody>) {
        let (length, has_content, mut close) = match response_plan(context, &response) {
            ResponsePlan::Final { length, has_content, close } => (length, has_content, close),
            ResponsePlan::Invalid(status, reason) => {
                let error = Response::engine_error(status, "").log_reason(reason);
                return self.begin(context, recipient, self.transport.shared.error_hook.apply(error, None));
            }
            ResponsePlan::Upgrade => return self.begin_upgrade(response),
        };
        let lease = response.take_lease();
        let body = std::mem::take(&mut response.body);
        if !matches!(body, Body::File(_)) {
            send_queue::release(&self.transport);
        }
        let framing = recipient.framing(length, context.method);
        if framing == ResponseFraming::UntilClose {
            close = close.or(Some(CloseReason::ClosedAfterResponse));
        }
        let head = ResponseHead {
            status: response.status,
            version: recipient.version,
            framing,
            persistence: if close.is_none() { Persistence::KeepAlive } else { Persistence::Close },
            common_fields: &self.transport.common_fields(),
            fields: response.fields(),
        };
        let mut output = self.transport.output.borrow_mut();
        let before = output.bytes().len();
        head.write(output.bytes());
        let mut record = ResponseRecord {
            status: response.status,
            reason: response.reason(),
            head_bytes: output.bytes().len() - before,
            fields: response.into_fields(),
            content_bytes: 0,
            outcome: Ok(()),
            reset: None,
            close,
        };
        match body {
            _ if !has_content => {}
            Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                output.bytes().extend_from_slice(&bytes);
                record.content_bytes = bytes.len() as u64;
            }
            body => {
                let lease = lease.map(|lease| self.transport.timeouts.hold(lease));
                return (record, Some(PendingBody { body, framing, lease }));
            }
        }
        let rest = (output.len() >= BATCH_BYTES).then_some(PendingBody { body: Body::Empty, framing, lease: None });
        (record, rest)
    }

    /// Writes the head of an upgrade response. The bytes after it belong to the other protocol.
    #[cold]
    fn begin_upgrade(&self, mut response: Response) -> (ResponseRecord, Option<PendingBody>) {
        let mut output = self.transport.output.borrow_mut();
        let before = output.bytes().len();
        let lease = response.take_lease();
        if let Body::Upgrade(upgrade) = std::mem::take(&mut response.body) {
            let common_fields = self.transport.common_fields();
            write::write_switching_protocols(&upgrade.protocol, &common_fields, response.fields(), output.bytes());
            self.upgrade.set(Some(Box::new(PendingUpgrade { handler: upgrade.handler, lease })));
        }
        let record = ResponseRecord {
            status: response.status,
            reason: None,
            head_bytes: output.bytes().len() - before,
            fields: response.into_fields(),
            content_bytes: 0,
            outcome: Ok(()),
            reset: None,
            close: Some(CloseReason::Upgraded),
        };
        (record, Some(PendingBody { body: Body::Empty, framing: ResponseFraming::Absent, lease: None }))
    }

    /// Sends the head and the pending content.
    pub(super) async fn send_pending(&self, rest: PendingBody, record: &mut ResponseRecord) {
        // The lease is held until everything is sent.
        let PendingBody { body, framing, lease: _held } = rest;
        let transport = &self.transport;
        let mut progress = transport.send_progress();
        // Responses to earlier requests leave even if the content of this one fails.
        let is_available = matches!(body, Body::Empty | Body::Bytes(_) | Body::Upgrade(_));
        let follows_responses = transport.unsent_len() > record.head_bytes;
        if follows_responses
            && !is_available
            && let Err(reason) = transport.flush().await
        {
            record.outcome = Err(reason);
            return;
        }
        let keeps_alive = record.close.is_none();
        let sent = &mut record.content_bytes;
        record.outcome = match body {
            Body::Empty | Body::Upgrade(_) => transport.flush().await,
            Body::Bytes(bytes) => {
                let head_bytes = transport.unsent_len() as u64;
                let outcome = transport.send_after_buffered(&bytes, &mut progress).await;
                *sent = progress.bytes.saturating_sub(head_bytes);
                outcome
            }
            Body::File(file) => {
                if keeps_alive {
                    send_queue::enlarge(transport, file.length);
                }
                let outcome = send_file::send_file(transport, *file, &mut progress, sent).await;
                send_queue::release(transport);
                outcome
            }
            Body::Stream { length, chunks } => self.send_stream(chunks, length, framing, sent).await,
        };
    }
}

/// Returns the first line of a refused head, as far as it was received and of bounded length.
pub(super) fn first_line(input: &[u8]) -> &[u8] {
    const LINE_BYTES_MAX: usize = 1024;
    let line = without_empty_line(input);
    let line = &line[..line.len().min(LINE_BYTES_MAX)];
    let end = line.iter().position(|&b| b == b'\r' || b == b'\n').unwrap_or(line.len());
    &line[..end]
}

/// Skips the empty line that a client may send before its request (RFC 9112 §2.2).
pub(super) fn without_empty_line(input: &[u8]) -> &[u8] {
    input.strip_prefix(b"\r\n").unwrap_or(input)
}
