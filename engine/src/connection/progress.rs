//! Progress of a transfer, for its deadlines.

use crate::net::clock::Tick;
use std::time::Duration;

/// The progress of one direction, for its timeout and its minimum rate in bytes per second.
pub(super) struct Progress {
    pub(super) began: Tick,
    pub(super) bytes: u64,
    pub(super) timeout: Duration,
    pub(super) min_rate: u32,
}
