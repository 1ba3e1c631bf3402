//! Restarts of serving processes that ended unexpectedly, with a growing delay and a limit.

use super::supervise::Supervisor;
use crate::log::print_line;
use std::time::{Duration, Instant};

/// Exit code when the serving process ended too often.
const GAVE_UP: u8 = 3;
/// Most ended processes that the next one reports.
const NOTES_MAX: usize = 20;

/// How restarts are limited.
#[derive(Clone, Debug)]
pub(crate) struct Restarts {
    /// Most restarts within a time; one more ends the program.
    pub(crate) max: u64,
    pub(crate) within: Duration,
    /// The first delay; it doubles each time.
    pub(crate) back_off_min: Duration,
    pub(crate) back_off_max: Duration,
}

impl Restarts {
    /// Returns the delay before the next restart, after `earlier` recent ones.
    fn back_off(&self, earlier: usize) -> Duration {
        let doublings = u32::try_from(earlier).unwrap_or(u32::MAX).min(31);
        self.back_off_min.saturating_mul(1 << doublings).min(self.back_off_max)
    }
}

impl Supervisor {
    /// Schedules a restart, or gives up.
    pub(super) fn restart_later(&mut self, why: &str) {
        let now = Instant::now();
        while self.recent.front().is_some_and(|at| now - *at >= self.config.restarts.within) {
            self.recent.pop_front();
        }
        let earlier = self.recent.len();
        if earlier as u64 >= self.config.restarts.max {
            let within = self.config.restarts.within.as_secs_f64();
            print_line(&format!(
                "selvedge: the serving process {why}, after {earlier} restarts within {within} s: giving up"
            ));
            self.begin_shutdown(GAVE_UP);
            return;
        }
        let back_off = self.config.restarts.back_off(earlier);
        self.recent.push_back(now);
        self.restart_at = Some(now + back_off);
        let note = format!(
            "the serving process {why}; started again after {} ms (restart {} of {} within {} s)",
            back_off.as_millis(),
            earlier + 1,
            self.config.restarts.max,
            self.config.restarts.within.as_secs_f64()
        );
        print_line(&format!("selvedge: {note}"));
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
    fn delays_double_up_to_the_maximum() {
        let [back_off_min, back_off_max, within] = [10, 1000, 60_000].map(Duration::from_millis);
        let restarts = Restarts { max: 10, within, back_off_min, back_off_max };
        let delays = [0, 1, 2, 6, 7, 500].map(|earlier| restarts.back_off(earlier).as_millis());
        assert_eq!(delays, [10, 20, 40, 640, 1000, 1000]);
    }
}
