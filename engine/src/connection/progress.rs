//! Progress of a transfer, for its deadlines.

use crate::limits::Limits;
use crate::net::clock::{Tick, ticks};
use std::time::Duration;

/// The time limits of a transfer in one direction.
#[derive(Clone, Copy)]
pub(super) struct TransferLimits {
    pub(super) timeout: Duration,
    /// Bytes per second.
    pub(super) min_rate: u32,
}

/// The progress of one direction.
pub(super) struct Progress {
    pub(super) began: Tick,
    pub(super) bytes: u64,
    pub(super) limits: TransferLimits,
}

impl TransferLimits {
    /// Returns the limits of request content.
    pub(super) fn of_content(limits: &Limits) -> Self {
        Self { timeout: limits.body_timeout, min_rate: limits.body_min_rate }
    }

    /// Returns the limits of responses.
    pub(super) fn of_responses(limits: &Limits) -> Self {
        Self { timeout: limits.send_timeout, min_rate: limits.send_min_rate }
    }

    /// Returns when a transfer is too slow: after the timeout since `last`, but not later than the minimum rate allows for
    /// the bytes since `began`.
    pub(super) fn due(self, began: Tick, bytes: u64, last: Tick) -> Tick {
        let due_by_timeout = last.saturating_add(ticks(self.timeout)).saturating_add(1);
        due_by_timeout.min(self.due_by_rate(began, bytes))
    }

    /// Returns when a transfer is below the minimum rate, averaged after a first timeout.
    pub(super) fn due_by_rate(self, began: Tick, bytes: u64) -> Tick {
        let rate_seconds = bytes / u64::from(self.min_rate.max(1));
        let allowed_time = Duration::from_secs(rate_seconds).saturating_add(self.timeout);
        began.saturating_add(ticks(allowed_time)).saturating_add(1)
    }
}
