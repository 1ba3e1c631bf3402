//! Writes whole lines to an outlet that may fail.
//!
//! When it fails, lines are dropped and counted, and it is tried again after a pause that
//! grows. Invariant: what was begun of a line is finished before another line is begun, so
//! a failure in the middle of one spoils neither.

use super::health::Health;
use super::outlet::{Opened, Outlet};
use super::plan::Level;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pauses between tries, from the first to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How often it is looked whether a path still names the open file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What writes one log.
pub(super) struct Pen {
    outlet: Box<dyn Outlet>,
    health: Arc<Health>,
    /// What is missing of a line that was begun.
    rest: Vec<u8>,
    trouble: Option<Trouble>,
    looked: Instant,
}

/// A time in which the outlet fails.
struct Trouble {
    since: Instant,
    retry: Instant,
    pause: Duration,
    lost: u64,
}

impl Pen {
    pub(super) fn new(outlet: Box<dyn Outlet>, health: Arc<Health>) -> Self {
        Self { outlet, health, rest: Vec::new(), trouble: None, looked: Instant::now() }
    }

    pub(super) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Writes lines; how many of them were lost.
    pub(super) fn write(&mut self, lines: &[u8], level: Level, now: Instant) -> u64 {
        if let Some(trouble) = &mut self.trouble
            && now < trouble.retry
        {
            let lost = count(lines);
            trouble.lost += lost;
            return lost;
        }
        let mut written = 0;
        let mut lost = 0;
        let outcome = self.try_write(lines, level, now, &mut Done { written: &mut written, lost: &mut lost });
        match outcome {
            Ok(()) => self.went_well(now),
            Err(error) => {
                lost += self.keep_rest(lines, written);
                self.went_wrong(&error, lost, now);
            }
        }
        lost
    }

    /// Says that lines that were lost are counted elsewhere and will be written again.
    pub(super) fn forgive(&mut self, lost: u64) {
        if let Some(trouble) = &mut self.trouble {
            trouble.lost = trouble.lost.saturating_sub(lost);
        }
    }

    /// Whether the next line has a chance.
    pub(super) fn may_write(&self, now: Instant) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| now >= trouble.retry)
    }

    /// Opens what it writes to anew, as after somebody has moved a file away.
    pub(super) fn reopen(&mut self, now: Instant) {
        let lost = u64::from(!self.rest.is_empty());
        self.rest.clear();
        self.health.lose(lost);
        self.looked = now;
        if let Err(error) = self.outlet.reopen() {
            self.went_wrong(&error, lost, now);
        }
    }

    fn try_write(&mut self, lines: &[u8], level: Level, now: Instant, done: &mut Done<'_>) -> io::Result<()> {
        if self.trouble.is_some() || now.saturating_duration_since(self.looked) >= LOOK_INTERVAL {
            self.looked = now;
            if self.outlet.look()? == Opened::Anew && !self.rest.is_empty() {
                // The line was begun elsewhere, and stays in two.
                self.rest.clear();
                *done.lost += 1;
            }
        }
        while !self.rest.is_empty() {
            let count = self.write_some(&self.rest.clone(), level)?;
            self.rest.drain(..count);
        }
        self.outlet.make_room(lines.len())?;
        while *done.written < lines.len() {
            *done.written += self.write_some(&lines[*done.written..], level)?;
        }
        Ok(())
    }

    fn write_some(&mut self, bytes: &[u8], level: Level) -> io::Result<usize> {
        loop {
            match self.outlet.write(bytes, level) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome.map(|count| count.min(bytes.len())),
            }
        }
    }

    /// Keeps what is missing of a line that was begun; how many others were not written.
    fn keep_rest(&mut self, lines: &[u8], written: usize) -> u64 {
        let begins_line = written == 0 || lines[written - 1] == b'\n';
        let end = match lines[written..].iter().position(|&b| b == b'\n') {
            Some(length) if !begins_line => written + length + 1,
            _ => written,
        };
        self.rest.extend_from_slice(&lines[written..end]);
        count(&lines[end..])
    }

    fn went_wrong(&mut self, error: &io::Error, lost: u64, now: Instant) {
        self.health.because(error.to_string());
        let trouble = self.trouble.get_or_insert(Trouble { since: now, retry: now, pause: PAUSE_MIN, lost: 0 });
        trouble.lost += lost;
        trouble.retry = now + trouble.pause;
        trouble.pause = (trouble.pause * 2).min(PAUSE_MAX);
    }

    fn went_well(&mut self, now: Instant) {
        let Some(trouble) = self.trouble.take() else { return };
        self.health.recovered();
        if trouble.lost > 0 {
            let time = now.saturating_duration_since(trouble.since).as_secs_f32();
            let text =
                format!("{} is written again after {time:.1}s; lost: {} lines", self.health.name(), trouble.lost);
            self.health.note(Level::Warn, "LogRecovered", text);
        }
    }
}

/// How far a try came.
struct Done<'a> {
    written: &'a mut usize,
    lost: &'a mut u64,
}

/// Lines end with a line end each.
fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|&&b| b == b'\n').count() as u64
}
