//! The thread that sends spans to the collector: in batches, with repetitions, and without a worker that waits for it.

use super::collector::{Collector, CollectorSettings, Retry, SendFailure};
use super::otlp::PartialSuccess;
use super::queue::{EncodedSpans, SPANS_SENT_MAX, SpanQueue};
use super::random;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a span waits for others before its batch is sent.
const BATCH_TIME: Duration = Duration::from_secs(1);
/// How often a batch is sent. Then it is dropped.
const ATTEMPTS_MAX: u32 = 6;
/// Wait before the second attempt; it doubles with each further one.
const RETRY_DELAY_MIN: Duration = Duration::from_secs(1);
/// Longest wait that a collector may request.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);
/// Most events that wait for the log.
const EVENTS_MAX: usize = 64;

/// Sends spans to the collector of the configuration in force.
#[derive(Debug)]
pub(crate) struct SpanExporter {
    queue: Arc<SpanQueue>,
    state: Mutex<ExporterState>,
    /// The settings have changed, or the process stops.
    changed: Notify,
}

#[derive(Debug)]
struct ExporterState {
    /// `None` if the configuration has no traces.
    settings: Option<CollectorSettings>,
    /// The end of the queue, until the thread starts.
    spans: Option<Receiver<EncodedSpans>>,
    /// Closed when the thread has ended.
    end: Option<mpsc::Receiver<()>>,
    is_stopping: bool,
    events: Vec<ExportEvent>,
}

/// What the log reports of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExportEvent {
    /// Spans are lost, or will be if it lasts. Reported once, until the collector accepts spans again.
    Failing(String),
    /// The collector accepts spans again.
    Recovered(String),
}

impl Default for SpanExporter {
    fn default() -> Self {
        let (queue, spans) = SpanQueue::new();
        let state =
            ExporterState { settings: None, spans: Some(spans), end: None, is_stopping: false, events: Vec::new() };
        Self { queue: Arc::new(queue), state: Mutex::new(state), changed: Notify::new() }
    }
}

impl SpanExporter {
    /// Returns the queue of spans to export.
    pub(crate) fn queue(&self) -> &Arc<SpanQueue> {
        &self.queue
    }

    /// Sends spans to the collector of these settings from now on; to none without settings. The first call with settings
    /// starts the thread.
    ///
    /// # Errors
    /// If the system provides no thread.
    pub(crate) fn apply(self: &Arc<Self>, settings: Option<CollectorSettings>) -> io::Result<()> {
        let mut state = self.lock();
        if state.settings != settings {
            state.settings = settings;
            self.changed.notify_one();
        }
        if state.settings.is_none() {
            return Ok(());
        }
        let Some(spans) = state.spans.take() else { return Ok(()) };
        let (at_work, end) = mpsc::channel();
        let exporter = self.clone();
        thread::Builder::new().name("selvedge-spans".to_owned()).spawn(move || {
            exporter.run(spans);
            drop(at_work);
        })?;
        state.end = Some(end);
        Ok(())
    }

    /// Sends the spans that wait, each batch once, and ends the thread. Waits for at most a time.
    pub(crate) fn stop(&self, most: Duration) {
        let mut state = self.lock();
        state.is_stopping = true;
        let Some(end) = state.end.take() else { return };
        drop(state);
        self.changed.notify_one();
        self.queue.wake();
        // Nothing is sent over it: it closes.
        let _ = end.recv_timeout(most);
    }

    /// Takes what the log has not reported yet.
    pub(crate) fn take_events(&self) -> Vec<ExportEvent> {
        std::mem::take(&mut self.lock().events)
    }

    fn run(&self, spans: Receiver<EncodedSpans>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            // Without its other end, the queue drops and counts all spans.
            Err(error) => return self.report(ExportEvent::Failing(format!("cannot send spans: {error}"))),
        };
        let dropped = self.queue.counts().dropped;
        let delivery = Delivery { exporter: self, spans, collector: None, trouble: None, dropped };
        runtime.block_on(delivery.run());
        // A look-up of a name may still be at work.
        runtime.shutdown_background();
    }

    fn report(&self, event: ExportEvent) {
        let events = &mut self.lock().events;
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
    }

    fn is_stopping(&self) -> bool {
        self.lock().is_stopping
    }

    fn lock(&self) -> MutexGuard<'_, ExporterState> {
        // Each change leaves the state complete.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why spans are lost, and how many were before.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Failure(u64),
    /// The collector accepts spans, but not all.
    Slow(u64),
}

/// The state of the thread.
struct Delivery<'e> {
    exporter: &'e SpanExporter,
    spans: Receiver<EncodedSpans>,
    /// The collector of the last batch, with its settings.
    collector: Option<(CollectorSettings, Collector)>,
    trouble: Option<Trouble>,
    /// Spans that were dropped before the last batch was accepted.
    dropped: u64,
}

impl Delivery<'_> {
    async fn run(mut self) {
        loop {
            let is_last = self.exporter.is_stopping();
            let batch = self.next_batch().await;
            match batch.is_empty() {
                true if is_last => return,
                true => {}
                false => self.deliver(&batch).await,
            }
        }
    }

    /// Returns the next batch. It is empty if the process stops and no span waits.
    async fn next_batch(&mut self) -> Vec<EncodedSpans> {
        let (mut batch, mut count) = (Vec::new(), 0);
        let mut until = None;
        while count < SPANS_SENT_MAX {
            let next = match until {
                _ if self.exporter.is_stopping() => self.spans.try_recv().ok(),
                None => self.spans.recv().await,
                Some(until) => timeout_at(until, self.spans.recv()).await.ok().flatten(),
            };
            match next {
                // It only wakes.
                Some(EncodedSpans { count: 0, .. }) => {}
                Some(spans) => {
                    count += spans.count;
                    self.exporter.queue.count_taken(spans.count);
                    batch.push(spans);
                    until.get_or_insert_with(|| Instant::now() + BATCH_TIME);
                }
                None => break,
            }
        }
        batch
    }

    /// Sends a batch until the collector accepts it, or until it is dropped.
    async fn deliver(&mut self, batch: &[EncodedSpans]) {
        let count = batch.iter().map(|spans| spans.count as u64).sum();
        for attempt in 1..=ATTEMPTS_MAX {
            let failure = match self.send(batch).await {
                Some(Ok(success)) => return self.end_batch(count, success),
                Some(Err(failure)) => failure,
                // The configuration has no traces any more.
                None => break,
            };
            self.begin_trouble(Trouble::Failure, &failure.why);
            let Some(delay) = delay(failure.retry, attempt) else { break };
            if attempt == ATTEMPTS_MAX || self.exporter.is_stopping() {
                break;
            }
            // Changed settings, and the end of the process, shorten it.
            let _ = timeout(delay, self.exporter.changed.notified()).await;
        }
        self.exporter.queue.count_dropped(count);
    }

    /// Sends a batch once; `None` without a collector.
    async fn send(&mut self, batch: &[EncodedSpans]) -> Option<Result<PartialSuccess, SendFailure>> {
        let settings = self.exporter.lock().settings.clone()?;
        if self.collector.as_ref().is_none_or(|(known, _)| *known != settings) {
            match Collector::new(settings.clone()) {
                Ok(collector) => self.collector = Some((settings, collector)),
                Err(why) => return Some(Err(SendFailure { why, retry: Retry::Never })),
            }
        }
        let (_, collector) = self.collector.as_ref()?;
        Some(collector.send(batch).await)
    }

    /// Counts a batch of `count` spans that the collector has accepted, and reports what changes with it.
    fn end_batch(&mut self, count: u64, success: PartialSuccess) {
        let PartialSuccess { rejected_spans, message } = success;
        let rejected = rejected_spans.min(count);
        let queue = &self.exporter.queue;
        queue.count_exported(count - rejected);
        queue.count_dropped(rejected);
        let before = std::mem::replace(&mut self.dropped, queue.counts().dropped);
        let has_lost = self.dropped > before;
        match self.trouble {
            _ if rejected > 0 => {
                let why = format!("it rejects {rejected} of {count} spans: {}", message.escape_debug());
                self.begin_trouble(Trouble::Slow, &why);
            }
            None if has_lost => self.begin_trouble(Trouble::Slow, "spans arrive faster than it accepts them"),
            Some(Trouble::Slow(_)) if has_lost => {}
            Some(Trouble::Slow(earlier) | Trouble::Failure(earlier)) => {
                self.trouble = None;
                let lost = self.dropped - earlier;
                let text = format!("the collector accepts spans again; {lost} were dropped");
                self.exporter.report(ExportEvent::Recovered(text));
            }
            None => {}
        }
    }

    /// Reports trouble, unless it was reported.
    fn begin_trouble(&mut self, trouble: impl FnOnce(u64) -> Trouble, why: &str) {
        if self.trouble.is_some() {
            return;
        }
        self.trouble = Some(trouble(self.dropped));
        let url = self.exporter.lock().settings.as_ref().map(|settings| settings.url.clone()).unwrap_or_default();
        let text = format!("the collector {url} does not accept all spans: {why}; spans beyond the queue are dropped");
        self.exporter.report(ExportEvent::Failing(text));
    }
}

/// Returns the wait after a failed attempt; `None` if no other may follow. Servers do not repeat at one moment.
fn delay(retry: Retry, attempt: u32) -> Option<Duration> {
    match retry {
        Retry::Never => None,
        Retry::After(Some(requested)) => Some(requested.min(RETRY_DELAY_MAX)),
        Retry::After(None) => {
            let whole = RETRY_DELAY_MIN * 2_u32.pow(attempt - 1);
            let thousandths = 750 + (random::number() % 500) as u32;
            Some(whole * thousandths / 1000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_a_collector_may_choose_them() {
        for attempt in 1..ATTEMPTS_MAX {
            let whole = RETRY_DELAY_MIN * (1 << (attempt - 1));
            let waits: Vec<_> = (0..100).filter_map(|_| delay(Retry::After(None), attempt)).collect();
            assert!(waits.len() == 100 && waits.iter().all(|wait| (whole * 3 / 4..whole * 5 / 4).contains(wait)));
            assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
        }
        let requested = |seconds| delay(Retry::After(Some(Duration::from_secs(seconds))), 1);
        assert_eq!(requested(3), Some(Duration::from_secs(3)));
        assert_eq!(requested(3600), Some(RETRY_DELAY_MAX));
        assert_eq!(delay(Retry::Never, 1), None);
    }

    #[test]
    fn an_exporter_without_settings_has_no_thread() {
        let exporter = Arc::new(SpanExporter::default());
        exporter.apply(None).unwrap();
        assert!(exporter.lock().spans.is_some());
        exporter.stop(Duration::ZERO);
        assert_eq!(exporter.take_events(), []);
    }

    #[test]
    fn a_stop_sends_what_waits_once() {
        let exporter = Arc::new(SpanExporter::default());
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let settings =
            CollectorSettings { url: format!("http://{closed}/"), service: "a".to_owned(), headers: Vec::new() };
        exporter.queue.add(EncodedSpans { bytes: b"\x12\0".to_vec(), count: 3 });
        exporter.apply(Some(settings)).unwrap();
        exporter.stop(Duration::from_secs(30));
        assert_eq!((exporter.queue.counts().exported, exporter.queue.counts().dropped), (0, 3));
        let events = exporter.take_events();
        assert!(matches!(&events[..], [ExportEvent::Failing(text)] if text.contains("refused")), "{events:?}");
    }
}
