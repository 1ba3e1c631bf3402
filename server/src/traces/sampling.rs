//! Which traces are exported: those that a sender has chosen, and a share of those that begin here.

use super::context::{TraceContext, TraceParent};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Bits of a trace identifier that are random in every tracing system (W3C Trace Context, level 2). They decide about a
/// share, so that all servers with one ratio agree on each trace.
const RANDOM_BITS: u32 = 56;
/// Traces each second that a worker exports because a client that is no trusted proxy has chosen them. A client must not
/// decide what tracing costs.
pub(super) const CLIENT_CHOICES_PER_SECOND: u32 = 10;

thread_local! {
    static CHOICES: ClientChoices = const { ClientChoices::new() };
}

/// A share of all traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Traces whose random bits are at least this number.
    first: u64,
}

impl Share {
    /// Creates a share from a ratio: 0 for no trace, 1 for all.
    pub(super) fn of(ratio: f64) -> Self {
        let all = (1_u64 << RANDOM_BITS) as f64;
        // A number in floating point is converted to the nearest one in range.
        Self { first: ((1.0 - ratio) * all).round() as u64 }
    }

    /// Whether the trace is one of the share.
    pub(super) const fn includes(self, trace_id: u128) -> bool {
        trace_id as u64 & ((1 << RANDOM_BITS) - 1) >= self.first
    }
}

/// Whether the choice of a sender counts without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SenderTrust {
    Trusted,
    Untrusted,
}

/// Returns the context of a request below a sender; `None` for a trace that begins with it.
pub(super) fn context(parent: Option<(TraceParent, SenderTrust)>, share: Share) -> TraceContext {
    match parent {
        None => {
            let new = TraceContext::new_trace();
            TraceContext { is_sampled: share.includes(new.trace_id), ..new }
        }
        Some((parent, trust)) => {
            let is_sampled = parent.is_sampled
                && (trust == SenderTrust::Trusted || CHOICES.with(|choices| choices.take(Instant::now())));
            TraceContext { is_sampled, ..TraceContext::below(parent) }
        }
    }
}

/// Counts the choices of clients in the current second.
struct ClientChoices {
    second: Cell<Option<Instant>>,
    taken: Cell<u32>,
}

impl ClientChoices {
    const fn new() -> Self {
        Self { second: Cell::new(None), taken: Cell::new(0) }
    }

    /// Takes one of the choices of a second; false if none is left.
    fn take(&self, now: Instant) -> bool {
        let is_over = |began: Instant| now.saturating_duration_since(began) >= Duration::from_secs(1);
        if self.second.get().is_none_or(is_over) {
            self.second.set(Some(now));
            self.taken.set(0);
        }
        let taken = self.taken.get();
        let is_left = taken < CLIENT_CHOICES_PER_SECOND;
        self.taken.set(taken + u32::from(is_left));
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_decided_by_the_random_bits() {
        const MAX: u128 = (1 << RANDOM_BITS) - 1;
        for (ratio, lowest) in
            [(0.0, None), (1.0, Some(0)), (0.5, Some(1 << 55)), (0.25, Some(3 << 54)), (1.0 / 1024.0, Some(1023 << 46))]
        {
            let share = Share::of(ratio);
            let lowest: Option<u128> = lowest;
            assert_eq!(share.includes(MAX), lowest.is_some(), "{ratio}");
            if let Some(lowest) = lowest {
                // Bits above them do not matter.
                assert!(share.includes(lowest) && share.includes(lowest | (0xff << 120) | (1 << 56)), "{ratio}");
                assert!(lowest == 0 || !share.includes((lowest - 1) | (u128::MAX << 56)), "{ratio}");
            }
        }
    }

    #[test]
    fn about_a_share_of_new_traces_is_chosen() {
        let chosen = |ratio| (0..4096).filter(|_| context(None, Share::of(ratio)).is_sampled).count();
        assert_eq!((chosen(0.0), chosen(1.0)), (0, 4096));
        // Twelve standard deviations.
        assert!((664..1384).contains(&chosen(0.25)), "{}", chosen(0.25));
    }

    #[test]
    fn a_sender_decides_and_a_client_within_bounds() {
        let parent = |is_sampled| TraceParent { trace_id: u128::MAX, span_id: 1, is_sampled };
        let all = Share::of(1.0);
        let decide = move |is_sampled, trust| context(Some((parent(is_sampled), trust)), all).is_sampled;
        // The thread of a test has its own bound.
        let chosen = std::thread::spawn(move || {
            let trusted = (0..100).filter(|_| decide(true, SenderTrust::Trusted)).count();
            let not_chosen = [SenderTrust::Trusted, SenderTrust::Untrusted].map(|trust| decide(false, trust));
            (trusted, not_chosen)
        });
        assert_eq!(chosen.join().unwrap(), (100, [false; 2]), "the ratio is for traces that begin here");
        let choices = ClientChoices::new();
        let start = Instant::now();
        let within = |seconds: f64| {
            let now = start + Duration::from_secs_f64(seconds);
            (0..100).filter(|_| choices.take(now)).count()
        };
        let most = CLIENT_CHOICES_PER_SECOND as usize;
        assert_eq!([0.0, 0.5, 0.999, 1.0, 1.5, 2.5].map(within), [most, 0, 0, most, 0, most]);
    }

    #[test]
    fn an_untrusted_client_takes_from_the_bound_of_its_worker() {
        let parent = TraceParent { trace_id: 1, span_id: 1, is_sampled: true };
        let decide = move || context(Some((parent, SenderTrust::Untrusted)), Share::of(0.0)).is_sampled;
        let first = std::thread::spawn(decide);
        assert!(first.join().unwrap());
    }
}
