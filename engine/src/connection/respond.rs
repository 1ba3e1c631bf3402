//! Writes a response: its head, its content, and its effect on the connection.

use crate::connection::app_context::{AppContext, AppState};
use crate::connection::close::{CloseDecision, PANICKED};
use crate::connection::progress::Progress;
use crate::connection::transport::Connection;
use crate::limits::{BATCH_BYTES, BYTES_PER_YIELD, CHUNKS_PER_YIELD, COPY_BYTES_MAX};
use crate::net::raw::SendMode;
use crate::net::runtime::yield_now;
use crate::net::stream::Stream;
use crate::service::{
    Body, Chunks, CloseReason, Exchange, FieldList, Observer, Request, Response, ResponseOutcome, UpgradeResponse,
};
use selvedge_proto::field::Fields;
use selvedge_proto::head::Version;
use selvedge_proto::http1::write::{self, ResponseFraming, ResponseHead};
use selvedge_proto::method::Method;
use selvedge_proto::{Persistence, Reject, StatusCode};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

/// Status code in logs for a request whose client disconnected before the response. nginx introduced it. It is never
/// sent.
const CLIENT_DISCONNECTED: StatusCode = StatusCode::new(499).expect("it has three digits");

/// The response to a client that is accepted only to be refused.
pub(crate) const UNAVAILABLE_RESPONSE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nserver: selvedge\r\nretry-after: 1\r\ncontent-length: 0\r\n\
      connection: close\r\n\r\n";

/// The facts of a response, for the log.
pub(super) struct ResponseRecord {
    pub(super) status: StatusCode,
    pub(super) reason: Option<&'static str>,
    pub(super) fields: FieldList,
    pub(super) head_bytes: usize,
    pub(super) content_bytes: u64,
    /// `Ok` if all of it was handed to the connection.
    pub(super) outcome: Result<(), CloseReason>,
    pub(super) close_decision: CloseDecision,
}

/// The facts of a request that decide how its response is written.
struct RequestFacts {
    method: Method,
    version: Version,
    persistence: Persistence,
    close_reason: CloseReason,
}

/// Content that could not be appended to the head.
pub(super) struct PendingBody {
    body: Body,
    framing: ResponseFraming,
}

impl<S: Stream> Connection<S> {
    /// Writes the head and, if it is small and available, the content into the send buffer. Sends nothing.
    pub(super) fn begin_response(
        &self,
        request: &Request,
        response: Response,
        app_state: AppState,
    ) -> (ResponseRecord, Option<PendingBody>) {
        let mut facts = RequestFacts {
            method: request.method(),
            version: request.version(),
            persistence: request.head().persistence,
            close_reason: CloseReason::CloseRequested,
        };
        if response.persistence() == Persistence::Close && facts.persistence == Persistence::KeepAlive {
            (facts.persistence, facts.close_reason) = (Persistence::Close, CloseReason::ClosedAfterResponse);
        }
        // The application took the content and generates the response from it, so both directions run at once.
        if request.inner.content.is_empty() && matches!(response.body, Body::Stream { .. }) {
            self.read_while_responding();
        }
        let by_content = self.content_forces_close();
        let forced = match response.reason() {
            Some(PANICKED) => Some(CloseReason::Panicked),
            _ if self.worker.is_draining.get() => Some(CloseReason::Draining),
            _ if app_state == AppState::Replaced => Some(CloseReason::AppReplaced),
            _ => by_content,
        };
        if let Some(reason) = forced {
            (facts.persistence, facts.close_reason) = (Persistence::Close, reason);
        }
        self.begin(facts, response)
    }

    /// Writes the error response to a head that was refused, and whose method may be all that is known of it.
    pub(super) fn begin_refusal(&self, response: Response) -> (ResponseRecord, Option<PendingBody>) {
        //= RFC 9110 §9.3.2: a client that sent HEAD takes content for the next response
        let is_head = without_empty_line(self.input.borrow().bytes()).starts_with(b"HEAD ");
        let facts = RequestFacts {
            method: if is_head { Method::Head } else { Method::Other },
            version: Version::Http11,
            persistence: Persistence::Close,
            close_reason: CloseReason::ClosedAfterResponse,
        };
        self.begin(facts, response)
    }

    fn begin(&self, facts: RequestFacts, mut response: Response) -> (ResponseRecord, Option<PendingBody>) {
        let RequestFacts { method, version, mut persistence, mut close_reason } = facts;
        if response.status.is_interim() {
            if response.status == StatusCode::SWITCHING_PROTOCOLS
                && let Body::Upgrade(switch) = std::mem::take(&mut response.body)
            {
                return self.begin_upgrade(*switch, response);
            }
            // A final response has to follow an interim one, and the application returned no other.
            response =
                Response::error(StatusCode::INTERNAL_SERVER_ERROR).log_reason("the application responded with 1xx");
        }
        if method == Method::Connect && (200..300).contains(&response.status.code()) {
            //= RFC 9110 §9.3.6: what follows such a head is a tunnel, which is not supported
            response = Response::error(StatusCode::NOT_IMPLEMENTED)
                .log_reason("the application responded to CONNECT with 2xx");
        }
        let body = std::mem::take(&mut response.body);
        if !matches!(body, Body::File(_)) {
            self.release_large_send_buffer();
        }
        let framing = write::response_framing(response.status, version, body.length());
        if framing == ResponseFraming::UntilClose && persistence == Persistence::KeepAlive {
            (persistence, close_reason) = (Persistence::Close, CloseReason::ClosedAfterResponse);
        }
        let head = ResponseHead {
            status: response.status,
            version,
            framing,
            persistence,
            common_fields: &self.shared.common_fields(self.worker.clock.unix_seconds()),
            fields: response.fields(),
        };
        let mut output = self.output.borrow_mut();
        let before = output.bytes().len();
        head.write(output.bytes());
        let mut record = ResponseRecord {
            status: response.status,
            reason: response.reason(),
            head_bytes: output.bytes().len() - before,
            fields: response.into_fields(),
            content_bytes: 0,
            outcome: Ok(()),
            close_decision: CloseDecision { persistence, close_reason },
        };
        match body {
            _ if !write::has_content(framing, method) => {}
            Body::Bytes(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                output.bytes().extend_from_slice(&bytes);
                record.content_bytes = bytes.len() as u64;
            }
            body => return (record, Some(PendingBody { body, framing })),
        }
        let rest = (output.len() >= BATCH_BYTES).then_some(PendingBody { body: Body::Empty, framing });
        (record, rest)
    }

    /// Writes the head of an upgrade response. The bytes after it belong to the other protocol.
    #[cold]
    fn begin_upgrade(&self, switch: UpgradeResponse, response: Response) -> (ResponseRecord, Option<PendingBody>) {
        let mut output = self.output.borrow_mut();
        let before = output.bytes().len();
        let common_fields = self.shared.common_fields(self.worker.clock.unix_seconds());
        write::write_switching_protocols(&switch.protocol, &common_fields, response.fields(), output.bytes());
        self.upgrade_handler.set(Some(switch.handler));
        let record = ResponseRecord {
            status: response.status,
            reason: None,
            head_bytes: output.bytes().len() - before,
            fields: response.into_fields(),
            content_bytes: 0,
            outcome: Ok(()),
            close_decision: CloseDecision { persistence: Persistence::Close, close_reason: CloseReason::Upgraded },
        };
        (record, Some(PendingBody { body: Body::Empty, framing: ResponseFraming::Absent }))
    }

    /// Sends the head and the pending content.
    pub(super) async fn send_pending(&self, rest: PendingBody, record: &mut ResponseRecord) {
        let mut progress = self.send_progress();
        // Responses to earlier requests leave even if the content of this one fails.
        let is_available = matches!(rest.body, Body::Empty | Body::Bytes(_) | Body::Upgrade(_));
        let follows_responses = self.output.borrow().len() > record.head_bytes;
        if follows_responses
            && !is_available
            && let Err(reason) = self.flush().await
        {
            record.outcome = Err(reason);
            return;
        }
        let persistence = record.close_decision.persistence;
        let sent = &mut record.content_bytes;
        record.outcome = match rest.body {
            Body::Empty | Body::Upgrade(_) => self.flush().await,
            Body::Bytes(bytes) => {
                let head_bytes = self.output.borrow().len() as u64;
                let outcome = self.send_after_buffered(&bytes, &mut progress).await;
                *sent = progress.bytes.saturating_sub(head_bytes);
                outcome
            }
            Body::File(file) => self.send_file(*file, persistence, &mut progress, sent).await,
            Body::Stream { length, chunks } => self.send_stream(chunks, length, rest.framing, sent).await,
        };
    }

    /// Sends the buffered bytes and `bytes` together.
    async fn send_after_buffered(&self, bytes: &[u8], progress: &mut Progress) -> Result<(), CloseReason> {
        let output = std::mem::take(&mut *self.output.borrow_mut());
        self.send_parts(output.rest(), bytes, progress).await
    }

    /// Sends chunks as the application produces them. Flushes whenever the next chunk is pending.
    async fn send_stream(
        &self,
        mut chunks: Pin<Box<dyn Chunks>>,
        length: Option<u64>,
        framing: ResponseFraming,
        sent: &mut u64,
    ) -> Result<(), CloseReason> {
        let mut budget = YieldBudget::default();
        loop {
            let next = poll_fn(|cx| Poll::Ready(chunks.as_mut().poll_chunk(cx))).await;
            let next = match next {
                Poll::Ready(next) => next,
                Poll::Pending => {
                    budget = YieldBudget::default();
                    // The producer wakes this task, possibly only to yield. A flush that waits consumes that wake-up,
                    // so the chunk is polled again after it.
                    let mut is_called = !self.send_now(SendMode::Flush)?;
                    if is_called {
                        Box::pin(self.flush_waiting()).await?;
                    }
                    self.wait_for_content_alone();
                    poll_fn(|cx| {
                        if std::mem::replace(&mut is_called, true)
                            && let Poll::Ready(next) = chunks.as_mut().poll_chunk(cx)
                        {
                            return Poll::Ready(Ok(next));
                        }
                        self.poll_client_disconnected(cx).map(|()| Err(CloseReason::ClientDisconnected))
                    })
                    .await?
                }
            };
            let Some(piece) = next else { break };
            let piece = piece.map_err(|_| CloseReason::StreamFailed)?;
            if piece.is_empty() {
                continue;
            }
            *sent += piece.len() as u64;
            if length.is_some_and(|length| *sent > length) {
                return Err(CloseReason::StreamFailed);
            }
            self.write_chunk(&piece, framing).await?;
            if budget.is_spent_by(piece.len()) {
                yield_now().await;
            }
        }
        match framing {
            ResponseFraming::Chunked => {
                write::write_last_chunk(&chunks.as_mut().trailers(), self.output.borrow_mut().bytes());
            }
            _ if length.is_some_and(|length| *sent < length) => return Err(CloseReason::StreamFailed),
            _ => {}
        }
        Ok(())
    }

    async fn write_chunk(&self, piece: &[u8], framing: ResponseFraming) -> Result<(), CloseReason> {
        if framing == ResponseFraming::Chunked {
            write::write_chunk_size(piece.len(), self.output.borrow_mut().bytes());
        }
        if piece.len() <= COPY_BYTES_MAX {
            self.output.borrow_mut().bytes().extend_from_slice(piece);
        } else {
            self.send_after_buffered(piece, &mut self.send_progress()).await?;
        }
        if framing == ResponseFraming::Chunked {
            self.output.borrow_mut().bytes().extend_from_slice(b"\r\n");
        }
        if self.output.borrow().len() >= BATCH_BYTES { self.flush().await } else { Ok(()) }
    }
}

/// Skips the empty line that a client may send before its request (RFC 9112 §2.2).
fn without_empty_line(input: &[u8]) -> &[u8] {
    input.strip_prefix(b"\r\n").unwrap_or(input)
}

/// Bytes and chunks sent since this task last yielded.
#[derive(Default)]
struct YieldBudget {
    bytes: usize,
    chunks: usize,
}

impl YieldBudget {
    /// Counts a chunk. Returns whether the task has to yield.
    fn is_spent_by(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.chunks += 1;
        let is_over = self.bytes >= BYTES_PER_YIELD || self.chunks >= CHUNKS_PER_YIELD;
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}

impl ResponseRecord {
    /// The record of a request whose client disconnected before the response.
    pub(super) fn client_disconnected(why: CloseReason) -> Self {
        Self {
            status: CLIENT_DISCONNECTED,
            reason: None,
            fields: FieldList::Own(Fields::new()),
            head_bytes: 0,
            content_bytes: 0,
            outcome: Err(why),
            close_decision: CloseDecision { persistence: Persistence::Close, close_reason: why },
        }
    }

    /// Reports a request and its response to the observer.
    pub(super) fn report<T, O: Observer, S>(
        &self,
        app: &AppContext<T, O>,
        connection: &Connection<S>,
        request: &Request,
        began: Option<Instant>,
    ) {
        app.observer.finished(&Exchange {
            request: Some(request),
            request_line: request.head().request_line.of(request.head_bytes()),
            elapsed: began.map(|began| began.elapsed()),
            ..self.exchange(connection)
        });
    }

    /// Reports a refused request to the observer.
    pub(super) fn report_refusal<T, O: Observer, S>(
        &self,
        app: &AppContext<T, O>,
        connection: &Connection<S>,
        reject: Option<Reject>,
    ) {
        const LINE_BYTES_MAX: usize = 1024;
        let input = connection.input.borrow();
        let line = without_empty_line(input.bytes());
        let line = &line[..line.len().min(LINE_BYTES_MAX)];
        let end = line.iter().position(|&b| b == b'\r' || b == b'\n').unwrap_or(line.len());
        app.observer.finished(&Exchange { request_line: &line[..end], reject, ..self.exchange(connection) });
    }

    fn exchange<S>(&self, connection: &Connection<S>) -> Exchange<'_> {
        Exchange {
            peer: connection.peer(),
            request: None,
            request_line: &[],
            status: self.status,
            fields: self.fields.get(),
            head_bytes: self.head_bytes,
            content_bytes: self.content_bytes,
            outcome: if self.outcome.is_ok() { ResponseOutcome::Complete } else { ResponseOutcome::Aborted },
            persistence: self.close_decision.persistence,
            requests: connection.requests(),
            reject: None,
            reason: self.reason,
            unix_time: connection.worker.clock.unix_seconds(),
            elapsed: None,
        }
    }
}
