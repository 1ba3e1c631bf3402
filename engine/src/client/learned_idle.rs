//! How long an upstream keeps idle connections, learned from those that it closed.
//!
//! A request on a connection that the upstream closes at that moment fails, and may not be repeated if its method is not
//! idempotent. So a connection is used only within 80 % of the shortest idle time after which one was closed.

use crate::net::clock::Tick;

/// The longest idle time, in ticks; none if nothing was learned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LearnedIdle(Option<Tick>);

impl LearnedIdle {
    /// Returns the longest idle time that was learned.
    pub(super) const fn ticks(self) -> Option<Tick> {
        self.0
    }

    /// Learns that a connection was closed after an idle time.
    pub(super) fn closed_after(&mut self, idle_for: Tick) {
        let permitted = idle_for / 5 * 4 + idle_for % 5 * 4 / 5;
        self.0 = Some(self.0.map_or(permitted, |learned| learned.min(permitted)).max(1));
    }

    /// Lengthens the time by 5 %, at least one tick: the cause may have been a restart. What is longer than `configured`
    /// is forgotten.
    pub(super) fn recover(&mut self, configured: Tick) {
        self.0 = self.0.map(|learned| learned.saturating_add((learned / 20).max(1))).filter(|time| *time < configured);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_time_counts_and_recovers_slowly() {
        let mut learned = LearnedIdle::default();
        learned.closed_after(20);
        assert_eq!(learned.ticks(), Some(16));
        learned.closed_after(40);
        assert_eq!(learned.ticks(), Some(16));
        learned.closed_after(0);
        assert_eq!(learned.ticks(), Some(1));
        let mut recoveries = 0;
        while learned.ticks().is_some() {
            learned.recover(240);
            recoveries += 1;
        }
        assert!((60..200).contains(&recoveries), "{recoveries}");
    }
}
