//! One exchange over HTTP/2: opens a stream, sends the request, and receives the response.

use super::connection::Http2State;
use super::handle::StreamHandle;
use super::pick::{await_settings, has_room, pick};
use super::stream::{StreamFailure, StreamHead, StreamState};
use super::task::is_success;
use super::tunnel_end::Http2TunnelEnd;
use crate::client::Interim;
use crate::client::destination::Destination;
use crate::client::error::{ClientError, ClientErrorKind, ClientPhase, ConnectionUse, RetrySafety};
use crate::client::limits::ClientTimeouts;
use crate::client::outgoing_content::OutgoingContent;
use crate::client::request::{Http2Form, OutgoingHead};
use crate::client::response::{IncomingResponse, ResponseContent};
use crate::client::table::Table;
use crate::client::tunnel::Tunnel;
use crate::client::tunnel_end::TunnelEnd;
use crate::net::clock::ticks;
use crate::service::{Chunks, StreamError};
use bytes::{Buf, Bytes};
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::http2::{End, OpenError};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The upstream cannot switch to another protocol as the request demands. Another upstream may do so.
pub(in crate::client) const UPGRADE_UNSUPPORTED: ClientError =
    ClientError::new(ClientPhase::SendRequest, ClientErrorKind::UpgradeUnsupported, RetrySafety::NotSent);

/// Sends a request in its form, and awaits the head of its response.
pub(in crate::client) async fn send(
    table: &Rc<Table>,
    to: &Destination,
    (head, form): (&OutgoingHead, Http2Form),
    content: &mut OutgoingContent,
    (timeouts, interim): (&ClientTimeouts, Interim<'_>),
) -> Result<IncomingResponse, ClientError> {
    let failed = |kind| ClientError::new(ClientPhase::SendRequest, kind, RetrySafety::Never);
    head.check_http2(form).map_err(|error| failed(ClientErrorKind::InvalidRequest(error)))?;
    let group = table.group(to);
    let is_connect = form == Http2Form::ExtendedConnect;
    let has_content = !content.is_empty();
    // The clock is read only if a connection has to be opened or awaited.
    let mut began = None;
    let (stream, connection_use) = loop {
        if began.is_none() && !has_room(&group) {
            began = Some(Instant::now());
        }
        let connection = pick(table, &group, timeouts.connect).await?;
        if is_connect {
            await_settings(&group, &connection).await?;
            if !connection.accepts_connect() {
                return Err(UPGRADE_UNSUPPORTED);
            }
        }
        let end = if has_content || is_connect { End::More } else { End::Last };
        let mut state = connection.state.borrow_mut();
        let Http2State { protocol, output, streams, taken, is_ending, has_served, .. } = &mut *state;
        let head_at = *taken + output.len() as u64;
        match protocol.open(end, output.bytes(), |block| head.write_http2(form, block)) {
            Ok(id) => {
                let is_head = head.method == b"HEAD";
                streams.insert(id, StreamState { is_head, is_connect, head_at, ..StreamState::default() });
                let reused = std::mem::replace(has_served, true);
                *is_ending |= to.first_bytes.is_some();
                drop(state);
                connection.wake_driver();
                let handle = StreamHandle { connection, id, timer: table.add() };
                break (handle, if reused { ConnectionUse::Reused } else { ConnectionUse::First });
            }
            // Another request was faster.
            Err(OpenError::StreamsTooMany) => {}
            Err(OpenError::ConnectionEnding) => *is_ending = true,
        }
    };
    let connect_time = began.map(|began| began.elapsed());
    let upload = if has_content { UploadState::Reading } else { UploadState::Over };
    let mut exchange = Http2Exchange { stream, upload, chunk: Bytes::new() };
    let received = poll_fn(|cx| exchange.poll_head(content, (timeouts, &mut *interim), cx)).await;
    let received = received.map_err(|error| error.on(connection_use))?;
    if is_connect && is_success(received.status) {
        return Ok(IncomingResponse { connect_time, ..exchange.into_tunnel(received, head, timeouts.tunnel) });
    }
    if is_connect {
        // The upstream refuses, and nothing follows.
        exchange.stream.write_end(None);
    }
    let response = exchange.into_response(received, std::mem::take(content), timeouts.silence).await?;
    Ok(IncomingResponse { connect_time, ..response })
}

/// The part of the request that is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadState {
    Reading,
    /// The next content has not arrived from the client.
    AwaitsContent,
    Over,
}

struct Http2Exchange {
    stream: StreamHandle,
    upload: UploadState,
    /// Content that no window permits yet.
    chunk: Bytes,
}

impl Http2Exchange {
    /// Sends the request and waits for the head of the response.
    fn poll_head(
        &mut self,
        content: &mut OutgoingContent,
        (timeouts, interim): (&ClientTimeouts, Interim<'_>),
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamHead, ClientError>> {
        if let Err(kind) = self.poll_upload(content, cx) {
            return Poll::Ready(Err(ClientError::new(ClientPhase::SendRequest, kind, RetrySafety::Never)));
        }
        let (received, head, failure) =
            self.stream.with(|stream| (std::mem::take(&mut stream.interim), stream.head.take(), stream.failure));
        for (status, fields) in &received {
            interim(*status, fields);
        }
        if let Some(head) = head {
            self.stream.timer.end_wait();
            return Poll::Ready(Ok(head));
        }
        let phase = if self.upload == UploadState::Over { ClientPhase::AwaitHead } else { ClientPhase::SendRequest };
        if let Some(StreamFailure { kind, retry }) = failure {
            return Poll::Ready(Err(ClientError::new(phase, kind, retry)));
        }
        let timeout = if self.upload == UploadState::Over { timeouts.response } else { timeouts.silence };
        if self.poll_timeout(timeout, cx).is_ready() {
            let retry = RetrySafety::NoResponse;
            return Poll::Ready(Err(ClientError::new(phase, ClientErrorKind::TimedOut, retry)));
        }
        Poll::Pending
    }

    /// Waits for what arrives, or until the upstream has been silent for too long.
    fn poll_timeout(&self, timeout: Duration, cx: &Context<'_>) -> Poll<()> {
        self.stream.set_waker(cx);
        if self.upload == UploadState::AwaitsContent {
            self.stream.timer.end_wait();
            return Poll::Pending;
        }
        if !self.stream.timer.wait(timeout, cx) {
            return Poll::Pending;
        }
        // A connection on which nothing at all has arrived may be lost without a notice.
        let now = self.stream.timer.table.clock.tick();
        let is_silent = now.saturating_sub(self.stream.connection.state.borrow().last_received) >= ticks(timeout);
        if is_silent {
            self.stream.connection.retire();
        }
        Poll::Ready(())
    }

    /// Writes content of the request as far as the windows permit.
    fn poll_upload(&mut self, content: &mut OutgoingContent, cx: &mut Context<'_>) -> Result<(), ClientErrorKind> {
        while self.upload != UploadState::Over {
            self.upload = UploadState::Reading;
            if self.chunk.is_empty() {
                match content.poll_chunk(cx) {
                    Poll::Pending => {
                        self.upload = UploadState::AwaitsContent;
                        return Ok(());
                    }
                    Poll::Ready(None) => {
                        self.send_end(content);
                        return Ok(());
                    }
                    Poll::Ready(Some(Err(error))) => return Err(ClientErrorKind::RequestContent(error)),
                    Poll::Ready(Some(Ok(chunk))) => self.chunk = chunk,
                }
            }
            if self.stream.with(|stream| stream.has_ended()) {
                self.upload = UploadState::Over;
                return Ok(());
            }
            self.chunk.advance(self.stream.write(&self.chunk));
            if !self.chunk.is_empty() {
                self.stream.await_window(cx);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Ends the request, with its trailers if it has any.
    fn send_end(&mut self, content: &OutgoingContent) {
        self.upload = UploadState::Over;
        self.stream.timer.end_wait();
        self.stream.write_end(content.trailers().filter(|trailers| !trailers.lines().is_empty()));
    }

    /// Returns the response that has switched the stream to another protocol.
    fn into_tunnel(self, received: StreamHead, request: &OutgoingHead, silence: Duration) -> IncomingResponse {
        let StreamHead { mut fields, .. } = received;
        if let Some(accept) = request.websocket_accept().filter(|_| request.is_websocket()) {
            fields.remove("sec-websocket-accept");
            fields.append("sec-websocket-accept", accept).expect("base64 is a valid value");
        }
        let protocol = request.upgrade.clone().unwrap_or_default();
        let tunnel = Tunnel::new(TunnelEnd::Stream(Http2TunnelEnd(self.stream)), protocol, silence);
        let content = ResponseContent::complete(Bytes::new(), Some(0));
        let status = StatusCode::SWITCHING_PROTOCOLS;
        IncomingResponse { status, fields, content, upgrade: Some(tunnel), connect_time: None }
    }

    /// Returns the response.
    ///
    /// # Errors
    /// If the stream has failed before any content, or content follows a head that permits none.
    async fn into_response(
        self,
        head: StreamHead,
        mut content: OutgoingContent,
        silence: Duration,
    ) -> Result<IncomingResponse, ClientError> {
        let StreamHead { status, fields, length } = head;
        let (is_empty, is_head) = self.stream.with(|stream| {
            (stream.is_complete && stream.received.is_empty() && stream.trailers.is_none(), stream.is_head)
        });
        let content = if is_empty {
            ResponseContent::complete(Bytes::new(), length)
        } else {
            content.stop_keeping();
            let mut rest = Http2Content {
                exchange: Some(self),
                content,
                upload_error: None,
                silence,
                trailers: None,
                first: None,
            };
            if is_head || status.forbids_content() {
                // Content that follows makes the response malformed, so its head waits for the end of the stream.
                while let Some(piece) = poll_fn(|cx| rest.poll_piece(cx)).await {
                    piece?;
                }
                let content = ResponseContent::complete(Bytes::new(), length);
                return Ok(IncomingResponse { status, fields, content, upgrade: None, connect_time: None });
            }
            rest.first = match poll_fn(|cx| Poll::Ready(rest.poll_piece(cx))).await {
                Poll::Ready(first) => first.transpose()?,
                Poll::Pending => {
                    // The head is sent before the next poll, which may take long.
                    rest.exchange.as_ref().inspect(|exchange| exchange.stream.timer.end_wait());
                    None
                }
            };
            ResponseContent::streaming(Box::pin(rest), length)
        };
        Ok(IncomingResponse { status, fields, content, upgrade: None, connect_time: None })
    }
}

/// Content that is being received.
struct Http2Content {
    /// The stream, until the content has ended or failed.
    exchange: Option<Http2Exchange>,
    content: OutgoingContent,
    /// Why the content could not be read while the client did not read the response.
    upload_error: Option<ClientErrorKind>,
    silence: Duration,
    trailers: Option<Fields>,
    /// Content that was received with the head.
    first: Option<Bytes>,
}

impl Http2Content {
    fn fail(&mut self, phase: ClientPhase, kind: ClientErrorKind) -> Poll<Option<Result<Bytes, ClientError>>> {
        self.exchange = None;
        Poll::Ready(Some(Err(ClientError::new(phase, kind, RetrySafety::Never))))
    }

    /// Sends the rest of the request, and receives the next piece of the content; `None` at its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ClientError>>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        let uploaded = self.upload_error.take().map_or_else(|| exchange.poll_upload(&mut self.content, cx), Err);
        if let Err(kind) = uploaded {
            return self.fail(ClientPhase::SendRequest, kind);
        }
        if let Some(piece) = exchange.stream.take_content() {
            exchange.stream.timer.end_wait();
            return Poll::Ready(Some(Ok(piece)));
        }
        let (is_complete, failure) = exchange.stream.with(|stream| (stream.is_complete, stream.failure));
        if is_complete {
            self.trailers = exchange.stream.with(|stream| stream.trailers.take());
            self.exchange = None;
            self.content = OutgoingContent::empty();
            return Poll::Ready(None);
        }
        if let Some(failure) = failure {
            return self.fail(ClientPhase::ReadContent, failure.kind);
        }
        if exchange.poll_timeout(self.silence, cx).is_ready() {
            return self.fail(ClientPhase::ReadContent, ClientErrorKind::TimedOut);
        }
        Poll::Pending
    }
}

impl Chunks for Http2Content {
    fn poll_chunk(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        self.poll_piece(cx).map_err(|error| StreamError(error.to_string()))
    }

    fn poll_progress(mut self: Pin<&mut Self>, cx: &mut Context<'_>) {
        let this = &mut *self;
        if let Some(exchange) = this.exchange.as_mut().filter(|_| this.upload_error.is_none()) {
            this.upload_error = exchange.poll_upload(&mut this.content, cx).err();
        }
    }

    fn trailers(mut self: Pin<&mut Self>) -> Fields {
        self.trailers.take().unwrap_or_default()
    }

    fn may_have_trailers(&self) -> bool {
        match &self.exchange {
            // Once all has arrived, it is known.
            Some(exchange) => exchange.stream.with(|stream| !stream.is_complete || stream.trailers.is_some()),
            None => self.trailers.is_some(),
        }
    }
}
