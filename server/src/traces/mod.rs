//! Distributed traces: a span for a request and one for each try at an upstream, sent to an OpenTelemetry collector.
//!
//! ```text
//! site: RequestTrace ── traceparent ──► upstream             exporter, a thread
//!   └► tries                                                   ▲        │ OTLP over HTTP
//! log: SpanWriter ── decides at the end, encodes ──► SpanQueue ┘        └──► collector
//! ```
//!
//! A request gets identifiers when they are first needed: before it is forwarded, or at its end. Whether its spans are
//! exported is decided at the end. A worker never waits for the queue. This module never names the configuration, a site or
//! the log.

#[cfg(feature = "program")]
mod collector;
mod context;
#[cfg(feature = "program")]
mod exporter;
mod otlp;
mod queue;
mod random;
mod request_trace;
mod sampling;
mod span;
mod span_writer;
mod trace_state;
mod tracer;

#[cfg(feature = "program")]
pub(crate) use collector::CollectorSettings;
pub(crate) use context::{TRACEPARENT_BYTES, TraceContext};
#[cfg(feature = "program")]
pub(crate) use exporter::{ExportEvent, SpanExporter};
pub(crate) use queue::{QUEUED_BYTES_MAX, SpanCounts};
pub(crate) use request_trace::{CurrentTry, RequestTrace, TryResult};
pub(crate) use span_writer::SpanWriter;
pub(crate) use tracer::{TraceRules, Tracer};
