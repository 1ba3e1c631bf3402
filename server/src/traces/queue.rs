//! Spans on their way from the workers to the exporter: a queue with a bound, at which no worker waits.

use super::otlp::TEXT_BYTES_MAX;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most spans that wait. Further ones are dropped and counted.
pub(super) const SPANS_QUEUED_MAX: usize = 2048;
/// Spans that are sent at once.
pub(super) const SPANS_SENT_MAX: usize = 512;
/// Most bytes of a span: its texts, each cut, their names, `tracestate`, and numbers.
const SPAN_BYTES_MAX: usize = 10 * TEXT_BYTES_MAX + 512 + 1024;
/// Most bytes of memory of the spans that wait, and of those that are being sent, which are copied.
pub(crate) const QUEUED_BYTES_MAX: usize = (SPANS_QUEUED_MAX + 3 * SPANS_SENT_MAX) * SPAN_BYTES_MAX;

/// Encoded spans of one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct EncodedSpans {
    /// Each is a field of the message that contains the spans of a batch.
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
}

/// The queue.
#[derive(Debug)]
pub(crate) struct SpanQueue {
    sender: Sender<EncodedSpans>,
    waiting: AtomicUsize,
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// What became of spans since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanCounts {
    /// Spans that a collector has accepted.
    pub(crate) exported: u64,
    /// Spans that were dropped, because the collector was too slow, did not respond, or refused them.
    pub(crate) dropped: u64,
}

impl SpanQueue {
    /// Creates a queue, and the end at which the exporter takes spans.
    pub(super) fn new() -> (Self, Receiver<EncodedSpans>) {
        let (sender, receiver) = channel(SPANS_QUEUED_MAX);
        let (exported, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        (Self { sender, waiting: AtomicUsize::new(0), exported, dropped }, receiver)
    }

    /// Adds the spans of a request, or drops and counts them if the queue is full. Never waits.
    pub(super) fn add(&self, spans: EncodedSpans) {
        let count = spans.count;
        let before = self.waiting.fetch_add(count, Ordering::Relaxed);
        if before + count > SPANS_QUEUED_MAX || self.sender.try_send(spans).is_err() {
            self.waiting.fetch_sub(count, Ordering::Relaxed);
            self.count_dropped(count as u64);
        }
    }

    /// Makes the exporter look, without a span for it.
    pub(super) fn wake(&self) {
        // A full queue has woken it.
        let _ = self.sender.try_send(EncodedSpans::default());
    }

    /// Notes that spans were taken out of the queue.
    pub(super) fn count_taken(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn count_exported(&self, count: u64) {
        self.exported.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn count_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns what became of spans.
    pub(crate) fn counts(&self) -> SpanCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpanCounts { exported: count(&self.exported), dropped: count(&self.dropped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_beyond_the_bound_are_dropped_and_counted() {
        let (queue, mut receiver) = SpanQueue::new();
        let add = |count| queue.add(EncodedSpans { bytes: vec![0], count });
        add(SPANS_QUEUED_MAX - 3);
        add(4);
        assert_eq!(queue.counts(), SpanCounts { exported: 0, dropped: 4 });
        add(3);
        add(1);
        assert_eq!(queue.counts(), SpanCounts { exported: 0, dropped: 5 });
        let first = receiver.try_recv().unwrap();
        assert_eq!(first.count, SPANS_QUEUED_MAX - 3);
        queue.count_taken(first.count);
        queue.count_exported(first.count as u64);
        add(4);
        let expected = SpanCounts { exported: SPANS_QUEUED_MAX as u64 - 3, dropped: 5 };
        assert_eq!((receiver.try_recv().unwrap().count, receiver.try_recv().unwrap().count), (3, 4));
        assert_eq!(queue.counts(), expected);
        queue.wake();
        assert_eq!(receiver.try_recv().unwrap(), EncodedSpans::default());
        drop(receiver);
        add(1);
        assert_eq!(queue.counts().dropped, 6, "nothing takes them any more");
    }
}
