//! The log threads.
//!
//! Sinks that block together share a thread: the log files of one file system, one standard stream, one socket. So the
//! number of threads depends on the machine and not on the number of logs, and a disk, a pipe or a syslog receiver that
//! hangs delays no log elsewhere. The server's error log has its own thread, because it reports the losses of the
//! others. A write to a regular file cannot be made non-blocking: a disk that hangs blocks the logs on it, and a disk
//! that is full does not.
//!
//! A panic is a failure of one log: its lines count as lost, it is reopened after a pause, and the thread continues.

use super::config::{ErrorFormat, Level};
use super::error::{ErrorLog, LeveledLines, LogEvent, OverflowEvents};
use super::held_lines::{DueLines, HeldLines};
use super::line_writer::LineWriter;
use super::loss_counter::LossCounter;
use super::queue::{Command, LogEntry, Reserved, ThreadInbox};
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How long a counted event, or a held line, may wait beyond its time.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the server's error log reports the losses of all logs.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Every counted event is due this long after it arrived.
const COUNTING_TIME_MAX: Duration = Duration::from_secs(2);

/// A log on its thread.
pub(super) struct ThreadLog {
    writer: LineWriter,
    /// Lines of an access log that wait for those of other workers.
    held: HeldLines,
    /// `None` for an access log.
    events: Option<EventCounts>,
}

/// The events of an error log that wait to be written.
struct EventCounts {
    log: ErrorLog,
    overflow: Arc<OverflowEvents>,
    lines: LeveledLines,
}

impl ThreadLog {
    /// An access log that holds lines of at most `held_bytes_max`.
    pub(super) fn access(writer: LineWriter, held_bytes_max: usize) -> Self {
        Self { writer, held: HeldLines::new(held_bytes_max), events: None }
    }

    pub(super) fn error(writer: LineWriter, format: ErrorFormat, overflow: Arc<OverflowEvents>) -> Self {
        let events = EventCounts { log: ErrorLog::new(format), overflow, lines: LeveledLines::default() };
        Self { writer, held: HeldLines::new(0), events: Some(events) }
    }

    /// Takes the lines that were held for long enough, or all that are due until then.
    fn due_lines(&mut self, due: Instant, now: Instant) -> DueLines {
        if due > now { self.held.take_all() } else { self.held.take_due(now) }
    }

    fn write_lines(&mut self, level: Level, lines: &[u8], now: Instant) {
        let lost = self.writer.write(lines, level, now);
        self.writer.loss_counter().count_lost(lost);
    }

    /// Adds an event and those that found the queue full, and writes what is due at `due`.
    fn write_events(&mut self, event: Option<LogEvent>, due: Instant, now: Instant) {
        let Some(EventCounts { log, overflow, lines }) = &mut self.events else { return };
        event.into_iter().chain(overflow.take()).for_each(|event| log.add(event, now, lines));
        log.flush(due, lines);
        for (level, lines) in lines.take() {
            self.write_lines(level, &lines, now);
        }
    }

    /// Whether counted events or held lines wait to be written.
    fn is_waiting(&self) -> bool {
        !self.held.is_empty() || self.events.as_ref().is_some_and(|events| events.log.is_waiting())
    }

    /// Runs an operation that has `lines` lines in progress.
    fn catch_panic(&mut self, lines: u64, now: Instant, run: impl FnOnce(&mut Self)) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| run(self))) {
            self.writer.on_panic(panic_message(&*payload), lines, now);
        }
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "a panic without a message",
    }
}

/// A thread that writes logs.
pub(super) struct LogThread {
    inbox: ThreadInbox,
    logs: Vec<ThreadLog>,
    /// Logs with counted events or held lines, by index.
    waiting: BTreeSet<usize>,
    flushed_at: Instant,
    reporter: Option<LossReporter>,
}

/// Reports the losses of all logs in the first log of its thread.
struct LossReporter {
    loss_counters: Vec<Arc<LossCounter>>,
    format: ErrorFormat,
    reported_at: Instant,
}

impl LogThread {
    pub(super) fn new(inbox: ThreadInbox, logs: Vec<ThreadLog>) -> Self {
        Self { inbox, logs, waiting: BTreeSet::new(), flushed_at: Instant::now(), reporter: None }
    }

    /// Reports losses of these logs, in this format, in the first log of the thread.
    #[must_use]
    pub(super) fn with_losses_of(mut self, loss_counters: Vec<Arc<LossCounter>>, format: ErrorFormat) -> Self {
        self.reporter = Some(LossReporter { loss_counters, format, reported_at: Instant::now() });
        self
    }

    /// Writes until all senders are dropped.
    pub(super) fn run(mut self) {
        loop {
            let command = self.inbox.commands.recv_timeout(self.timeout());
            let now = Instant::now();
            if self.inbox.take_reopen_request() {
                self.logs.iter_mut().for_each(|log| log.catch_panic(0, now, |log| log.writer.reopen(now)));
            }
            match command {
                Ok(Command::Write { log, entry, reserved }) => self.write((log, reserved), entry, now),
                Ok(Command::Wake) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.finish(now),
            }
            if now >= self.flushed_at + FLUSH_INTERVAL {
                self.flushed_at = now;
                for log in std::mem::take(&mut self.waiting) {
                    self.flush(log, now, now);
                }
            }
            self.report_losses(now, REPORT_INTERVAL);
        }
    }

    fn timeout(&self) -> Duration {
        match (&self.reporter, self.waiting.is_empty()) {
            (_, false) => FLUSH_INTERVAL,
            (Some(_), true) => REPORT_INTERVAL,
            (None, true) => Duration::MAX,
        }
    }

    fn write(&mut self, (index, reserved): (usize, Reserved), entry: LogEntry, now: Instant) {
        let log = &mut self.logs[index];
        match entry {
            LogEntry::Lines(batch) => {
                log.held.add(batch, reserved);
                if log.held.is_full() {
                    self.flush(index, now, now);
                    return;
                }
            }
            LogEntry::Event(event) => log.catch_panic(1, now, |log| log.write_events(Some(event), now, now)),
        }
        if log.is_waiting() {
            self.waiting.insert(index);
        }
    }

    /// Writes the counted events or the held lines of a log that are due at `due`.
    fn flush(&mut self, index: usize, due: Instant, now: Instant) {
        let log = &mut self.logs[index];
        if log.events.is_none() {
            let DueLines { text, count } = log.due_lines(due, now);
            if count > 0 {
                log.catch_panic(count, now, |log| log.write_lines(Level::Info, &text, now));
            }
        } else {
            // The lost group has at least one line.
            log.catch_panic(1, now, |log| log.write_events(None, due, now));
        }
        if log.is_waiting() {
            self.waiting.insert(index);
        }
    }

    /// Writes everything that waits.
    fn finish(mut self, now: Instant) {
        for log in 0..self.logs.len() {
            self.flush(log, now + COUNTING_TIME_MAX, now);
        }
        self.report_losses(now, Duration::ZERO);
    }

    fn report_losses(&mut self, now: Instant, interval: Duration) {
        let Some(reporter) = &mut self.reporter else { return };
        if now.saturating_duration_since(reporter.reported_at) >= interval {
            reporter.reported_at = now;
            self.logs[0].catch_panic(0, now, |log| reporter.report(&mut log.writer, now));
        }
    }
}

impl LossReporter {
    /// Reports losses and pending events of the logs. Waits while this log cannot be written itself.
    fn report(&self, writer: &mut LineWriter, now: Instant) {
        let mut lines = LeveledLines::default();
        for loss_counter in &self.loss_counters {
            if !writer.is_ready(now) {
                return;
            }
            if let Some(loss) = loss_counter.loss() {
                lines.push(&loss, self.format);
                let lost = lines.take().iter().map(|(level, bytes)| writer.write(bytes, *level, now)).sum();
                // The loss stays counted, and the next report includes it.
                writer.uncount(lost);
                if lost == 0 {
                    loss_counter.acknowledge(loss.count);
                }
            }
            while writer.is_ready(now) {
                let Some(event) = loss_counter.next_event() else { break };
                lines.push(&event, self.format);
                for (level, bytes) in lines.take() {
                    let lost = writer.write(&bytes, level, now);
                    writer.loss_counter().count_lost(lost);
                }
            }
        }
    }
}
