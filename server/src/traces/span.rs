//! The spans of a request, with the names of OpenTelemetry's semantic conventions for HTTP
//! (<https://opentelemetry.io/docs/specs/semconv/http/http-spans/>). None has a query: it may contain secrets.

use super::context::TraceContext;
use super::otlp::{
    AttributeValue, AttributeWriter, Parent, SpanFacts, SpanKind, SpanStatus, TEXT_BYTES_MAX, write_span,
};
use super::queue::EncodedSpans;
use super::request_trace::{RequestTrace, TryRecord, TryResult};
use selvedge::proto::field::KnownField;
use selvedge::proto::head::Version;
use selvedge::service::{CloseReason, Exchange, RequestPhase, ResponseOutcome, UNIX_PEER, local_address};
use selvedge::{Method, Request};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A request that has finished, with what its spans need.
#[derive(Clone, Copy)]
pub(super) struct FinishedRequest<'a> {
    pub(super) exchange: &'a Exchange<'a>,
    pub(super) request: &'a Request,
    pub(super) context: TraceContext,
    /// What was recorded while it was forwarded, if it was.
    pub(super) trace: Option<&'a RequestTrace>,
    /// `tracestate`; empty for none.
    pub(super) state: &'a str,
    /// The pattern of its route; empty for none.
    pub(super) route: &'a str,
    /// When the response was complete: by the monotonic clock, and since 1970.
    pub(super) completed: (Instant, Duration),
}

impl FinishedRequest<'_> {
    /// Whether the server, or a try at an upstream, has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.exchange.status.code() >= 500 || self.failure().is_some()
    }

    /// Returns the kind of the failure of an upstream or of the response, without values of the request.
    fn failure(&self) -> Option<&'static str> {
        let is_aborted = self.exchange.outcome == ResponseOutcome::Aborted;
        let of_upstream = self.exchange.upstream.and_then(|record| {
            let facts = record.facts();
            match facts.failure_kind {
                "" if is_aborted && facts.failure.is_some() => Some("http_response_incomplete"),
                kind => Some(kind).filter(|kind| !kind.is_empty()),
            }
        });
        let is_of_server = |reset: &CloseReason| {
            matches!(
                reset,
                CloseReason::UpstreamFailed
                    | CloseReason::StreamFailed
                    | CloseReason::FileChanged
                    | CloseReason::FileReadFailed
                    | CloseReason::Panicked
            )
        };
        let of_response = || self.exchange.reset.filter(is_of_server).map(|reset| reset.name());
        of_upstream.or_else(of_response)
    }

    /// Returns why the request has failed. One whose repetition has succeeded has not.
    fn error_type(&self) -> Option<Cow<'static, str>> {
        let is_aborted = self.exchange.outcome == ResponseOutcome::Aborted;
        match (self.exchange.status.code(), self.failure()) {
            (500.., Some(failure)) => Some(failure.into()),
            (status @ 500.., None) => Some(status.to_string().into()),
            (_, failure) => failure.filter(|_| is_aborted).map(Cow::from),
        }
    }

    /// Returns the encoded spans: that of the request, and one for each try.
    pub(super) fn spans(&self) -> EncodedSpans {
        let mut bytes = Vec::with_capacity(1024);
        self.write_request(&mut bytes);
        let tries = self.trace.map(RequestTrace::tries);
        let tries = tries.as_deref().unwrap_or_default();
        for (number, one) in tries.iter().enumerate() {
            self.write_try((number, one), &mut bytes);
        }
        EncodedSpans { bytes, count: 1 + tries.len() }
    }

    fn write_request(&self, out: &mut Vec<u8>) {
        let Self { exchange, request, context, .. } = *self;
        let method = method_name(request).unwrap_or("HTTP");
        let name = match self.route {
            "" => Cow::Borrowed(method),
            route => Cow::Owned(format!("{method} {route}")),
        };
        let (_, end) = self.completed;
        let facts = SpanFacts {
            trace_id: context.trace_id,
            span_id: context.span_id,
            parent: context.parent.map_or(Parent::None, Parent::Remote),
            trace_flags: context.flags(),
            trace_state: self.state,
            name: &name,
            kind: SpanKind::Server,
            start: nanoseconds(end.saturating_sub(exchange.elapsed.unwrap_or_default())),
            end: nanoseconds(end),
            status: if self.error_type().is_some() { SpanStatus::Error } else { SpanStatus::Unset },
        };
        write_span(facts, out, |attributes| self.write_attributes(attributes));
    }

    fn write_attributes(&self, attributes: &mut AttributeWriter<'_>) {
        let Self { exchange, request, .. } = *self;
        write_method(request, attributes);
        attributes.text("url.path", request.path());
        attributes.text("url.scheme", if request.tls().is_some() { "https" } else { "http" });
        attributes.number("http.response.status_code", exchange.status.code());
        if !self.route.is_empty() {
            attributes.text("http.route", self.route);
        }
        if exchange.peer != UNIX_PEER || request.client() != UNIX_PEER.ip() {
            attributes.text("client.address", &request.client().to_canonical().to_string());
        }
        write_server(request, attributes);
        attributes.text(
            "network.protocol.version",
            match request.version() {
                Version::Http10 => "1.0",
                Version::Http11 => "1.1",
                Version::Http2 => "2",
                Version::Http3 => "3",
            },
        );
        if let Some(agent) = request.known_field(KnownField::UserAgent) {
            let begin = &agent[..agent.len().min(2 * TEXT_BYTES_MAX)];
            attributes.text("user_agent.original", &String::from_utf8_lossy(begin));
        }
        if let Some(error) = self.error_type() {
            attributes.text("error.type", &error);
        }
        for phase in RequestPhase::ALL {
            if let (Some(time), Some(name)) = (exchange.phases.get(phase), phase_name(phase)) {
                attributes.add(name, AttributeValue::Seconds(time.as_secs_f64()));
            }
        }
    }

    fn write_try(&self, (number, one): (usize, &TryRecord), out: &mut Vec<u8>) {
        let Self { exchange, request, context, .. } = *self;
        let (completed, end) = self.completed;
        let start = end.saturating_sub(completed.saturating_duration_since(one.began));
        let error = match one.result {
            TryResult::Status(status) if status.code() < 400 => None,
            TryResult::Status(status) => Some(Cow::from(status.code().to_string())),
            TryResult::Failed(kind) => Some(Cow::from(kind)),
        };
        let facts = SpanFacts {
            trace_id: context.trace_id,
            span_id: one.span_id,
            parent: Parent::Local(context.span_id),
            trace_flags: context.flags(),
            trace_state: self.state,
            name: method_name(request).unwrap_or("HTTP"),
            kind: SpanKind::Client,
            start: nanoseconds(start),
            end: nanoseconds(start + one.took),
            status: if error.is_some() { SpanStatus::Error } else { SpanStatus::Unset },
        };
        write_span(facts, out, |attributes| {
            write_method(request, attributes);
            write_address(&one.address, attributes);
            if let TryResult::Status(status) = one.result {
                attributes.number("http.response.status_code", status.code());
            }
            if number > 0 {
                attributes.number("http.request.resend_count", i64::try_from(number).unwrap_or(i64::MAX));
            }
            if let Some(error) = &error {
                attributes.text("error.type", error);
            }
            if let Some(upstream) = exchange.upstream {
                attributes.text("selvedge.upstream", &upstream.facts().group);
            }
        });
    }
}

/// Returns the method, if it is a known one.
fn method_name(request: &Request) -> Option<&str> {
    Some(request.method_text()).filter(|_| request.method() != Method::Other)
}

fn write_method(request: &Request, attributes: &mut AttributeWriter<'_>) {
    match method_name(request) {
        Some(method) => attributes.text("http.request.method", method),
        None => {
            attributes.text("http.request.method", "_OTHER");
            attributes.text("http.request.method_original", request.method_text());
        }
    }
}

/// Writes the host and the port that the client has requested, or else the address that it has connected to.
fn write_server(request: &Request, attributes: &mut AttributeWriter<'_>) {
    let host = request.host().map(|host| (String::from_utf8_lossy(host.name), host.port));
    match (host, local_address(request)) {
        (Some((name, port)), local) => {
            attributes.text("server.address", name.trim_matches(['[', ']']));
            if let Some(port) = port.or_else(|| Some(local?.port())) {
                attributes.number("server.port", port);
            }
        }
        (None, Some(local)) => write_socket(local, attributes),
        (None, None) => {}
    }
}

/// Writes the address of an upstream: of a socket, or the path of a Unix socket.
fn write_address(address: &str, attributes: &mut AttributeWriter<'_>) {
    match address.parse::<SocketAddr>() {
        Ok(socket) => write_socket(socket, attributes),
        Err(_) if address.is_empty() => {}
        Err(_) => attributes.text("server.address", address.strip_prefix("unix:").unwrap_or(address)),
    }
}

fn write_socket(address: SocketAddr, attributes: &mut AttributeWriter<'_>) {
    attributes.text("server.address", &address.ip().to_canonical().to_string());
    attributes.number("server.port", address.port());
}

/// Returns the attribute with the time of a phase. The time after an accept has none: it depends on
/// when the client begins to send.
fn phase_name(phase: RequestPhase) -> Option<&'static str> {
    Some(match phase {
        RequestPhase::Accept => return None,
        RequestPhase::Handshake => "selvedge.phase.handshake",
        RequestPhase::Head => "selvedge.phase.head",
        RequestPhase::Content => "selvedge.phase.content",
        RequestPhase::Application => "selvedge.phase.application",
        RequestPhase::Queue => "selvedge.phase.queue",
        RequestPhase::Connect => "selvedge.phase.connect",
        RequestPhase::FirstByte => "selvedge.phase.first_byte",
        RequestPhase::Send => "selvedge.phase.send",
    })
}

/// Returns a time since 1970 in nanoseconds.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
