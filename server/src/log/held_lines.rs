//! Lines of an access log in the order in which their responses were complete, across workers.
//!
//! A worker sends its lines four times a second, or earlier if they are many. So lines are held until every worker has
//! sent those that are as old, and then merged. A worker that is late by more than that has its lines written late.

use super::queue::Reserved;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// How long a line is held: the interval of the workers, and a little for the sending itself.
const HOLD_TIME: Duration = Duration::from_millis(350);

/// The start of the clock of lines.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the nanoseconds from the start of the clock to a time.
pub(super) fn line_time(at: Instant) -> u64 {
    u64::try_from(at.saturating_duration_since(*START).as_nanos()).unwrap_or(u64::MAX)
}

/// Lines of one worker, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct LineBatch {
    pub(super) text: Vec<u8>,
    ends: Vec<LineEnd>,
}

/// The end of a line, and when its response was complete.
#[derive(Clone, Copy, Debug)]
struct LineEnd {
    at: u64,
    end: usize,
}

impl LineBatch {
    /// Returns an empty batch with memory for as much as this one has, and a little more.
    pub(super) fn like(&self) -> Self {
        let more = |len: usize| len + len / 4;
        Self { text: Vec::with_capacity(more(self.text.len())), ends: Vec::with_capacity(more(self.ends.len())) }
    }

    /// Ends a line, whose response was complete at this time.
    pub(super) fn end_line(&mut self, at: u64) {
        // Responses of one worker are reported in order.
        let at = self.ends.last().map_or(at, |last| last.at.max(at));
        self.ends.push(LineEnd { at, end: self.text.len() });
    }

    /// Returns the number of lines.
    pub(super) fn count(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Returns the bytes of memory that it uses.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<LineEnd>()
    }
}

/// A batch, of which some lines may have been taken.
struct HeldBatch {
    batch: LineBatch,
    taken: usize,
    /// The room of its queue, free when all of its lines were taken.
    reserved: Reserved,
}

impl HeldBatch {
    fn begin_of(&self, line: usize) -> usize {
        line.checked_sub(1).map_or(0, |before| self.batch.ends[before].end)
    }
}

/// Lines that wait to be written.
pub(super) struct HeldLines {
    batches: Vec<HeldBatch>,
    bytes: usize,
    /// Beyond it, all lines are written at once.
    bytes_max: usize,
}

impl HeldLines {
    /// Creates an empty list that holds at most `bytes_max`, so that the queue has room for more.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { batches: Vec::new(), bytes: 0, bytes_max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Adds lines of a worker.
    pub(super) fn add(&mut self, batch: LineBatch, reserved: Reserved) {
        self.bytes += batch.bytes();
        self.batches.push(HeldBatch { batch, taken: 0, reserved });
    }

    /// Takes the lines that were held for long enough, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<u8> {
        if self.bytes > self.bytes_max {
            return self.take_all();
        }
        self.take(line_time(now).saturating_sub(u64::try_from(HOLD_TIME.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Takes all lines, in order.
    pub(super) fn take_all(&mut self) -> Vec<u8> {
        self.take(u64::MAX)
    }

    fn take(&mut self, until: u64) -> Vec<u8> {
        let mut due = Vec::new();
        for (number, held) in self.batches.iter_mut().enumerate() {
            let count = held.batch.ends[held.taken..].partition_point(|line| line.at <= until);
            due.extend((held.taken..held.taken + count).map(|line| (held.batch.ends[line].at, number, line)));
            held.taken += count;
        }
        // The sort is stable, so lines of one worker stay in order.
        due.sort_by_key(|(at, ..)| *at);
        let mut lines = Vec::new();
        for (_, number, line) in due {
            let held = &self.batches[number];
            lines.extend_from_slice(&held.batch.text[held.begin_of(line)..held.batch.ends[line].end]);
        }
        for HeldBatch { batch, reserved, .. } in
            self.batches.extract_if(.., |held| held.taken == held.batch.ends.len())
        {
            self.bytes -= batch.bytes();
            drop(reserved);
        }
        lines
    }
}
