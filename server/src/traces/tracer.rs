//! The rules of traces, and what a request gets of them.

use super::context::{TraceContext, TraceParent};
use super::queue::SpanQueue;
use super::request_trace::{RequestTrace, trace_of};
use super::sampling::{SenderTrust, Share, context};
use super::trace_state;
use selvedge::Request;
use selvedge::service::set_observer_note;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Whether a peer is a trusted proxy.
type TrustsPeer = dyn Fn(SocketAddr) -> bool + Send + Sync;

/// Which requests are exported.
pub(crate) struct TraceRules {
    /// The share of traces that begin here: 0 to 1.
    pub(crate) ratio: f64,
    /// A request that takes as long is exported in any case.
    pub(crate) slower: Duration,
    /// The peers whose choice of a trace counts without a limit.
    pub(crate) trusts: Box<TrustsPeer>,
}

/// The traces of a configuration. All workers share it.
pub(crate) struct Tracer {
    share: Share,
    pub(super) slower: Duration,
    trusts: Box<TrustsPeer>,
    pub(super) queue: Arc<SpanQueue>,
}

impl Tracer {
    pub(crate) fn new(rules: TraceRules, queue: Arc<SpanQueue>) -> Self {
        let TraceRules { ratio, slower, trusts } = rules;
        Self { share: Share::of(ratio), slower, trusts, queue }
    }

    /// Returns the trace of a request that is forwarded or runs a script. The first call begins it.
    pub(crate) fn begin(&self, request: &Request) -> Rc<RequestTrace> {
        if let Some(known) = trace_of(request) {
            return known;
        }
        let context = self.new_context(request);
        // Without a valid parent, the state belongs to a trace that is not known.
        let state = context.parent.and_then(|_| trace_state::combined(request.fields()));
        let trace = Rc::new(RequestTrace::new(context, state));
        set_observer_note(request, trace.clone());
        trace
    }

    fn new_context(&self, request: &Request) -> TraceContext {
        let parent = TraceParent::of_fields(request.fields()).map(|parent| {
            let is_trusted = parent.is_sampled && (self.trusts)(request.peer());
            (parent, if is_trusted { SenderTrust::Trusted } else { SenderTrust::Untrusted })
        });
        context(parent, self.share)
    }

    /// Returns the context of a request that has finished.
    pub(super) fn context_of(&self, request: &Request) -> TraceContext {
        trace_of(request).map_or_else(|| self.new_context(request), |trace| trace.context)
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("share", &self.share).field("slower", &self.slower).finish_non_exhaustive()
    }
}
