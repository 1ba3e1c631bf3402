//! Adapts the length of the accept queue to the load.
//!
//! A long queue absorbs a short burst. Under lasting overload it only delays each client: the throughput stays
//! equal, but responses arrive after their clients gave up. While a queue is never empty, its length is therefore
//! what the worker accepts in [`BACKLOG_TIME`]. The kernel drops further connection requests, and the clients
//! retry, at no cost for the worker.

use crate::limits::{BACKLOG, BACKLOG_MIN, BACKLOG_TIME};
use crate::net::clock::Tick;
use std::time::Duration;
use tokio::time::Instant;

/// The backlog of a listener that only one worker accepts at.
pub(crate) struct AdaptiveBacklog {
    backlog: i32,
    /// Time of the last update.
    updated: (Tick, Instant),
    accepted: u32,
    has_been_empty: bool,
}

impl AdaptiveBacklog {
    /// Creates the backlog of a new listener.
    pub(crate) fn new(tick: Tick) -> Self {
        Self { backlog: BACKLOG, updated: (tick, Instant::now()), accepted: 0, has_been_empty: true }
    }

    /// Records an accepted connection. Returns the new backlog at most once per tick.
    pub(crate) fn accepted(&mut self, tick: Tick) -> Option<i32> {
        let backlog = self.update(tick);
        self.accepted += 1;
        backlog
    }

    /// Records that the accept queue was empty and restores the full backlog. Returns the new backlog if it
    /// changed, and at most once per tick otherwise.
    pub(crate) fn found_empty(&mut self, tick: Tick) -> Option<i32> {
        let was_short = self.backlog < BACKLOG;
        self.backlog = BACKLOG;
        self.has_been_empty = true;
        let backlog = self.update(tick);
        self.has_been_empty = true;
        backlog.or(was_short.then_some(BACKLOG))
    }

    fn update(&mut self, tick: Tick) -> Option<i32> {
        // The system clock is read at most once per tick, not for each client.
        if tick == self.updated.0 {
            return None;
        }
        let now = Instant::now();
        let backlog = if self.has_been_empty { BACKLOG } else { backlog_for(self.accepted, now - self.updated.1) };
        *self = Self { backlog, updated: (tick, now), accepted: 0, has_been_empty: false };
        // Returned even if unchanged: another process that shares the socket may have set another value.
        Some(backlog)
    }
}

/// Returns the number of connections that are accepted in [`BACKLOG_TIME`], if `accepted` were accepted in
/// `elapsed`.
fn backlog_for(accepted: u32, elapsed: Duration) -> i32 {
    let backlog = f64::from(accepted) * BACKLOG_TIME.as_secs_f64() / elapsed.as_secs_f64();
    // A NaN is converted to 0.
    (backlog as i32).clamp(BACKLOG_MIN, BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn backlog_of_a_busy_queue_is_what_is_accepted_in_backlog_time() {
        let mut backlog = AdaptiveBacklog::new(0);
        let mut tick = 0;
        // Each row: number accepted, duration in milliseconds, whether the queue is empty at the end, the
        // immediate change, and the backlog of the next period.
        let rows = [
            (1000, 250, false, None, BACKLOG),
            (1000, 250, false, None, 1000),
            (1000, 250, false, None, 1000),
            (1800, 500, false, None, 900),
            (3, 250, false, None, BACKLOG_MIN),
            (100_000, 250, false, None, BACKLOG),
            (2400, 1000, false, None, 600),
            (1000, 250, true, Some(BACKLOG), BACKLOG),
            (0, 250, true, None, BACKLOG),
            (1000, 250, false, None, BACKLOG),
            (1000, 250, false, None, 1000),
        ];
        for row in rows {
            let (accepted, milliseconds, is_empty, immediate_change, expected) = row;
            for _ in 0..accepted {
                assert_eq!(backlog.accepted(tick), None, "{row:?}");
            }
            if is_empty {
                assert_eq!(backlog.found_empty(tick), immediate_change, "{row:?}");
            }
            advance(Duration::from_millis(milliseconds)).await;
            tick += 1;
            // The next update starts a new period.
            assert_eq!(backlog.update(tick), Some(expected), "{row:?}");
            if is_empty {
                backlog.found_empty(tick);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_listener_has_an_empty_queue() {
        let mut backlog = AdaptiveBacklog::new(0);
        advance(Duration::from_secs(10)).await;
        assert_eq!(backlog.accepted(40), Some(BACKLOG), "the first client");
        for tick in [41, 43, 100, 10_000] {
            assert_eq!(backlog.found_empty(tick), Some(BACKLOG));
            assert_eq!(backlog.found_empty(tick), None);
            advance(Duration::from_secs(1000)).await;
            assert_eq!(backlog.accepted(tick + 1), Some(BACKLOG));
        }
    }

    #[test]
    fn zero_elapsed_time_gives_a_bounded_backlog() {
        assert_eq!(backlog_for(0, Duration::ZERO), BACKLOG_MIN);
        assert_eq!(backlog_for(7, Duration::ZERO), BACKLOG);
    }
}
