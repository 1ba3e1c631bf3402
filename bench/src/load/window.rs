//! What was seen between two moments: counts and a histogram of times.

use hdrhistogram::Histogram;
use std::time::Duration;

/// Times are kept from a microsecond to a minute, with three digits.
const LONGEST_NS: u64 = 60_000_000_000;

/// What the load saw between two moments.
pub(crate) struct Window {
    /// Requests that were answered well.
    pub(crate) answered: u64,
    /// Connections that failed, and answers other than success.
    pub(crate) errors: u64,
    /// Requests that had no answer in time.
    pub(crate) timeouts: u64,
    /// Requests that should have been made and could not be, because the load had no room.
    pub(crate) unsent: u64,
    /// How long it was.
    pub(crate) elapsed: Duration,
    /// How much of that the load generator did not come to its schedule.
    pub(crate) held_up: Duration,
    /// The part of it in which the load generator had something to do.
    pub(crate) generator_busy: f64,
    times: Histogram<u64>,
    answered_times: Histogram<u64>,
    late: Histogram<u64>,
}

impl Window {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1_000, LONGEST_NS, 3).expect("the bounds are in order");
        Self {
            answered: 0,
            errors: 0,
            timeouts: 0,
            unsent: 0,
            elapsed: Duration::ZERO,
            held_up: Duration::ZERO,
            generator_busy: 0.0,
            times: histogram(),
            answered_times: histogram(),
            late: histogram(),
        }
    }

    /// Counts what was seen later to this.
    pub(crate) fn add(&mut self, later: &Self) {
        let busy = |window: &Self| window.generator_busy * window.elapsed.as_secs_f64();
        let elapsed = self.elapsed + later.elapsed;
        self.generator_busy = (busy(self) + busy(later)) / elapsed.as_secs_f64().max(1e-9);
        self.elapsed = elapsed;
        self.held_up += later.held_up;
        self.answered += later.answered;
        self.errors += later.errors;
        self.timeouts += later.timeouts;
        self.unsent += later.unsent;
        for (own, other) in [
            (&mut self.times, &later.times),
            (&mut self.answered_times, &later.answered_times),
            (&mut self.late, &later.late),
        ] {
            own.add(other).expect("all have the same bounds");
        }
    }

    /// Notes how long an answer took.
    pub(crate) fn took(&mut self, ns: u64) {
        self.times.saturating_record(ns);
        self.answered_times.saturating_record(ns);
    }

    /// Notes how long an answer was waited for that did not come.
    pub(crate) fn gave_up(&mut self, ns: u64) {
        self.timeouts += 1;
        self.times.saturating_record(ns);
    }

    /// Notes how much later than intended the generator sent, with a connection at hand.
    pub(crate) fn was_late(&mut self, ns: u64) {
        self.late.saturating_record(ns);
    }

    /// Answers a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The time within which this part of the answers that came did come, in microseconds.
    pub(crate) fn answered_quantile_us(&self, quantile: f64) -> f64 {
        self.answered_times.value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// The time within which this part of the requests had its answer or was given up, in microseconds.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.times.value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// The time within which this part of the requests left the generator, in microseconds.
    pub(crate) fn late_us(&self, quantile: f64) -> f64 {
        self.late.value_at_quantile(quantile) as f64 / 1_000.0
    }
}
