//! Moments of a connection before a complete head, from which the first phases of a request are measured.
//!
//! Invariant: a head that arrives at once on a connection that had a request costs no look at the clock.

use crate::service::{PhaseTimes, RequestPhase};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The moments. None is set if the observer does not measure.
#[derive(Default)]
pub(super) struct Marks {
    /// When the connection was accepted, until its first request.
    accepted: Cell<Option<Instant>>,
    /// When its handshake was complete.
    handshake_ended: Cell<Option<Instant>>,
    /// When the first part of the next head arrived, if the head was incomplete.
    head_began: Cell<Option<Instant>>,
}

impl Marks {
    /// Records that the connection is accepted now.
    pub(super) fn accept(&self) {
        self.accepted.set(Some(Instant::now()));
    }

    /// Records that the handshake is complete now. Returns how long it took, if the time of the accept is known.
    pub(super) fn end_handshake(&self) -> Option<Duration> {
        let accepted = self.accepted.get()?;
        let now = Instant::now();
        self.handshake_ended.set(Some(now));
        Some(now.duration_since(accepted))
    }

    /// Records that a head is incomplete now. Later calls before the complete head change nothing.
    pub(super) fn begin_head(&self) {
        if self.head_began.get().is_none() {
            self.head_began.set(Some(Instant::now()));
        }
    }

    /// Sets the phases up to a head that was complete at `complete`, and forgets the moments.
    #[inline]
    pub(super) fn take(&self, complete: Instant, phases: &mut PhaseTimes) {
        if self.accepted.get().is_some() || self.head_began.get().is_some() {
            self.take_set(complete, phases);
        }
    }

    #[inline(never)]
    fn take_set(&self, complete: Instant, phases: &mut PhaseTimes) {
        let head_began = self.head_began.take();
        if let Some(accepted) = self.accepted.take() {
            let ready = self.handshake_ended.take().unwrap_or(accepted);
            phases.set(RequestPhase::Handshake, ready.saturating_duration_since(accepted));
            phases.set(RequestPhase::Accept, head_began.unwrap_or(complete).saturating_duration_since(ready));
        }
        if let Some(began) = head_began {
            phases.set(RequestPhase::Head, complete.saturating_duration_since(began));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_has_the_phases_of_its_connection_and_later_ones_only_their_head() {
        let marks = Marks::default();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        marks.accepted.set(Some(begin));
        marks.handshake_ended.set(Some(at(3)));
        marks.head_began.set(Some(at(7)));
        let mut first = PhaseTimes::default();
        marks.take(at(18), &mut first);
        let times =
            [RequestPhase::Handshake, RequestPhase::Accept, RequestPhase::Head].map(|phase| first.micros(phase));
        assert_eq!(times, [3_000, 4_000, 11_000]);
        let mut second = PhaseTimes::default();
        marks.take(at(20), &mut second);
        assert_eq!(second, PhaseTimes::default());
        marks.head_began.set(Some(at(30)));
        marks.take(at(31), &mut second);
        assert_eq!(second.micros(RequestPhase::Head), 1_000);
        assert_eq!(second.micros(RequestPhase::Accept), 0);
    }
}
