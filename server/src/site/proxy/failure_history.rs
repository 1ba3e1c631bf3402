//! Decides when failures take a server out of use, and for how long. A function of failures and time.

use super::rules::FailureRules;
use std::collections::VecDeque;
use std::time::Duration;

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No valid response was received in time. Counts for the window of the rules.
    Exchange,
    /// The response had a status of a failing server. Counts until a response with another status.
    Status,
}

/// The failures of a server.
#[derive(Debug, Default)]
pub(super) struct FailureHistory {
    /// When recent exchanges failed, from the earliest one; at most `failures_max`.
    exchanges: VecDeque<Duration>,
    /// Responses of a failing server in a row.
    statuses: u32,
    /// How often the server was taken out since its last success.
    ejections: u32,
}

impl FailureHistory {
    /// Records a failure. Returns whether it is one too many.
    pub(super) fn record(&mut self, failure: Failure, now: Duration, rules: &FailureRules) -> bool {
        let failures_max = rules.failures_max.get();
        match failure {
            Failure::Status => {
                self.statuses = self.statuses.saturating_add(1);
                self.statuses >= failures_max
            }
            Failure::Exchange => {
                while self.exchanges.front().is_some_and(|&at| now.saturating_sub(at) > rules.window) {
                    self.exchanges.pop_front();
                }
                if self.exchanges.len() as u32 >= failures_max {
                    self.exchanges.pop_front();
                }
                self.exchanges.push_back(now);
                self.exchanges.len() as u32 >= failures_max
            }
        }
    }

    /// Records that the server is taken out. Returns for how long: twice the time before, up to the maximum.
    pub(super) fn eject(&mut self, rules: &FailureRules) -> Duration {
        // 32 doublings of a second are more than a century.
        let factor = 1u32.checked_shl(self.ejections).unwrap_or(u32::MAX);
        self.ejections = self.ejections.saturating_add(1);
        self.exchanges.clear();
        self.statuses = 0;
        rules.ejection.saturating_mul(factor).min(rules.ejection_max.max(rules.ejection))
    }

    /// Records a response with a status of a working server.
    pub(super) fn succeeded(&mut self) {
        self.statuses = 0;
        self.ejections = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays failures and successes at times in seconds; returns the times at which the server is taken out.
    fn play(events: &[(char, u64)]) -> Vec<(u64, u64)> {
        let rules = FailureRules::default();
        let mut history = FailureHistory::default();
        let mut ejections = Vec::new();
        for &(event, at) in events {
            let failure = match event {
                'x' => Failure::Exchange,
                's' => Failure::Status,
                _ => {
                    history.succeeded();
                    continue;
                }
            };
            if history.record(failure, Duration::from_secs(at), &rules) {
                ejections.push((at, history.eject(&rules).as_secs()));
            }
        }
        ejections
    }

    #[test]
    fn failures_take_a_server_out() {
        type Case = (&'static str, &'static [(char, u64)], &'static [(u64, u64)]);
        let cases: &[Case] = &[
            ("two failures", &[('x', 0), ('x', 1)], &[]),
            ("three failures in 10 s", &[('x', 0), ('x', 5), ('x', 10)], &[(10, 10)]),
            ("three failures in 11 s", &[('x', 0), ('x', 5), ('x', 11)], &[]),
            ("the window moves", &[('x', 0), ('x', 9), ('x', 12), ('x', 13)], &[(13, 10)]),
            ("a success between failed exchanges", &[('x', 0), ('+', 1), ('x', 2), ('x', 3)], &[(3, 10)]),
            ("statuses in a row", &[('s', 0), ('s', 100), ('s', 200)], &[(200, 10)]),
            ("a success between statuses", &[('s', 0), ('s', 1), ('+', 2), ('s', 3), ('s', 4)], &[]),
        ];
        for (name, events, expected) in cases {
            assert_eq!(play(events), *expected, "{name}");
        }
    }

    #[test]
    fn time_out_of_use_doubles_until_a_success() {
        let mut history = FailureHistory::default();
        let rules = FailureRules::default();
        let times: Vec<u64> = (0..8).map(|_| history.eject(&rules).as_secs()).collect();
        assert_eq!(times, [10, 20, 40, 80, 160, 300, 300, 300]);
        history.succeeded();
        assert_eq!(history.eject(&rules).as_secs(), 10);
        let mut long = FailureHistory::default();
        (0..100).for_each(|_| assert!(long.eject(&rules) <= rules.ejection_max));
        let fixed = FailureRules { ejection_max: Duration::ZERO, ..rules };
        assert_eq!(FailureHistory::default().eject(&fixed).as_secs(), 10);
    }
}
