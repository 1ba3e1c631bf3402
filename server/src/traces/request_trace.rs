//! The trace of one request while it is forwarded, with its tries at upstreams.

use super::context::{TRACEPARENT_BYTES, TraceContext};
use super::random;
use selvedge::service::observer_note;
use selvedge::{Request, StatusCode};
use std::cell::{Ref, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Most tries that are kept. A request has fewer, unless a server has many addresses.
pub(super) const TRIES_MAX: usize = 32;
/// The result of a try that was given up, because the client has left.
const CANCELLED: &str = "cancelled";

/// The trace of a request, which its observer finds.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    pub(super) context: TraceContext,
    state: Option<Box<str>>,
    tries: RefCell<Vec<TryRecord>>,
}

/// A try that has ended.
#[derive(Clone, Debug)]
pub(super) struct TryRecord {
    pub(super) span_id: u64,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) address: Rc<str>,
    pub(super) result: TryResult,
}

/// The result of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TryResult {
    /// A response with this status.
    Status(StatusCode),
    /// The kind of the failure, without values of the request.
    Failed(&'static str),
}

/// A try that has begun. Its end is recorded on drop.
#[derive(Debug)]
pub(crate) struct CurrentTry {
    trace: Rc<RequestTrace>,
    record: TryRecord,
}

impl RequestTrace {
    pub(super) fn new(context: TraceContext, state: Option<Box<str>>) -> Self {
        Self { context, state, tries: RefCell::default() }
    }

    /// Returns `tracestate`, as it is passed on.
    pub(crate) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the tries that have ended.
    pub(super) fn tries(&self) -> Ref<'_, [TryRecord]> {
        Ref::map(self.tries.borrow(), Vec::as_slice)
    }

    /// Begins a try at a server with this address.
    pub(crate) fn begin_try(self: &Rc<Self>, address: Rc<str>) -> CurrentTry {
        let (span_id, began) = (random::nonzero(), Instant::now());
        let result = TryResult::Failed(CANCELLED);
        CurrentTry { trace: self.clone(), record: TryRecord { span_id, began, took: Duration::ZERO, address, result } }
    }
}

impl CurrentTry {
    /// Returns `traceparent` for the server.
    pub(crate) fn traceparent(&self) -> [u8; TRACEPARENT_BYTES] {
        self.trace.context.traceparent(self.record.span_id)
    }

    /// Changes the address, once it is known.
    pub(crate) fn set_address(&mut self, address: Rc<str>) {
        self.record.address = address;
    }

    /// Ends the try.
    pub(crate) fn end(mut self, result: TryResult) {
        self.record.result = result;
    }
}

impl Drop for CurrentTry {
    fn drop(&mut self) {
        self.record.took = self.record.began.elapsed();
        let mut tries = self.trace.tries.borrow_mut();
        if tries.len() < TRIES_MAX {
            tries.push(self.record.clone());
        }
    }
}

/// Returns the trace of a request, if it has begun.
pub(super) fn trace_of(request: &Request) -> Option<Rc<RequestTrace>> {
    observer_note(request)?.clone().downcast().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_recorded_in_the_order_of_their_ends_and_bounded() {
        let context = TraceContext::new_trace();
        let trace = Rc::new(RequestTrace::new(context, Some("a=1".into())));
        assert_eq!(trace.state(), Some("a=1"));
        let mut first = trace.begin_try("".into());
        first.set_address("127.0.0.1:1".into());
        let second = trace.begin_try("127.0.0.1:2".into());
        assert_ne!(first.traceparent(), second.traceparent());
        assert_eq!(first.traceparent()[..36], context.traceparent(1)[..36], "one trace");
        second.end(TryResult::Status(StatusCode::OK));
        drop(first);
        let ends: Vec<_> = trace.tries().iter().map(|ended| (ended.address.to_string(), ended.result)).collect();
        let expected = [
            ("127.0.0.1:2".to_owned(), TryResult::Status(StatusCode::OK)),
            ("127.0.0.1:1".to_owned(), TryResult::Failed(CANCELLED)),
        ];
        assert_eq!(ends, expected);
        (0..2 * TRIES_MAX).for_each(|_| trace.begin_try("".into()).end(TryResult::Failed("connection_refused")));
        assert_eq!(trace.tries().len(), TRIES_MAX);
    }
}
