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

/// The queue of a listener.
pub(super) struct Queue {
    room: i32,
    /// Since it was last looked at.
    since: (Tick, Instant),
    accepted: u32,
    was_empty: bool,
}

impl Queue {
    /// With the usual room.
    pub(super) fn new(tick: Tick) -> Self {
        Self { room: BACKLOG, since: (tick, Instant::now()), accepted: 0, was_empty: false }
    }

    /// Notes that one was accepted. How many may wait from now on, where that has changed.
    pub(super) fn accepted(&mut self, tick: Tick) -> Option<i32> {
        let room = self.look(tick);
        self.accepted += 1;
        room
    }

    /// Notes that nobody waited. As [`Queue::accepted`].
    pub(super) fn was_empty(&mut self, tick: Tick) -> Option<i32> {
        self.was_empty = true;
        let room = self.look(tick);
        self.was_empty = true;
        room
    }

    fn look(&mut self, tick: Tick) -> Option<i32> {
        // Nobody looks at the time with every client.
        if tick == self.since.0 {
            return None;
        }
        let now = Instant::now();
        let room = if self.was_empty { BACKLOG } else { room(self.accepted, now - self.since.1) };
        let has_changed = room != self.room;
        *self = Self { room, since: (tick, now), accepted: 0, was_empty: false };
        has_changed.then_some(room)
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
        // Per row: accepted in so many milliseconds, whether nobody waited once, and the room from then on.
        let rows = [
            (1000, 250, true, None),
            (1000, 250, false, Some(1000)),
            (1000, 250, false, None),
            (1000, 500, false, Some(500)),
            (3, 250, false, Some(128)),
            (100_000, 250, false, Some(4096)),
            (2000, 1000, false, Some(500)),
            (1000, 250, true, Some(4096)),
            (0, 250, true, None),
        ];
        for row in rows {
            let (accepted, milliseconds, is_empty, expected) = row;
            for _ in 0..accepted {
                assert_eq!(queue.accepted(tick), None, "{row:?}");
            }
            if is_empty {
                assert_eq!(queue.was_empty(tick), None, "{row:?}");
            }
            advance(Duration::from_millis(milliseconds)).await;
            tick += 1;
            // Whoever looks next is the first of the time to come.
            let room = queue.look(tick);
            assert_eq!(room, expected, "{row:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_queue_is_empty_until_somebody_comes() {
        let mut queue = Queue::new(0);
        for tick in [1, 3, 100, 10_000] {
            assert_eq!(queue.accepted(tick - 1), None);
            assert_eq!(queue.was_empty(tick), None);
            advance(Duration::from_secs(1000)).await;
        }
    }

    #[test]
    fn no_time_is_no_rate() {
        assert_eq!(room(0, Duration::ZERO), BACKLOG_MIN);
        assert_eq!(room(7, Duration::ZERO), BACKLOG);
    }
}
