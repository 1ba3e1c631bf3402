//! Restarts of serving processes that ended unexpectedly, with a growing delay and a limit.

use std::time::Duration;

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
    pub(super) fn back_off(&self, earlier: usize) -> Duration {
        let doublings = u32::try_from(earlier).unwrap_or(u32::MAX).min(31);
        self.back_off_min.saturating_mul(1 << doublings).min(self.back_off_max)
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
