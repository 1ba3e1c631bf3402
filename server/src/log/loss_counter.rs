//! Loss accounting of one log: workers and writers record losses here, and the error log reports them.
//!
//! Invariant: a lost line is counted here until a line of the error log has reported it.

use super::config::Level;
use super::error::LogEvent;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pending events of one log; the oldest are dropped first.
const EVENTS_MAX: usize = 16;

/// The losses and pending events of one log.
#[derive(Debug)]
pub(super) struct LossCounter {
    name: String,
    /// Lost lines that are not reported yet.
    unreported: AtomicU64,
    /// All lines lost since the log was opened.
    lost_total: AtomicU64,
    report: Mutex<PendingReport>,
}

#[derive(Debug, Default)]
struct PendingReport {
    /// Cause of the latest loss; empty if the queue was full.
    cause: String,
    /// Whether the failure is over and only the report is pending.
    is_over: bool,
    events: VecDeque<LogEvent>,
}

impl LossCounter {
    /// Creates the counter of a log with a name such as "the access log logs/access.log".
    pub(super) fn new(name: String) -> Self {
        Self { name, unreported: AtomicU64::new(0), lost_total: AtomicU64::new(0), report: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Counts lost lines. Never waits.
    pub(super) fn count_lost(&self, lines: u64) {
        self.unreported.fetch_add(lines, Ordering::Relaxed);
        self.lost_total.fetch_add(lines, Ordering::Relaxed);
    }

    /// Returns all lines lost since the log was opened, reported or not.
    pub(super) fn lost_total(&self) -> u64 {
        self.lost_total.load(Ordering::Relaxed)
    }

    /// Sets the cause of further losses. For writers only, because it takes a lock.
    pub(super) fn set_cause(&self, why: String) {
        let mut report = self.report();
        (report.cause, report.is_over) = (why, false);
    }

    /// Records that the failure is over.
    pub(super) fn recovered(&self) {
        let mut report = self.report();
        report.is_over = true;
        if self.unreported.load(Ordering::Relaxed) == 0 {
            report.cause.clear();
        }
    }

    /// Adds an event for the error log. For writers only, because it takes a lock.
    pub(super) fn add_event(&self, level: Level, name: &'static str, text: String) {
        let mut report = self.report();
        if report.events.len() == EVENTS_MAX {
            report.events.pop_front();
        }
        report.events.push_back(LogEvent::from_program(level, name, text));
    }

    /// Takes the next pending event.
    pub(super) fn next_event(&self) -> Option<LogEvent> {
        self.report().events.pop_front()
    }

    /// Returns an event with the lost lines that are not reported yet.
    pub(super) fn loss(&self) -> Option<LogEvent> {
        let count = self.unreported.load(Ordering::Relaxed);
        if count == 0 {
            return None;
        }
        let why = match self.report().cause.as_str() {
            "" => "they arrived faster than they were written".to_owned(),
            why => why.to_owned(),
        };
        let text = format!("lines of {} were lost: {why}", self.name);
        Some(LogEvent { count, ..LogEvent::from_program(Level::Error, "LogLinesLost", text) })
    }

    /// Subtracts `count` lost lines that the error log has reported.
    pub(super) fn acknowledge(&self, count: u64) {
        self.unreported.fetch_sub(count, Ordering::Relaxed);
        let mut report = self.report();
        if report.is_over {
            report.cause.clear();
        }
    }

    /// A panic while the lock is held leaves the data consistent.
    fn report(&self) -> MutexGuard<'_, PendingReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
