//! Lines of an access log in the order in which their responses were complete, across workers.
//!
//! A worker sends its lines four times a second, or earlier if they are many. So lines are held until every worker has
//! sent those that are as old, and then merged. The lines of a worker that is later than that are written late.

use super::line_batch::{LineBatch, line_time};
use super::queue::Reserved;
use std::time::{Duration, Instant};

/// How long a line is held: the interval of the workers, and a little for the sending itself.
const HOLD_TIME: Duration = Duration::from_millis(350);

/// A batch, of which some lines may have been taken.
struct HeldBatch {
    batch: LineBatch,
    taken: usize,
    /// The room of its queue, free when all of its lines were taken.
    reserved: Reserved,
}

impl HeldBatch {
    fn begin_of(&self, line: usize) -> usize {
        line.checked_sub(1).map_or(0, |before| self.batch.end_of(before))
    }
}

/// Lines that are due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DueLines {
    pub(super) text: Vec<u8>,
    /// How many they are.
    pub(super) count: u64,
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

    /// Whether the lines have to be written at once.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// Adds lines of a worker.
    pub(super) fn add(&mut self, batch: LineBatch, reserved: Reserved) {
        self.bytes += batch.bytes();
        self.batches.push(HeldBatch { batch, taken: 0, reserved });
    }

    /// Takes the lines that were held for long enough, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> DueLines {
        if self.is_full() {
            return self.take_all();
        }
        self.take(line_time(now).saturating_sub(u64::try_from(HOLD_TIME.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Takes all lines, in order.
    pub(super) fn take_all(&mut self) -> DueLines {
        self.take(u64::MAX)
    }

    fn take(&mut self, until: u64) -> DueLines {
        let mut due = Vec::new();
        for (number, held) in self.batches.iter_mut().enumerate() {
            let count = held.batch.count_until(held.taken, until);
            due.extend((held.taken..held.taken + count).map(|line| (held.batch.time_of(line), number, line)));
            held.taken += count;
        }
        // The sort is stable, so lines of one worker stay in order.
        due.sort_by_key(|(at, ..)| *at);
        let mut lines = DueLines { text: Vec::new(), count: due.len() as u64 };
        let mut due = due.into_iter().peekable();
        while let Some((_, number, first)) = due.next() {
            // Lines that are neighbours in their batch are copied at once: all, if only one worker has any.
            let mut last = first;
            while due.next_if(|(_, next, line)| (*next, *line) == (number, last + 1)).is_some() {
                last += 1;
            }
            let held = &self.batches[number];
            lines.text.extend_from_slice(&held.batch.text[held.begin_of(first)..held.batch.end_of(last)]);
        }
        for HeldBatch { batch, reserved, .. } in
            self.batches.extract_if(.., |held| held.taken as u64 == held.batch.count())
        {
            self.bytes -= batch.bytes();
            drop(reserved);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::loss_counter::LossCounter;
    use crate::log::queue::{Command, LogEntry, thread_channel};
    use std::sync::Arc;

    /// Sends batches of lines with these times through a queue, and returns them with their room.
    fn held(batches: &[&[u64]], bytes_max: usize) -> HeldLines {
        let (handle, inbox) = thread_channel();
        let queue = handle.queue(0, 1 << 20, Arc::new(LossCounter::new("the log".to_owned())));
        let mut held = HeldLines::new(bytes_max);
        for times in batches {
            let mut batch = LineBatch::default();
            for at in *times {
                batch.text.extend_from_slice(format!("{at}\n").as_bytes());
                batch.end_line(*at);
            }
            assert!(queue.send(LogEntry::Lines(batch)).is_none());
            let Ok(Command::Write { entry: LogEntry::Lines(batch), reserved, .. }) = inbox.commands.recv() else {
                panic!("the batch was sent");
            };
            held.add(batch, reserved);
        }
        held
    }

    fn lines(text: &str) -> DueLines {
        DueLines { text: text.as_bytes().to_vec(), count: text.lines().count() as u64 }
    }

    #[test]
    fn lines_of_several_workers_are_merged_when_all_of_that_time_are_there() {
        let mut held = held(&[&[1, 4, 9], &[2, 3, 8], &[5]], 1 << 20);
        assert_eq!(held.take(4), lines("1\n2\n3\n4\n"));
        assert!(!held.is_empty());
        assert_eq!(held.take(4), lines(""));
        assert_eq!(held.take_all(), lines("5\n8\n9\n"));
        assert_eq!((held.is_empty(), held.bytes), (true, 0));
    }

    #[test]
    fn lines_are_held_for_a_time_and_up_to_a_size() {
        let now = Instant::now() + HOLD_TIME;
        let recent = line_time(now) - 1;
        assert_eq!(held(&[&[recent]], 1 << 20).take_due(now), lines(""));
        assert_eq!(held(&[&[recent]], 1 << 20).take_due(now + HOLD_TIME), lines(&format!("{recent}\n")));
        assert_eq!(held(&[&[recent]], 0).take_due(now), lines(&format!("{recent}\n")));
    }
}
