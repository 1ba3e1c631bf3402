//! One exchange over HTTP/1.1, up to the head of the response: the request is sent and the response awaited at once.

use super::content::{Http1Content, begin_content};
use super::upload::{RequestUpload, UploadError, framing_of};
use crate::client::Interim;
use crate::client::destination::Destination;
use crate::client::error::{ClientError, ClientErrorKind, ClientPhase, ConnectionUse, RetrySafety};
use crate::client::limits::{ClientTimeouts, INTERIM_RESPONSES_MAX};
use crate::client::open;
use crate::client::outgoing_content::OutgoingContent;
use crate::client::request::OutgoingHead;
use crate::client::response::{IncomingResponse, ResponseContent};
use crate::client::table::{Lease, Table};
use crate::client::tunnel::Tunnel;
use crate::client::tunnel_end::TunnelEnd;
use crate::limits::SPLICE_BYTES_MIN;
use crate::net::client_session::ApplicationProtocol;
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::forward::forward_response;
use selvedge_proto::http1::parse_response;
use selvedge_proto::http1::parse_response::{RequestContext, ResponseFraming, ResponseHead, UpgradeOffer};
use selvedge_proto::method::Method;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// Sends a request and awaits the head of its response.
pub(in crate::client) async fn send(
    table: &Rc<Table>,
    to: &Destination,
    head: &OutgoingHead,
    content: &mut OutgoingContent,
    (timeouts, interim): (&ClientTimeouts, Interim<'_>),
) -> Result<IncomingResponse, ClientError> {
    let method = Method::from_token(&head.method);
    let group = table.group(to);
    let (lease, connect_time) = match table.take_idle(&group) {
        Some(lease) => (lease, None),
        None => {
            let began = Instant::now();
            let lease = Box::pin(open::open(table, &group, timeouts.connect, ApplicationProtocol::Http1)).await?;
            (lease, Some(began.elapsed()))
        }
    };
    let framing = framing_of(content);
    let upgrade = if head.offers_upgrade(framing) { UpgradeOffer::Offered } else { UpgradeOffer::None };
    let mut exchange = Http1Exchange {
        timeouts: *timeouts,
        context: RequestContext { method, upgrade },
        upload: RequestUpload::new(framing),
        sent_before: 0,
        has_received: false,
        interim_responses: 0,
        send_error: None,
        head: table.take_head(),
        lease,
    };
    let connection = exchange.lease.connection();
    exchange.sent_before = connection.sent;
    connection.expect_response(head.response_use);
    if let Err(invalid) = head.write_http1(framing, connection.output.bytes()) {
        let error = exchange.failed(ClientPhase::SendRequest, ClientErrorKind::InvalidRequest(invalid));
        return Err(error);
    }
    let result = poll_fn(|cx| exchange.poll_head(content, interim, cx)).await;
    match result {
        Ok(()) => exchange.into_response(content).await.map(|response| IncomingResponse { connect_time, ..response }),
        Err((phase, kind)) => Err(exchange.failed(phase, kind)),
    }
}

struct Http1Exchange {
    lease: Lease,
    timeouts: ClientTimeouts,
    context: RequestContext,
    upload: RequestUpload,
    /// Bytes that the connection had sent before this request.
    sent_before: u64,
    /// Whether a byte of the response was received.
    has_received: bool,
    interim_responses: u32,
    /// Why the request could not be sent completely.
    send_error: Option<ClientErrorKind>,
    head: Box<ResponseHead>,
}

type Failure = (ClientPhase, ClientErrorKind);

impl Http1Exchange {
    /// Sends the request and receives until the head of the response is complete. It is at the start of the input.
    fn poll_head(
        &mut self,
        content: &mut OutgoingContent,
        interim: Interim<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        self.poll_upload(content, cx)?;
        loop {
            if self.parse(interim)? {
                return Poll::Ready(Ok(()));
            }
            let Poll::Ready(received) = self.lease.connection().poll_receive(cx) else { break };
            // After the request, one deadline holds up to the response: interim responses and a slow head do not extend it.
            if !self.upload.is_over() {
                self.lease.end_wait();
            }
            match received {
                Ok(0) => return Poll::Ready(Err(self.ended(ClientErrorKind::Closed))),
                Ok(_) => self.has_received = true,
                Err(error) => return Poll::Ready(Err(self.ended(ClientErrorKind::of_io(&error)))),
            }
        }
        ready!(self.poll_timeout(cx));
        let phase = if self.upload.is_over() { ClientPhase::AwaitHead } else { ClientPhase::SendRequest };
        Poll::Ready(Err((phase, ClientErrorKind::TimedOut)))
    }

    fn poll_upload(&mut self, content: &mut OutgoingContent, cx: &mut Context<'_>) -> Result<(), Failure> {
        if self.upload.is_over() {
            return Ok(());
        }
        let connection = self.lease.connection();
        let before = connection.sent;
        let polled = self.upload.poll(connection, content, cx);
        if connection.sent != before {
            self.lease.end_wait();
        }
        match polled {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(UploadError::Content(kind))) => Err((ClientPhase::SendRequest, kind)),
            // The upstream may have responded before it closed the connection.
            Poll::Ready(Err(UploadError::Send(error))) => {
                self.upload.abandon();
                self.lease.end_wait();
                self.send_error = Some(ClientErrorKind::of_io(&error));
                Ok(())
            }
        }
    }

    /// Parses received heads. Returns whether that of the response is complete.
    fn parse(&mut self, interim: Interim<'_>) -> Result<bool, Failure> {
        let limits = self.lease.table.limits.message;
        let connection = self.lease.connection();
        loop {
            let bytes = connection.input.bytes();
            if bytes.is_empty() {
                return Ok(false);
            }
            let malformed = |error| (ClientPhase::AwaitHead, ClientErrorKind::Malformed(error));
            if !parse_response(bytes, self.context, &limits, &mut self.head).map_err(malformed)? {
                return Ok(false);
            }
            let status = self.head.status;
            if !status.is_interim() || self.head.framing == ResponseFraming::Upgraded {
                return Ok(true);
            }
            self.interim_responses += 1;
            if self.interim_responses > INTERIM_RESPONSES_MAX {
                return Err((ClientPhase::AwaitHead, ClientErrorKind::InterimTooMany));
            }
            // The content is sent without waiting, so 100 tells nothing.
            if status != StatusCode::CONTINUE {
                interim(status, &fields_of(&self.head, bytes));
            }
            connection.input.consume(self.head.len);
            self.head.clear();
        }
    }

    /// Completes when the upstream has been waited for too long.
    fn poll_timeout(&mut self, cx: &Context<'_>) -> Poll<()> {
        if self.upload.awaits_content() {
            self.lease.end_wait();
            return Poll::Pending;
        }
        let timeout = if self.upload.is_over() { self.timeouts.response } else { self.timeouts.silence };
        if self.lease.wait(timeout, cx) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns the failure of a connection that ended.
    fn ended(&self, kind: ClientErrorKind) -> Failure {
        match self.send_error {
            // The end that was received tells no more than the error before it.
            Some(error) if matches!(kind, ClientErrorKind::Closed | ClientErrorKind::Reset) => {
                (ClientPhase::SendRequest, error)
            }
            _ => (ClientPhase::AwaitHead, kind),
        }
    }

    /// Returns the error of the exchange, and learns from a connection that was closed while idle.
    fn failed(mut self, phase: ClientPhase, kind: ClientErrorKind) -> ClientError {
        let connection = self.lease.connection();
        let retry = match kind {
            ClientErrorKind::RequestContent(_)
            | ClientErrorKind::RequestLength
            | ClientErrorKind::InvalidRequest(_) => RetrySafety::Never,
            _ if self.has_received => RetrySafety::Never,
            _ if connection.sent == self.sent_before => RetrySafety::NotSent,
            _ => RetrySafety::NoResponse,
        };
        let connection_use = connection.connection_use;
        if connection_use == ConnectionUse::Reused
            && retry != RetrySafety::Never
            && matches!(kind, ClientErrorKind::Closed | ClientErrorKind::Reset)
        {
            connection.group.closed_after(connection.idle_for);
        }
        self.lease.table.return_head(self.head);
        ClientError::new(phase, kind, retry).on(connection_use)
    }

    /// Returns the response, whose head is at the start of the input. Content that has arrived completely needs no
    /// connection.
    ///
    /// # Errors
    /// If the content that has arrived with the head is malformed, or if nothing but the end follows the head.
    async fn into_response(mut self, content: &mut OutgoingContent) -> Result<IncomingResponse, ClientError> {
        let connection = self.lease.connection();
        let bytes = connection.input.bytes();
        let (status, framing) = (self.head.status, self.head.framing);
        let fields = fields_of(&self.head, bytes);
        let keep_alive = self.head.keep_alive_timeout(bytes);
        let length = match framing {
            ResponseFraming::None if status == StatusCode::NO_CONTENT => Some(0),
            ResponseFraming::Upgraded => Some(0),
            _ => self.head.content_length,
        };
        let protocol = self.head.upgrade(bytes).map(Bytes::copy_from_slice);
        let persistence = self.head.persistence;
        if let ResponseFraming::Length(length) = framing {
            connection.group.response_bytes.set(length.saturating_add(self.head.len as u64));
            connection.group.head_bytes.set(u16::try_from(self.head.len).unwrap_or(u16::MAX));
        }
        connection.input.consume(self.head.len);
        self.lease.end_wait();
        self.lease.table.return_head(self.head);
        if let Some(protocol) = protocol {
            let tunnel = Tunnel::new(TunnelEnd::Connection(self.lease), protocol, self.timeouts.tunnel);
            let content = ResponseContent::complete(Bytes::new(), length);
            return Ok(IncomingResponse { status, fields, content, upgrade: Some(tunnel), connect_time: None });
        }
        let rest = Http1Content {
            framing: framing.into(),
            lease: Some(self.lease),
            persistence,
            keep_alive,
            upload: self.upload,
            content: std::mem::take(content),
            upload_error: None,
            silence: self.timeouts.silence,
            trailers: Fields::new(),
            first: None,
            splice_bytes_min: SPLICE_BYTES_MIN,
        };
        let content = begin_content(rest, length).await?;
        Ok(IncomingResponse { status, fields, content, upgrade: None, connect_time: None })
    }
}

/// Returns the fields of a response that a gateway forwards.
fn fields_of(head: &ResponseHead, bytes: &[u8]) -> Fields {
    let mut fields = crate::service::spare_fields();
    // The parser has checked all names and values.
    let _ = forward_response(head.fields(bytes), &mut fields);
    fields
}
