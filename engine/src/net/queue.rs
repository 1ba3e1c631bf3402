//! How many may wait to be accepted.
//!
//! A long queue keeps a rush until there is time for it. Where clients come faster than they can be
//! accepted for long, it only makes each of them wait: as many are answered, but later, and in the end
//! after their clients have gone. So while a queue is never empty it is kept as short as it can be
//! emptied in [`QUEUE_TIME`], and the system leaves whoever comes beyond to ask again, which costs
//! the worker nothing.

use crate::limits::{BACKLOG, BACKLOG_MIN, QUEUE_TIME};
use crate::net::clock::Tick;
use std::time::Duration;
use tokio::time::Instant;

/// The queue of a listener that one worker alone accepts at.
pub(crate) struct Queue {
    room: i32,
    /// Since it was last looked at.
    since: (Tick, Instant),
    accepted: u32,
    was_empty: bool,
}

impl Queue {
    /// Of a listener that nobody has come to.
    pub(crate) fn new(tick: Tick) -> Self {
        Self { room: BACKLOG, since: (tick, Instant::now()), accepted: 0, was_empty: true }
    }

    /// Notes that one was accepted. How many may wait from now on, a few times a second.
    pub(crate) fn accepted(&mut self, tick: Tick) -> Option<i32> {
        let room = self.look(tick);
        self.accepted += 1;
        room
    }

    /// Notes that nobody waits: then as many may as ever. As [`Queue::accepted`].
    pub(crate) fn was_empty(&mut self, tick: Tick) -> Option<i32> {
        let was_short = self.room < BACKLOG;
        self.room = BACKLOG;
        self.was_empty = true;
        let room = self.look(tick);
        self.was_empty = true;
        room.or(was_short.then_some(BACKLOG))
    }

    fn look(&mut self, tick: Tick) -> Option<i32> {
        // Nobody looks at the time with every client.
        if tick == self.since.0 {
            return None;
        }
        let now = Instant::now();
        let room = if self.was_empty { BACKLOG } else { room(self.accepted, now - self.since.1) };
        *self = Self { room, since: (tick, now), accepted: 0, was_empty: false };
        // Also when it is the same: another process that has the socket may have said something else.
        Some(room)
    }
}

/// As many as are accepted in [`QUEUE_TIME`], at the rate of so many in this time.
fn room(accepted: u32, time: Duration) -> i32 {
    let room = f64::from(accepted) * QUEUE_TIME.as_secs_f64() / time.as_secs_f64();
    // A rate that is no number is none.
    (room as i32).clamp(BACKLOG_MIN, BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    #[tokio::test(start_paused = true)]
    async fn a_queue_that_is_never_empty_is_as_long_as_is_accepted_in_a_quarter_of_a_second() {
        let mut queue = Queue::new(0);
        let mut tick = 0;
        // Per row: accepted in so many milliseconds, whether nobody waited at the end, what that changes at
        // once, and the room from then on.
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
            let (accepted, milliseconds, is_empty, at_once, expected) = row;
            for _ in 0..accepted {
                assert_eq!(queue.accepted(tick), None, "{row:?}");
            }
            if is_empty {
                assert_eq!(queue.was_empty(tick), at_once, "{row:?}");
            }
            advance(Duration::from_millis(milliseconds)).await;
            tick += 1;
            // Whoever looks next is the first of the time to come.
            assert_eq!(queue.look(tick), Some(expected), "{row:?}");
            if is_empty {
                queue.was_empty(tick);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_empty_until_somebody_comes() {
        let mut queue = Queue::new(0);
        advance(Duration::from_secs(10)).await;
        assert_eq!(queue.accepted(40), Some(BACKLOG), "the first client");
        for tick in [41, 43, 100, 10_000] {
            assert_eq!(queue.was_empty(tick), Some(BACKLOG));
            assert_eq!(queue.was_empty(tick), None);
            advance(Duration::from_secs(1000)).await;
            assert_eq!(queue.accepted(tick + 1), Some(BACKLOG));
        }
    }

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(room(0, Duration::ZERO), BACKLOG_MIN);
        assert_eq!(room(7, Duration::ZERO), BACKLOG);
    }
}
