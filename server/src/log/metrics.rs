//! Counters of requests and connections for `status`.
//!
//! Each worker writes its own counters, which any thread may read. So counting is a load and a store, without a lock
//! and without a cache line that another core writes. Invariant: counts are never lost. When a handle is dropped, for
//! example with its configuration, the next handle takes over its counters, so their number is bounded.

use super::counter::Counter;
use super::histogram::{Histogram, Latencies};
use selvedge::Reject;
use selvedge::service::{CloseReason, Exchange, ResponseOutcome};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Names that are counted separately. The program has fewer; further ones are counted as [`OTHERS`].
const NAMES_MAX: usize = 64;
/// The name of all further names.
const OTHERS: &str = "others";

/// Counts by name, for rare events: each look-up is linear.
#[derive(Debug)]
struct LabelCounts {
    named: [(OnceLock<&'static str>, Counter); NAMES_MAX],
    others: Counter,
}

impl Default for LabelCounts {
    fn default() -> Self {
        Self { named: [const { (OnceLock::new(), Counter::ZERO) }; NAMES_MAX], others: Counter::ZERO }
    }
}

impl LabelCounts {
    fn count(&self, name: &'static str) {
        // The first free entry takes the name.
        let found = self.named.iter().find(|(known, _)| *known.get_or_init(|| name) == name);
        found.map_or(&self.others, |(_, count)| count).add(1);
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = self.named.iter().map_while(|(name, count)| Some((*name.get()?, count.get())));
        named.chain(Some((OTHERS, self.others.get())).filter(|(_, count)| *count > 0))
    }
}

/// The counters of one worker, aligned so that two workers share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerCounters {
    /// Responses with status 1xx to 5xx.
    classes: [Counter; 5],
    aborted: Counter,
    head_bytes: Counter,
    content_bytes: Counter,
    latencies: Histogram,
    rejects: [Counter; Reject::ALL.len()],
    reasons: LabelCounts,
    closes: LabelCounts,
    events: LabelCounts,
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self {
            classes: [const { Counter::ZERO }; 5],
            aborted: Counter::ZERO,
            head_bytes: Counter::ZERO,
            content_bytes: Counter::ZERO,
            latencies: Histogram::default(),
            rejects: [const { Counter::ZERO }; Reject::ALL.len()],
            reasons: LabelCounts::default(),
            closes: LabelCounts::default(),
            events: LabelCounts::default(),
        }
    }
}

impl WorkerCounters {
    /// Counts a request and its response.
    pub(super) fn exchange(&self, exchange: &Exchange<'_>) {
        let class = usize::from(exchange.status.code() / 100).clamp(1, self.classes.len());
        self.classes[class - 1].add(1);
        self.head_bytes.add(exchange.head_bytes as u64);
        self.content_bytes.add(exchange.content_bytes);
        match (exchange.outcome, exchange.elapsed) {
            (ResponseOutcome::Complete, Some(elapsed)) => self.latencies.count(elapsed),
            (ResponseOutcome::Complete, None) => {}
            (ResponseOutcome::Aborted, _) => self.aborted.add(1),
        }
        if let Some(reject) = exchange.reject {
            self.rejects[reject as usize].add(1);
        } else if let Some(reason) = exchange.reason {
            self.reasons.count(reason);
        }
        if let Some(reset) = exchange.reset.filter(|reset| !reset.is_ordinary()) {
            self.reasons.count(reset.explain());
        }
    }

    /// Counts a closed connection.
    pub(super) fn close(&self, reason: CloseReason) {
        self.closes.count(reason.name());
    }

    /// Counts an event of the server.
    pub(super) fn count_event(&self, name: &'static str) {
        self.events.count(name);
    }
}

/// The counters of a process.
#[derive(Debug, Default)]
pub(crate) struct Counters(Mutex<Registry>);

#[derive(Debug, Default)]
struct Registry {
    all: Vec<Arc<WorkerCounters>>,
    /// Counters without a writer.
    free: Vec<Arc<WorkerCounters>>,
}

impl Counters {
    /// Returns the sums over all workers since the process started.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.registry().all.iter().for_each(|counter_set| totals.add(counter_set));
        totals
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic while the lock is held leaves the registry consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle that writes one worker's counters. A clone writes other counters.
#[derive(Debug)]
pub(crate) struct CounterHandle {
    shared: Arc<Counters>,
    own: Arc<WorkerCounters>,
}

impl CounterHandle {
    pub(crate) fn new(counters: &Arc<Counters>) -> Self {
        let mut registry = counters.registry();
        let own = registry.free.pop().unwrap_or_else(|| {
            let new = Arc::<WorkerCounters>::default();
            registry.all.push(new.clone());
            new
        });
        drop(registry);
        Self { shared: counters.clone(), own }
    }
}

impl Clone for CounterHandle {
    fn clone(&self) -> Self {
        Self::new(&self.shared)
    }
}

impl Deref for CounterHandle {
    type Target = WorkerCounters;

    fn deref(&self) -> &WorkerCounters {
        &self.own
    }
}

impl Drop for CounterHandle {
    fn drop(&mut self) {
        self.shared.registry().free.push(self.own.clone());
    }
}

/// Sums of all counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Responses by the first digit of their status, from 1xx on.
    pub(crate) classes: [u64; 5],
    /// Responses that were incomplete when their connection ended.
    pub(crate) aborted: u64,
    /// Bytes of response heads.
    pub(crate) head_bytes: u64,
    /// Bytes of response content.
    pub(crate) content_bytes: u64,
    /// Time from the complete request head to the complete response.
    pub(crate) latencies: Latencies,
    /// Requests that the engine refused, by reason.
    pub(crate) rejects: Vec<(&'static str, u64)>,
    /// Errors of applications, by reason.
    pub(crate) reasons: Vec<(&'static str, u64)>,
    /// Closed connections, by reason.
    pub(crate) closes: Vec<(&'static str, u64)>,
    /// Events of the server, by name.
    pub(crate) events: Vec<(&'static str, u64)>,
}

impl Totals {
    fn add(&mut self, counter_set: &WorkerCounters) {
        self.classes.iter_mut().zip(&counter_set.classes).for_each(|(sum, more)| *sum += more.get());
        self.aborted += counter_set.aborted.get();
        self.head_bytes += counter_set.head_bytes.get();
        self.content_bytes += counter_set.content_bytes.get();
        self.latencies.add(&counter_set.latencies);
        let rejects = Reject::ALL.iter().map(|reject| (reject.name(), counter_set.rejects[*reject as usize].get()));
        add_named(&mut self.rejects, rejects.filter(|(_, count)| *count > 0));
        add_named(&mut self.reasons, counter_set.reasons.each());
        add_named(&mut self.closes, counter_set.closes.each());
        add_named(&mut self.events, counter_set.events.each());
    }

    /// Returns the number of responses.
    pub(crate) fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }
}

fn add_named(sums: &mut Vec<(&'static str, u64)>, more: impl Iterator<Item = (&'static str, u64)>) {
    for (name, count) in more {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counts(counters: &Counters) -> (u64, u64, Vec<(&'static str, u64)>) {
        let totals = counters.totals();
        (totals.classes[1], totals.latencies.count(), totals.closes)
    }

    #[test]
    fn what_was_counted_stays_counted_and_a_tally_is_used_again() {
        let counters = Arc::new(Counters::default());
        for generation in 1..=10 {
            let workers = [(); 2].map(|()| CounterHandle::new(&counters));
            for worker in &workers {
                worker.classes[1].add(1);
                worker.latencies.count(Duration::from_millis(1));
                worker.close(CloseReason::KeepAliveTimeout);
            }
            let sum = generation * 2;
            assert_eq!(counts(&counters), (sum, sum, vec![("KeepAliveTimeout", sum)]));
            drop(workers);
            assert_eq!(counts(&counters), (sum, sum, vec![("KeepAliveTimeout", sum)]));
        }
        let sizes = {
            let registry = counters.registry();
            (registry.all.len(), registry.free.len())
        };
        assert_eq!(sizes, (2, 2));
        let first = CounterHandle::new(&counters);
        let second = first.clone();
        assert!(!Arc::ptr_eq(&first.own, &second.own), "each has its own");
    }

    #[test]
    fn tallies_of_two_workers_share_no_line_of_the_cache() {
        let (one, other) = (Arc::new(WorkerCounters::default()), Arc::new(WorkerCounters::default()));
        assert_eq!((&raw const *one as usize % 128, &raw const *other as usize % 128), (0, 0));
        assert_eq!(size_of::<WorkerCounters>() % 128, 0);
    }

    #[test]
    fn threads_count_at_once_and_nothing_is_lost() {
        let counters = Arc::new(Counters::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let handle = CounterHandle::new(&counters);
                        (0..100).for_each(|_| handle.classes[1].add(1));
                    }
                });
            }
        });
        assert_eq!(counters.totals().requests(), 40_000);
        assert!(counters.registry().all.len() <= 4);
    }

    #[test]
    fn names_are_bounded() {
        let names = LabelCounts::default();
        let all: Vec<&'static str> = (0..NAMES_MAX + 3).map(|number| &*number.to_string().leak()).collect();
        for _ in 0..2 {
            all.iter().for_each(|name| names.count(name));
        }
        let counted: Vec<_> = names.each().collect();
        assert_eq!(counted.len(), NAMES_MAX + 1);
        assert!(counted[..NAMES_MAX].iter().zip(&all).all(|(counted, name)| *counted == (*name, 2)));
        assert_eq!(counted[NAMES_MAX], (OTHERS, 6));
        // An equal text at another address is equal as a name.
        let copy: &'static str = all[0].to_owned().leak();
        names.count(copy);
        assert_eq!(names.each().next(), Some((all[0], 3)));
    }

    /// Every close reason has its own count.
    #[test]
    fn every_reject_is_counted_under_its_name() {
        let (counters, names) = (Arc::new(Counters::default()), Reject::ALL.iter().map(|reject| reject.name()));
        let handle = CounterHandle::new(&counters);
        for reject in Reject::ALL {
            handle.rejects[*reject as usize].add(1);
            handle.close(CloseReason::Rejected(*reject));
        }
        let totals = counters.totals();
        assert_eq!(totals.rejects, names.map(|name| (name, 1)).collect::<Vec<_>>());
        assert_eq!(totals.closes, totals.rejects);
    }
}
