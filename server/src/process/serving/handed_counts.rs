//! What a serving process has handed to its supervisor of its counts.

use crate::log::Totals;
use crate::process::link::{FromChild, Link};

/// What was handed to the supervisor.
#[derive(Debug, Default)]
pub(super) struct HandedCounts {
    pub(super) own: Totals,
    /// What the other processes had counted when that was last requested.
    pub(super) others: Totals,
}

impl HandedCounts {
    /// Sends what was added since the last time.
    pub(super) fn hand_over(&mut self, own: &Totals, link: &Link) {
        let added = own.since(&self.own);
        self.own.add(&added);
        if added != Totals::default() {
            for part in added.into_parts() {
                // The supervisor has ended, and nothing keeps the counts.
                let _ = link.send(&FromChild::Counted { totals: Box::new(part) });
            }
        }
    }
}
