//! How one log fares: what workers and writers leave here, the error log says.
//!
//! Invariant: a line that is lost is counted here until a line of the error log has said
//! so; a count is never dropped on the way.

use super::error::Event;
use super::plan::Level;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Events of one log that may wait to be said; the oldest go first.
const NOTES_MAX: usize = 16;

/// One log's.
#[derive(Debug)]
pub(super) struct Health {
    name: String,
    /// Lines that were lost and have yet to be said.
    lost: AtomicU64,
    /// All that were ever lost.
    lost_in_all: AtomicU64,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Why lines were lost last; empty when it was for want of time.
    why: String,
    /// Whether that is over, and only has to be said yet.
    is_over: bool,
    events: VecDeque<Event>,
}

impl Health {
    /// That of a log with this name, as in "the access log logs/access.log".
    pub(super) fn new(name: String) -> Self {
        Self { name, lost: AtomicU64::new(0), lost_in_all: AtomicU64::new(0), notes: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Counts lines that are lost. Never waits.
    pub(super) fn lose(&self, lines: u64) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
        self.lost_in_all.fetch_add(lines, Ordering::Relaxed);
    }

    /// How many lines were lost since the log was opened, said or not.
    pub(super) fn lost_in_all(&self) -> u64 {
        self.lost_in_all.load(Ordering::Relaxed)
    }

    /// Says why lines are lost from now on. For writers, never for workers.
    pub(super) fn because(&self, why: String) {
        let mut notes = self.notes();
        (notes.why, notes.is_over) = (why, false);
    }

    /// Says that no more lines are lost for that reason.
    pub(super) fn recovered(&self) {
        let mut notes = self.notes();
        notes.is_over = true;
        if self.lost.load(Ordering::Relaxed) == 0 {
            notes.why.clear();
        }
    }

    /// Leaves something for the error log to say. For writers, never for workers.
    pub(super) fn note(&self, level: Level, name: &'static str, text: String) {
        let mut notes = self.notes();
        if notes.events.len() == NOTES_MAX {
            notes.events.pop_front();
        }
        notes.events.push_back(Event::of_program(level, name, text));
    }

    /// The next of what was left.
    pub(super) fn next_note(&self) -> Option<Event> {
        self.notes().events.pop_front()
    }

    /// How many lines were lost since that was said, as an event.
    pub(super) fn loss(&self) -> Option<Event> {
        let count = self.lost.load(Ordering::Relaxed);
        if count == 0 {
            return None;
        }
        let why = match self.notes().why.as_str() {
            "" => "they came faster than they were taken".to_owned(),
            why => why.to_owned(),
        };
        let text = format!("lines of {} were lost: {why}", self.name);
        Some(Event { count, ..Event::of_program(Level::Error, "LogLinesLost", text) })
    }

    /// That so many lost lines were said.
    pub(super) fn said(&self, count: u64) {
        self.lost.fetch_sub(count, Ordering::Relaxed);
        let mut notes = self.notes();
        if notes.is_over {
            notes.why.clear();
        }
    }

    /// Nothing that is done with the lock held can leave the notes in disorder.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
