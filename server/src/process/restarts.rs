//! Serving processes that end unasked: another one is started, each time after a longer wait, until
//! that happens too often.

use super::supervise::Supervisor;
use crate::log::say;
use std::time::{Duration, Instant};

/// The code that the program ends with when the serving process ended too often.
const GAVE_UP: u8 = 3;
/// Most ends of serving processes that the next one is told of.
const NOTES_MAX: usize = 20;

/// How a serving process is kept alive.
#[derive(Clone, Debug)]
pub(crate) struct Restarts {
    /// Most of them within a time; one more ends the program.
    pub(crate) max: u64,
    pub(crate) within: Duration,
    /// The first wait, which doubles each time.
    pub(crate) back_off_min: Duration,
    pub(crate) back_off_max: Duration,
}

impl Restarts {
    /// The wait before the next one, after so many that were not long ago.
    fn back_off(&self, earlier: usize) -> Duration {
        let doublings = u32::try_from(earlier).unwrap_or(u32::MAX).min(31);
        self.back_off_min.saturating_mul(1 << doublings).min(self.back_off_max)
    }
}

impl Supervisor {
    /// Starts another one in a while, or gives up.
    pub(super) fn restart_later(&mut self, why: &str) {
        let now = Instant::now();
        while self.recent.front().is_some_and(|at| now - *at >= self.terms.restarts.within) {
            self.recent.pop_front();
        }
        let earlier = self.recent.len();
        if earlier as u64 >= self.terms.restarts.max {
            let within = self.terms.restarts.within.as_secs_f64();
            say(&format!("selvedge: the serving process {why}, after {earlier} restarts within {within} s: giving up"));
            self.begin_to_stop(GAVE_UP);
            return;
        }
        let back_off = self.terms.restarts.back_off(earlier);
        self.recent.push_back(now);
        self.restart_at = Some(now + back_off);
        let note = format!(
            "the serving process {why}; started again after {} ms (restart {} of {} within {} s)",
            back_off.as_millis(),
            earlier + 1,
            self.terms.restarts.max,
            self.terms.restarts.within.as_secs_f64()
        );
        say(&format!("selvedge: {note}"));
        self.notifier.status(&note);
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let [back_off_min, back_off_max, within] = [10, 1000, 60_000].map(Duration::from_millis);
        let restarts = Restarts { max: 10, within, back_off_min, back_off_max };
        let waits = [0, 1, 2, 6, 7, 500].map(|earlier| restarts.back_off(earlier).as_millis());
        assert_eq!(waits, [10, 20, 40, 640, 1000, 1000]);
    }
}
