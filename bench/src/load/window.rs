//! The measurements of a period of time: counts and histograms of latencies.

use hdrhistogram::Histogram;
use std::time::Duration;

/// The longest recorded latency. The histograms cover 1 µs to 60 s with three significant digits.
const LONGEST_NS: u64 = 60_000_000_000;

/// The measurements of the load generator in a period of time.
pub(crate) struct Window {
    /// Requests with a 2xx response.
    pub(crate) completed: u64,
    /// Failed connections, and responses without a 2xx status.
    pub(crate) errors: u64,
    /// Requests without a response before the timeout.
    pub(crate) timeouts: u64,
    /// Due requests that were not sent, because the limit of connections was reached.
    pub(crate) unsent: u64,
    /// The length of the period.
    pub(crate) elapsed: Duration,
    /// The time in which the load generator was stalled.
    pub(crate) stalled: Duration,
    /// The share of the period in which the load generator was busy.
    pub(crate) generator_busy: f64,
    latencies: Histogram<u64>,
    completed_latencies: Histogram<u64>,
    send_delays: Histogram<u64>,
}

impl Window {
    pub(crate) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1_000, LONGEST_NS, 3).expect("the bounds are in order");
        Self {
            completed: 0,
            errors: 0,
            timeouts: 0,
            unsent: 0,
            elapsed: Duration::ZERO,
            stalled: Duration::ZERO,
            generator_busy: 0.0,
            latencies: histogram(),
            completed_latencies: histogram(),
            send_delays: histogram(),
        }
    }

    /// Adds the measurements of a later window.
    pub(crate) fn add(&mut self, later: &Self) {
        let busy = |window: &Self| window.generator_busy * window.elapsed.as_secs_f64();
        let elapsed = self.elapsed + later.elapsed;
        self.generator_busy = (busy(self) + busy(later)) / elapsed.as_secs_f64().max(1e-9);
        self.elapsed = elapsed;
        self.stalled += later.stalled;
        self.completed += later.completed;
        self.errors += later.errors;
        self.timeouts += later.timeouts;
        self.unsent += later.unsent;
        for (own, other) in [
            (&mut self.latencies, &later.latencies),
            (&mut self.completed_latencies, &later.completed_latencies),
            (&mut self.send_delays, &later.send_delays),
        ] {
            own.add(other).expect("all histograms have equal bounds");
        }
    }

    /// Records the latency of a response.
    pub(crate) fn record_response(&mut self, ns: u64) {
        self.latencies.saturating_record(ns);
        self.completed_latencies.saturating_record(ns);
    }

    /// Records a request without a response, with the time that the client waited for it.
    pub(crate) fn record_timeout(&mut self, ns: u64) {
        self.timeouts += 1;
        self.latencies.saturating_record(ns);
    }

    /// Records how late the generator sent a request although a connection was free.
    pub(crate) fn record_send_delay(&mut self, ns: u64) {
        self.send_delays.saturating_record(ns);
    }

    /// Returns the completed requests per second.
    pub(crate) fn completed_per_second(&self) -> f64 {
        self.completed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns this quantile of the latencies of completed requests, in microseconds.
    pub(crate) fn completed_quantile_us(&self, quantile: f64) -> f64 {
        self.completed_latencies.value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// Returns this quantile of the latencies of all requests, timeouts included, in microseconds.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1_000.0
    }

    /// Returns this quantile of the send delays, in microseconds.
    pub(crate) fn send_delay_us(&self, quantile: f64) -> f64 {
        self.send_delays.value_at_quantile(quantile) as f64 / 1_000.0
    }
}
