//! The log threads. A panic is caught and logged, and the thread continues; the lines it held count as lost.

use super::config::Level;
use super::error::{ErrorLog, LeveledLines, LogEvent, OverflowEvents};
use super::line_writer::LineWriter;
use super::loss_counter::LossCounter;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

/// Pause of a thread after a panic.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// How long a counted event may wait beyond the end of its second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// Interval at which the error log checks for losses of the other logs.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval at which one log reports losses.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);

/// A command to a log thread.
#[derive(Debug)]
pub(super) enum WriterCommand<T> {
    /// Write this.
    Write(T),
    /// Check for reopen requests and losses.
    Wake,
}

/// Whole lines of an access log.
#[derive(Debug)]
pub(super) struct Batch {
    /// Index among the logs of the thread.
    pub(super) index: usize,
    pub(super) lines: Vec<u8>,
    pub(super) count: u64,
}

/// How often a reopen was requested, and how often this thread has done it.
#[derive(Debug)]
pub(super) struct ReopenRequests {
    requested: Arc<AtomicU64>,
    done: u64,
}

impl ReopenRequests {
    pub(super) fn new(requested: Arc<AtomicU64>) -> Self {
        let done = requested.load(Ordering::Relaxed);
        Self { requested, done }
    }

    /// Whether a reopen is pending.
    fn is_due(&mut self) -> bool {
        let requested = self.requested.load(Ordering::Relaxed);
        std::mem::replace(&mut self.done, requested) != requested
    }
}

/// The loop of a log thread, until all senders are dropped.
pub(super) trait Writer {
    fn run(&mut self);

    /// Restores a consistent state after a panic, and logs it.
    fn recover(&mut self, panic: &str);
}

/// Runs a writer to its end and restarts it after panics.
pub(super) fn run_to_end(mut writer: impl Writer) {
    while let Err(payload) = catch_unwind(AssertUnwindSafe(|| writer.run())) {
        let command = panic_message(&*payload);
        // Recovering may panic as well.
        let _ = catch_unwind(AssertUnwindSafe(|| writer.recover(command)));
        thread::sleep(RESTART_PAUSE);
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}

/// Writes access logs.
pub(super) struct AccessWriter {
    pub(super) batches: Receiver<WriterCommand<Batch>>,
    pub(super) writers: Vec<LineWriter>,
    pub(super) reopen_requests: ReopenRequests,
    /// The batch that is being written: log and number of lines.
    pub(super) in_progress: Option<(usize, u64)>,
    /// Keeps the error log open until this thread has ended.
    pub(super) errors: SyncSender<WriterCommand<LogEvent>>,
}

impl Writer for AccessWriter {
    fn run(&mut self) {
        while let Ok(command) = self.batches.recv() {
            let now = Instant::now();
            if self.reopen_requests.is_due() {
                self.writers.iter_mut().for_each(|writer| writer.reopen(now));
            }
            if let WriterCommand::Write(Batch { index, lines, count }) = command {
                self.in_progress = Some((index, count));
                let writer = &mut self.writers[index];
                let lost = writer.write(&lines, Level::Info, now);
                self.in_progress = None;
                if lost > 0 {
                    writer.loss_counter().count_lost(lost);
                    // Wakes the error log, so that the loss is reported within one second. A thread with a full queue
                    // is awake.
                    let _ = self.errors.try_send(WriterCommand::Wake);
                }
            }
        }
    }

    fn recover(&mut self, panic: &str) {
        let (index, count) = self.in_progress.take().unwrap_or_default();
        let writer = &mut self.writers[index];
        writer.loss_counter().count_lost(count);
        log_restart(writer.loss_counter(), panic);
        writer.reopen(Instant::now());
    }
}

fn log_restart(loss_counter: &LossCounter, panic: &str) {
    let text = format!("what writes {} has panicked and goes on: {panic}", loss_counter.name());
    loss_counter.set_cause("a panic".to_owned());
    loss_counter.recovered();
    loss_counter.add_event(Level::Error, "LogWriterRestarted", text);
}

/// Writes an error log, and reports the losses of the other logs there.
pub(super) struct ErrorWriter {
    pub(super) events: Receiver<WriterCommand<LogEvent>>,
    pub(super) overflow: Arc<OverflowEvents>,
    pub(super) log: ErrorLog,
    pub(super) writer: LineWriter,
    pub(super) reopen_requests: ReopenRequests,
    /// The loss counter of each log, including this one, and the time of its last report.
    pub(super) loss_counters: Vec<(Arc<LossCounter>, Option<Instant>)>,
    pub(super) lines: LeveledLines,
}

impl Writer for ErrorWriter {
    fn run(&mut self) {
        loop {
            let interval = if self.log.is_waiting() { FLUSH_INTERVAL } else { RECEIVE_TIMEOUT };
            let command = self.events.recv_timeout(interval);
            let now = Instant::now();
            if self.reopen_requests.is_due() {
                self.writer.reopen(now);
            }
            let is_end = matches!(command, Err(RecvTimeoutError::Disconnected));
            if let Ok(WriterCommand::Write(event)) = command {
                self.log.add(event, now, &mut self.lines);
            }
            self.overflow.take().for_each(|event| self.log.add(event, now, &mut self.lines));
            // At the end, every second counts as over.
            self.log.flush(if is_end { now + Duration::from_secs(2) } else { now }, &mut self.lines);
            self.write(now);
            self.log_losses(now, if is_end { Duration::ZERO } else { LOSS_INTERVAL });
            if is_end {
                return;
            }
        }
    }

    fn recover(&mut self, panic: &str) {
        // The lost group had at least one line.
        self.writer.loss_counter().count_lost(1);
        log_restart(self.writer.loss_counter(), panic);
        self.writer.reopen(Instant::now());
    }
}

impl ErrorWriter {
    fn write(&mut self, now: Instant) {
        for (level, lines) in self.lines.take() {
            let lost = self.writer.write(&lines, level, now);
            self.writer.loss_counter().count_lost(lost);
        }
    }

    /// Reports losses and pending events of the logs, each at most once per `interval`. Waits while this log cannot
    /// be written itself.
    fn log_losses(&mut self, now: Instant, interval: Duration) {
        for (loss_counter, reported_at) in &mut self.loss_counters {
            let is_early = reported_at.is_some_and(|reported_at| now.saturating_duration_since(reported_at) < interval);
            if is_early || !self.writer.is_ready(now) {
                continue;
            }
            let mut lines = LeveledLines::default();
            let loss = loss_counter.loss();
            loss.iter().for_each(|loss| lines.push(loss, self.log.format()));
            let lost = lines.take().iter().map(|(level, bytes)| self.writer.write(bytes, *level, now)).sum::<u64>();
            self.writer.uncount(lost);
            if let Some(loss) = loss.filter(|_| lost == 0) {
                *reported_at = Some(now);
                loss_counter.acknowledge(loss.count);
            }
            while self.writer.is_ready(now) {
                let Some(note) = loss_counter.next_event() else { break };
                lines.push(&note, self.log.format());
                for (level, bytes) in lines.take() {
                    let lost = self.writer.write(&bytes, level, now);
                    self.writer.loss_counter().count_lost(lost);
                }
            }
        }
    }
}
