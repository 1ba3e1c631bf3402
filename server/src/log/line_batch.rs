//! Lines of one worker, with the times at which their responses were complete.

use std::sync::LazyLock;
use std::time::Instant;

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

    /// Returns when the response of a line was complete.
    pub(super) fn time_of(&self, line: usize) -> u64 {
        self.ends[line].at
    }

    /// Returns the end of a line in the text.
    pub(super) fn end_of(&self, line: usize) -> usize {
        self.ends[line].end
    }

    /// Returns how many lines from one on are not later than a time.
    pub(super) fn count_until(&self, first: usize, until: u64) -> usize {
        self.ends[first..].partition_point(|line| line.at <= until)
    }

    /// Returns the bytes of its lines, and of what is known of them.
    pub(super) fn len(&self) -> usize {
        self.text.len() + self.ends.len() * size_of::<LineEnd>()
    }

    /// Returns the bytes of memory that it uses.
    pub(super) fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<LineEnd>()
    }
}
