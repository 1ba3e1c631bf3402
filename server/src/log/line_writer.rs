//! Writes whole lines to a sink that may fail.
//!
//! On a failure, lines are dropped and counted, and the writer retries after a growing pause. Invariant: a line that
//! was begun is finished before the next one starts, so a failure within a line breaks neither.

use super::config::Level;
use super::loss_counter::LossCounter;
use super::sink::{LogSink, ReopenOutcome};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first and the longest pause between retries.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Interval at which the writer checks that the path still names the open file.
const PATH_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The writer of one log.
pub(super) struct LineWriter {
    sink: Box<dyn LogSink>,
    loss_counter: Arc<LossCounter>,
    /// The unwritten end of a line.
    partial_line: Vec<u8>,
    backoff: Option<Backoff>,
    path_checked_at: Instant,
    /// Whether a panic may have left the sink inconsistent.
    needs_reopen: bool,
}

/// The time during which the sink fails.
struct Backoff {
    since: Instant,
    retry: Instant,
    pause: Duration,
    lost: u64,
}

impl LineWriter {
    pub(super) fn new(sink: Box<dyn LogSink>, loss_counter: Arc<LossCounter>) -> Self {
        let path_checked_at = Instant::now();
        Self { sink, loss_counter, partial_line: Vec::new(), backoff: None, path_checked_at, needs_reopen: false }
    }

    pub(super) fn loss_counter(&self) -> &Arc<LossCounter> {
        &self.loss_counter
    }

    /// Writes lines and returns how many were lost.
    pub(super) fn write(&mut self, lines: &[u8], level: Level, now: Instant) -> u64 {
        if let Some(backoff) = &mut self.backoff
            && now < backoff.retry
        {
            let lost = count_lines(lines);
            backoff.lost += lost;
            return lost;
        }
        let mut written = 0;
        let mut lost = 0;
        let outcome = self.try_write(lines, level, now, &mut WriteProgress { written: &mut written, lost: &mut lost });
        match outcome {
            Ok(()) => self.on_success(now),
            Err(error) => {
                lost += self.store_partial_line(lines, written);
                self.on_error(&error, lost, now);
            }
        }
        lost
    }

    /// Subtracts lost lines that are counted elsewhere and will be written again.
    pub(super) fn uncount(&mut self, lost: u64) {
        if let Some(backoff) = &mut self.backoff {
            backoff.lost = backoff.lost.saturating_sub(lost);
        }
    }

    /// Whether the next write is attempted.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.backoff.as_ref().is_none_or(|backoff| now >= backoff.retry)
    }

    /// Reopens the sink, for example after its file was moved.
    pub(super) fn reopen(&mut self, now: Instant) {
        let lost = u64::from(!self.partial_line.is_empty());
        self.partial_line.clear();
        self.loss_counter.count_lost(lost);
        self.path_checked_at = now;
        if let Err(error) = self.sink.reopen() {
            self.on_error(&error, lost, now);
        }
    }

    /// Treats a panic as a failure of the sink. `lost` lines were in progress.
    pub(super) fn on_panic(&mut self, panic: &str, lost: u64, now: Instant) {
        self.needs_reopen = true;
        self.loss_counter.count_lost(lost);
        self.on_error(&io::Error::other("a panic"), lost, now);
        let text = format!("the writer of {} panicked and was restarted: {panic}", self.loss_counter.name());
        self.loss_counter.add_event(Level::Error, "LogWriterRestarted", text);
    }

    fn try_write(&mut self, lines: &[u8], level: Level, now: Instant, done: &mut WriteProgress<'_>) -> io::Result<()> {
        if self.needs_reopen {
            *done.lost += u64::from(!self.partial_line.is_empty());
            self.partial_line.clear();
            self.sink.reopen()?;
            self.needs_reopen = false;
        }
        if self.backoff.is_some() || now.saturating_duration_since(self.path_checked_at) >= PATH_CHECK_INTERVAL {
            self.path_checked_at = now;
            if self.sink.reopen_if_moved()? == ReopenOutcome::Reopened && !self.partial_line.is_empty() {
                // The line began in another file and stays split.
                self.partial_line.clear();
                *done.lost += 1;
            }
        }
        while !self.partial_line.is_empty() {
            let count = self.write_some(&self.partial_line.clone(), level)?;
            self.partial_line.drain(..count);
        }
        self.sink.rotate_if_needed(lines.len())?;
        while *done.written < lines.len() {
            *done.written += self.write_some(&lines[*done.written..], level)?;
        }
        Ok(())
    }

    fn write_some(&mut self, bytes: &[u8], level: Level) -> io::Result<usize> {
        loop {
            match self.sink.write(bytes, level) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome.map(|count| count.min(bytes.len())),
            }
        }
    }

    /// Stores the unwritten end of a line, and returns the number of other unwritten lines.
    fn store_partial_line(&mut self, lines: &[u8], written: usize) -> u64 {
        let begins_line = written == 0 || lines[written - 1] == b'\n';
        let end = match lines[written..].iter().position(|&b| b == b'\n') {
            Some(length) if !begins_line => written + length + 1,
            _ => written,
        };
        self.partial_line.extend_from_slice(&lines[written..end]);
        count_lines(&lines[end..])
    }

    fn on_error(&mut self, error: &io::Error, lost: u64, now: Instant) {
        self.loss_counter.set_cause(error.to_string());
        let backoff = self.backoff.get_or_insert(Backoff { since: now, retry: now, pause: BACKOFF_MIN, lost: 0 });
        backoff.lost += lost;
        backoff.retry = now + backoff.pause;
        backoff.pause = (backoff.pause * 2).min(BACKOFF_MAX);
    }

    fn on_success(&mut self, now: Instant) {
        let Some(backoff) = self.backoff.take() else { return };
        self.loss_counter.recovered();
        if backoff.lost > 0 {
            let time = now.saturating_duration_since(backoff.since).as_secs_f32();
            let text =
                format!("{} is written again after {time:.1}s; lost: {} lines", self.loss_counter.name(), backoff.lost);
            self.loss_counter.add_event(Level::Warn, "LogRecovered", text);
        }
    }
}

/// How much of a write succeeded.
struct WriteProgress<'a> {
    written: &'a mut usize,
    lost: &'a mut u64,
}

/// Counts lines by their line ends.
fn count_lines(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&b| b == b'\n').count() as u64
}
