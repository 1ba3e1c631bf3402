//! A sink that fails on request, and which lines survive.

use crate::log::config::Level;
use crate::log::line_writer::LineWriter;
use crate::log::loss_counter::LossCounter;
use crate::log::sink::{Device, LogSink, ReopenOutcome};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The result of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Accepts this many bytes.
    Take(usize),
    Fail(io::ErrorKind),
    Panic,
}

/// The bytes it received, and its next results; without any, it accepts all.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) text: Vec<u8>,
    pub(super) acts: VecDeque<Act>,
    /// The result of the next check of the path.
    pub(super) is_moved: bool,
    pub(super) reopened: usize,
}

#[derive(Clone, Default)]
pub(super) struct Faulty(Arc<Mutex<State>>);

impl Faulty {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn writer(&self) -> LineWriter {
        LineWriter::new(Box::new(self.clone()), Arc::new(LossCounter::new("the log".to_owned())))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.state().text.clone()).unwrap()
    }
}

impl LogSink for Faulty {
    fn device(&self) -> Device {
        Device::Nothing
    }

    fn write(&mut self, lines: &[u8], _level: Level) -> io::Result<usize> {
        let mut state = self.state();
        let count = match state.acts.pop_front() {
            None => lines.len(),
            Some(Act::Take(count)) => count.min(lines.len()),
            Some(Act::Fail(kind)) => return Err(kind.into()),
            Some(Act::Panic) => panic!("as it was told to"),
        };
        state.text.extend_from_slice(&lines[..count]);
        Ok(count)
    }

    fn reopen_if_moved(&mut self) -> io::Result<ReopenOutcome> {
        let is_moved = std::mem::take(&mut self.state().is_moved);
        Ok(if is_moved { ReopenOutcome::Reopened } else { ReopenOutcome::Unchanged })
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.state().reopened += 1;
        Ok(())
    }
}

const FULL: Act = Act::Fail(io::ErrorKind::StorageFull);

#[test]
fn a_line_that_was_begun_is_finished_before_the_next() {
    let (faulty, now) = (Faulty::default(), Instant::now());
    let mut writer = faulty.writer();
    faulty.state().acts.extend([Act::Take(6), Act::Take(2), FULL]);
    assert_eq!(writer.write(b"first\nsecond\nthird\n", Level::Info, now), 1, "of the second a part is there");
    assert_eq!(faulty.text(), "first\nse");
    // The writer waits before it retries, and lines meanwhile are lost.
    assert_eq!(writer.write(b"fourth\nfifth\n", Level::Info, now), 2);
    assert!(!writer.is_ready(now));
    let later = now + Duration::from_secs(10);
    faulty.state().acts.extend([Act::Take(1), Act::Fail(io::ErrorKind::Interrupted)]);
    assert_eq!(writer.write(b"sixth\n", Level::Info, later), 0);
    assert_eq!(faulty.text(), "first\nsecond\nsixth\n");
    let note = writer.loss_counter().next_event().unwrap();
    assert_eq!((note.level, note.name), (Level::Warn, "LogRecovered"));
    assert_eq!(note.text, "the log is written again after 10.0s; lost: 3 lines");
}

#[test]
fn a_line_that_was_begun_in_a_file_that_was_moved_away_is_lost() {
    let (faulty, now) = (Faulty::default(), Instant::now());
    let mut writer = faulty.writer();
    faulty.state().acts.extend([Act::Take(2), FULL]);
    assert_eq!(writer.write(b"first\nsecond\n", Level::Info, now), 1);
    faulty.state().is_moved = true;
    assert_eq!(writer.write(b"third\n", Level::Info, now + Duration::from_secs(1)), 1, "the first stays in two");
    assert_eq!(faulty.text(), "fithird\n");
}

#[test]
fn pauses_grow_and_end() {
    let (faulty, mut now) = (Faulty::default(), Instant::now());
    let mut writer = faulty.writer();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        faulty.state().acts.push_back(FULL);
        assert_eq!(writer.write(b"line\n", Level::Info, now), 1);
        let failed = now;
        while !writer.is_ready(now) {
            now += Duration::from_millis(10);
        }
        pauses.push((now - failed).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000, 2000]);
}

/// A reproducible random number generator (xorshift).
fn numbers() -> impl FnMut(u64) -> usize {
    let mut state = 0x1234_5678_9abc_def1_u64;
    move |most| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % most) as usize
    }
}

#[test]
fn whatever_fails_each_line_is_there_whole_or_is_counted() {
    let mut number = numbers();
    for _ in 0..300 {
        let (faulty, mut now) = (Faulty::default(), Instant::now());
        let mut writer = faulty.writer();
        let (mut given, mut lost) = (0, 0);
        for _ in 0..30 {
            let acts = (0..number(4)).map(|_| match number(3) {
                0 => FULL,
                _ => Act::Take(1 + number(20)),
            });
            let acts: Vec<Act> = acts.collect();
            faulty.state().acts.extend(acts);
            let mut batch = String::new();
            for _ in 0..=number(4) {
                batch.push_str(&format!("{given}-{}\n", "x".repeat(number(10))));
                given += 1;
            }
            lost += writer.write(batch.as_bytes(), Level::Info, now);
            now += Duration::from_millis(number(1000) as u64);
        }
        faulty.state().acts.clear();
        lost += writer.write(b"last\n", Level::Info, now + Duration::from_secs(10));
        let text = faulty.text();
        let lines: Vec<&str> = text.strip_suffix('\n').unwrap().split('\n').collect();
        assert_eq!(lines.last(), Some(&"last"));
        let there: Vec<u64> =
            lines[..lines.len() - 1].iter().map(|line| line.split_once('-').unwrap().0.parse().unwrap()).collect();
        assert!(there.is_sorted_by(|a, b| a < b), "{there:?}");
        assert!(
            lines[..lines.len() - 1]
                .iter()
                .all(|line| line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_end_matches('x') == "-")
        );
        assert_eq!(there.len() as u64 + lost, given);
    }
}
