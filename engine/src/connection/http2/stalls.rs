//! Finds clients that do not receive the responses that they requested.
//!
//! A client can stop a stream with its windows, for any time and with little effort, while the server keeps the rest
//! of the response. So a window that stays closed has the time limit of a socket that accepts nothing.

use super::streams::{PendingResponse, Stall};
use crate::limits::Limits;
use crate::net::clock::{Tick, ticks};
use std::time::Duration;

/// Records whether the windows of a response are closed.
pub(super) fn update(response: &mut PendingResponse, sendable: usize, now: Tick) {
    // Another protocol has its own time limits.
    let is_limited = !response.tunnel().is_some_and(|tunnel| tunnel.is_used());
    if sendable > 0 || response.waits_for_content || !is_limited {
        response.stall = None;
    } else {
        response.stall.get_or_insert(Stall { began: now, bytes: 0 });
    }
}

/// Returns when a response has stalled for too long. A client that opens its windows by a few bytes from time to time
/// has to reach the minimum rate.
pub(super) fn due(response: &PendingResponse, limits: &Limits) -> Option<Tick> {
    let stall = response.stall.as_ref()?;
    let rate_seconds = stall.bytes / u64::from(limits.send_min_rate.max(1));
    let allowed = Duration::from_secs(rate_seconds).saturating_add(limits.send_timeout);
    Some(stall.began.saturating_add(ticks(allowed)).saturating_add(1))
}
