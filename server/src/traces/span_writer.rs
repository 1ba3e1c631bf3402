//! Decides at the end of a request whether its spans are exported, and hands them over; on one worker.

use super::context::TraceContext;
use super::request_trace::trace_of;
use super::span::FinishedRequest;
use super::trace_state;
use super::tracer::Tracer;
use selvedge::Request;
use selvedge::service::Exchange;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes the spans of one worker. A clone is for another worker.
#[derive(Clone, Debug)]
pub(crate) struct SpanWriter {
    tracer: Arc<Tracer>,
    /// The pattern of the route at each place among the counters; empty for none.
    routes: Arc<[Box<str>]>,
}

impl SpanWriter {
    /// Creates a writer for routes with these patterns, in the order of their places.
    pub(crate) fn new(tracer: &Arc<Tracer>, routes: Arc<[Box<str>]>) -> Self {
        Self { tracer: tracer.clone(), routes }
    }

    /// Returns the context of a request that has finished. Call it once: a request that was not forwarded gets its
    /// identifiers here.
    pub(crate) fn context_of(&self, request: &Request) -> TraceContext {
        self.tracer.context_of(request)
    }

    /// Exports the spans of a request of the route at a place, if it was chosen, has failed or was slow. The response was
    /// complete at a moment, also as a time since 1970.
    pub(crate) fn finish(
        &self,
        (exchange, context): (&Exchange<'_>, TraceContext),
        place: usize,
        completed: (Instant, Duration),
    ) {
        let Some(request) = exchange.request else { return };
        let trace = trace_of(request);
        let route = self.routes.get(place).map_or("", |route| route);
        let mut finished =
            FinishedRequest { exchange, request, context, trace: trace.as_deref(), state: "", route, completed };
        let is_slow = exchange.elapsed.is_some_and(|elapsed| elapsed >= self.tracer.slower);
        if !context.is_sampled && !is_slow && !finished.has_failed() {
            return;
        }
        let state;
        finished.state = match (finished.trace, context.parent) {
            (Some(trace), _) => trace.state().unwrap_or_default(),
            (None, None) => "",
            (None, Some(_)) => {
                state = trace_state::combined(request.fields());
                state.as_deref().unwrap_or_default()
            }
        };
        self.tracer.queue.add(finished.spans());
    }
}
