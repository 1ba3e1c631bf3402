//! Collects one worker's log lines and counts.

use super::access::{Format, LINE_BYTES_MAX};
use super::config::Level;
use super::error::{LogEvent, SEPARATE_LINES};
use super::line_batch::LineBatch;
use super::logs::{LogQueues, Logs};
use super::metrics::{CounterHandle, Counters};
use super::route_counters::CounterLabels;
use super::time::WallClock;
use crate::reasons;
use crate::recorder::{Recorder, RecorderHandle, RouteNames};
use crate::traces::{SpanWriter, TraceContext};
use selvedge::proto::http2::StreamError;
use selvedge::service::{CloseReason, Closed, Exchange, Phase, ServerEvent, TlsInfo, UpstreamRecord, log_rule};
use selvedge::{Limits, Observer, Reject, Request};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A batch is sent when it has this many bytes, and four times a second.
const BATCH_BYTES: usize = 32 * 1024;
/// Most bytes of memory that one worker's pending lines of one access log use. A buffer grows by doubling.
pub(crate) const PENDING_BYTES_MAX: usize = 2 * (BATCH_BYTES + LINE_BYTES_MAX);

/// The observer of one worker.
#[derive(Debug)]
pub(crate) struct LogObserver {
    queue: Arc<LogQueues>,
    pending: RefCell<Vec<PendingLines>>,
    /// Access logs with pending lines, and possibly more.
    logs_with_lines: RefCell<Vec<usize>>,
    /// Whether an access log needs the time of responses.
    wants_elapsed: bool,
    wall_clock: WallClock,
    limits: Arc<Limits>,
    /// Counters that `status` and metrics read.
    counters: Option<CounterHandle>,
    /// The flight recorder.
    recorder: Option<RecorderHandle>,
    /// What writes spans, if the configuration has traces.
    spans: Option<SpanWriter>,
}

/// Pending lines of one access log.
#[derive(Debug)]
struct PendingLines {
    format: Format,
    batch: LineBatch,
}

impl Clone for LogObserver {
    fn clone(&self) -> Self {
        let mut clone = Self::with_queue(self.queue.clone(), self.limits.clone());
        clone.counters = self.counters.clone();
        clone.recorder = self.recorder.clone();
        clone.spans = self.spans.clone();
        clone
    }
}

impl LogObserver {
    pub(crate) fn new(logs: &Logs, limits: &Limits) -> Self {
        Self::with_queue(logs.queue(), Arc::new(limits.clone()))
    }

    /// Returns the observer with counters of the routes with these labels.
    #[must_use]
    pub(crate) fn with_counters(mut self, counters: &Arc<Counters>, labels: &Arc<CounterLabels>) -> Self {
        self.counters = Some(CounterHandle::new(counters, labels));
        self
    }

    /// Returns the observer with a flight recorder. The labels are those of its counters, and the first patterns of routes
    /// are in their order.
    #[must_use]
    pub(crate) fn with_recorder(
        mut self,
        recorder: &Arc<Recorder>,
        labels: &CounterLabels,
        patterns: &[Box<str>],
    ) -> Self {
        let routes = labels.names().zip(patterns);
        let names = routes.map(|((site, route), pattern)| RouteNames { site, route, pattern });
        self.recorder = Some(RecorderHandle::new(recorder, names));
        self
    }

    /// Returns the observer with traces. The patterns of the writer are in the order of the counters.
    #[must_use]
    pub(crate) fn with_spans(mut self, spans: SpanWriter) -> Self {
        self.spans = Some(spans);
        self
    }

    fn with_queue(queue: Arc<LogQueues>, limits: Arc<Limits>) -> Self {
        let pending =
            queue.formats().map(|format| PendingLines { format, batch: LineBatch::default() }).collect::<Vec<_>>();
        // The time of a response is its place among those of other workers.
        let wants_elapsed = !pending.is_empty();
        Self {
            queue,
            pending: RefCell::new(pending),
            logs_with_lines: RefCell::default(),
            wants_elapsed,
            wall_clock: WallClock::default(),
            limits,
            counters: None,
            recorder: None,
            spans: None,
        }
    }

    fn send_batch(&self, log: usize, pending: &mut PendingLines) {
        if pending.batch.count() > 0 {
            // The next batch probably has a similar size.
            let next = pending.batch.like();
            self.queue.send_lines(log, std::mem::replace(&mut pending.batch, next));
        }
    }

    /// Writes the spans of a request of the route at a place, if it is to be exported. Returns its trace, if the
    /// configuration has traces.
    fn write_spans(&self, exchange: &Exchange<'_>, place: usize) -> Option<TraceContext> {
        let (spans, request) = (self.spans.as_ref()?, exchange.request?);
        let context = spans.context_of(request);
        let completed_at = exchange.completed_at.unwrap_or_else(Instant::now);
        let (completed, _) = self.wall_clock.times_of(completed_at);
        spans.finish((exchange, context), place, (completed_at, completed));
        Some(context)
    }

    fn append_access_lines(&self, (site, trace): (u32, Option<TraceContext>), exchange: &Exchange<'_>) {
        let site = self.queue.site(site);
        let is_logged = exchange.request.is_none_or(|request| log_rule(request).includes(exchange.status));
        if site.access.is_empty() || !is_logged {
            return;
        }
        let completed_at = exchange.completed_at.unwrap_or_else(Instant::now);
        let (completed, line_time) = self.wall_clock.times_of(completed_at);
        let all = &mut *self.pending.borrow_mut();
        for &log in &site.access {
            let pending = &mut all[log];
            if pending.batch.count() == 0 {
                self.logs_with_lines.borrow_mut().push(log);
            }
            pending.format.append(exchange, (&site.name, completed, trace), &mut pending.batch.text);
            pending.batch.end_line(line_time);
            if pending.batch.len() >= BATCH_BYTES {
                self.send_batch(log, pending);
            }
        }
    }

    /// Sends what a script has written to its standard error: each line is one of the error log.
    fn send_script_messages(&self, exchange: &Exchange<'_>) {
        let Some(upstream) = exchange.upstream else { return };
        let facts = upstream.facts();
        if facts.messages.is_empty() {
            return;
        }
        let site = self.queue.site(exchange.request.map_or(0, Request::site_tag));
        let send = |text: String| {
            let event = LogEvent::from_program(Level::Error, "Script", text);
            self.queue.send_site_event(site, LogEvent { key: SEPARATE_LINES, ..about(exchange, event) });
        };
        for line in facts.messages.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()) {
            send(String::from_utf8_lossy(line).into_owned());
        }
        if facts.message_bytes_lost > 0 {
            send(format!("{} more bytes of messages were not kept", facts.message_bytes_lost));
        }
    }

    /// Sends a line about a request to the error log of its site. Lines of one key are counted together.
    fn log_exchange(
        &self,
        exchange: &Exchange<'_>,
        level: Level,
        (key, name): (&'static str, &'static str),
        text: &str,
    ) {
        let text = format!("{} {text}", exchange.status.code());
        let site = self.queue.site(exchange.request.map_or(0, Request::site_tag));
        let event = LogEvent::from_program(level, name, text);
        self.queue.send_site_event(site, LogEvent { key, ..about(exchange, event) });
    }

    /// Returns the exceeded limit of a refusal, for the log.
    fn limit_of_reject(&self, reject: Reject) -> Option<String> {
        let message = &self.limits.message;
        Some(match reject {
            Reject::RequestLineTooLong => format!("{} bytes", message.request_line_bytes_max),
            Reject::HeadTooLarge => format!("{} bytes", message.head_bytes_max),
            Reject::TooManyFields => format!("{} fields", message.fields_max),
            Reject::MethodTooLong => format!("{} bytes", selvedge::proto::limits::METHOD_BYTES_MAX),
            Reject::ChunkExtensionTooLong => format!("{} bytes", message.chunk_extension_bytes_max),
            Reject::ChunkOverheadTooLarge => format!("{} bytes more than content", message.chunk_overhead_allowance),
            Reject::TrailersTooLarge => format!("{} bytes", message.trailer_bytes_max),
            Reject::ContentTooLarge => format!("{} bytes", self.limits.body_bytes_max),
            _ => return None,
        })
    }

    fn limit_of_close(&self, reason: CloseReason) -> Option<String> {
        let limits = &self.limits;
        Some(match reason {
            CloseReason::NothingReceived | CloseReason::HeadTooSlow => format!("{:?}", limits.header_timeout),
            CloseReason::ContentTooSlow => {
                format!("{:?} or {} B/s", limits.body_timeout, limits.body_min_rate)
            }
            CloseReason::SendTooSlow => {
                format!("{:?} or {} B/s", limits.send_timeout, limits.send_min_rate)
            }
            CloseReason::ContentUnread => format!("{} bytes", limits.discard_bytes_max),
            CloseReason::ShutdownTimeout => format!("{:?}", limits.shutdown_timeout),
            CloseReason::ContentRejected(reject) => return self.limit_of_reject(reject),
            _ => return None,
        })
    }
}

/// Sends pending lines when the observer is dropped.
impl Drop for LogObserver {
    fn drop(&mut self) {
        self.tick();
    }
}

/// Returns an event with what identifies its request.
fn about(exchange: &Exchange<'_>, event: LogEvent) -> LogEvent {
    // The peer is the client unless a trusted proxy forwarded the request.
    let client = exchange.request.map(|request| request.client().to_canonical());
    let client = client.filter(|client| *client != exchange.peer.ip().to_canonical());
    LogEvent { peer: Some(exchange.peer), client, line: exchange.request_line.to_vec(), ..event }
}

fn with_limit(text: &str, limit: Option<String>) -> String {
    limit.map_or_else(|| text.to_owned(), |limit| format!("{text} (bound: {limit})"))
}

/// Returns the kind and the text of the failure of an upstream, if it has failed.
fn failure_of(upstream: &UpstreamRecord) -> Option<(&'static str, String)> {
    let facts = upstream.facts();
    facts.failure.as_ref().map(|text| (facts.failure_kind, text.to_string()))
}

impl Observer for LogObserver {
    fn wants_elapsed(&self) -> bool {
        self.wants_elapsed || self.counters.is_some() || self.recorder.is_some() || self.spans.is_some()
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        let site = exchange.request.map_or(0, Request::site_tag);
        let place = self.counters.as_ref().map_or(0, |counters| counters.count(site, exchange));
        if let Some(recorder) = &self.recorder {
            let completed_at = exchange.completed_at.unwrap_or_else(Instant::now);
            let (completed, _) = self.wall_clock.times_of(completed_at);
            recorder.record(exchange, place, completed);
        }
        let trace = self.write_spans(exchange, place);
        self.append_access_lines((site, trace), exchange);
        self.send_script_messages(exchange);
        // 501 and 505 depend on the request, not on the server.
        let level = if matches!(exchange.status.code(), 500 | 502..=504) { Level::Error } else { Level::Warn };
        if let Some(reject) = exchange.reject {
            let text = with_limit(reject.message(), self.limit_of_reject(reject));
            self.log_exchange(exchange, level, (reject.name(), reject.name()), &text);
        } else if let Some((kind, failure)) = exchange.upstream.and_then(failure_of) {
            let key = if kind.is_empty() { exchange.reason.unwrap_or("Upstream") } else { kind };
            self.log_exchange(exchange, level, (key, "Upstream"), &failure);
        } else if let Some(reason) = exchange.reason {
            // A line for each attempt, because programs that block clients count the lines, and for each file.
            let level = if reasons::is_about_files(reason) { Level::Info } else { level };
            let key = if reasons::has_own_line(reason) { SEPARATE_LINES } else { reason };
            self.log_exchange(exchange, level, (key, "Answered"), reason);
        }
        // The facts of the upstream were logged.
        if let Some(reset) = exchange.reset.filter(|reset| *reset != CloseReason::UpstreamFailed) {
            let level = if reset.is_ordinary() { Level::Debug } else { Level::Warn };
            let text = with_limit(reset.explain(), self.limit_of_close(reset));
            let text = format!("{text}, on stream {}", exchange.stream.0);
            self.log_exchange(exchange, level, (reset.name(), reset.name()), &text);
        }
    }

    fn handshake(&self, tls: &TlsInfo, took: Option<Duration>) {
        self.counters.iter().for_each(|counters| counters.handshake(tls, took));
    }

    fn closed(&self, closed: &Closed) {
        self.counters.iter().for_each(|counters| counters.close(closed.reason));
        // A refused head and an incomplete response were logged with their request.
        let was_logged = matches!(closed.reason, CloseReason::Rejected(_) | CloseReason::UpstreamFailed);
        let idle_at_stop = closed.reason == CloseReason::StoppedImmediately && closed.phase == Phase::Idle;
        let is_ordinary = closed.reason.is_ordinary() || was_logged || idle_at_stop;
        let level = if is_ordinary { Level::Debug } else { Level::Warn };
        if !self.queue.wants(level) {
            return;
        }
        let text = with_limit(&closed.reason.to_string(), self.limit_of_close(closed.reason));
        let requests = match closed.requests {
            1 => "1 request".to_owned(),
            number => format!("{number} requests"),
        };
        let text = format!("{text}, while {}, after {requests}", closed.phase.explain());
        let event = LogEvent::from_program(level, closed.reason.name(), text);
        // Lines with another detail are counted by themselves.
        let key = closed.reason.detail().unwrap_or(event.key);
        self.queue.send_event(LogEvent { key, peer: Some(closed.peer), ..event });
    }

    fn reports_panics(&self) -> bool {
        true
    }

    fn event(&self, event: &ServerEvent) {
        let mut event_count = 1;
        let (level, name, peer, text) = match event {
            ServerEvent::Panic { peer, message } => (Level::Error, "Panic", Some(*peer), message.clone()),
            ServerEvent::AcceptFailed { error } => {
                (Level::Error, "AcceptFailed", None, format!("cannot accept connections, pausing: {error}"))
            }
            ServerEvent::AcceptRecovered => {
                (Level::Info, "AcceptRecovered", None, "accepting connections again".to_owned())
            }
            ServerEvent::UringUnavailable { error } => {
                let text = format!("no io_uring here, so sockets are driven by epoll: {error}");
                (Level::Warn, "UringUnavailable", None, text)
            }
            ServerEvent::ConnectionLimitReached { limit } => (
                Level::Warn,
                "ConnectionLimitReached",
                None,
                format!("all connections are in use, new ones wait (bound: {limit})"),
            ),
            ServerEvent::ConnectionLimitCleared => {
                (Level::Info, "ConnectionLimitCleared", None, "connections are free again".to_owned())
            }
            ServerEvent::StreamsRefused { peer, error, count } => {
                event_count = u64::from(*count);
                let limit = (*error == StreamError::StreamsTooMany).then(|| self.limits.http2.streams_max.to_string());
                let text = format!("{}; the stream is reset", with_limit(error.message(), limit));
                (Level::Warn, error.name(), Some(*peer), text)
            }
            ServerEvent::ClientOverLimit { peer } => {
                let text = "the client has too many connections (dry run)".to_owned();
                (Level::Warn, "ClientOverLimit", Some(*peer), text)
            }
        };
        if level < Level::Info {
            self.counters.iter().for_each(|counters| counters.count_event(name));
        }
        self.queue.send_event(LogEvent { peer, count: event_count, ..LogEvent::from_program(level, name, text) });
    }

    fn tick(&self) {
        let all = &mut *self.pending.borrow_mut();
        for log in self.logs_with_lines.borrow_mut().drain(..) {
            self.send_batch(log, &mut all[log]);
        }
    }
}
