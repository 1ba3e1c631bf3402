//! Counters of requests and connections for `status`.
//!
//! Each worker writes its own counters, which any thread may read. So counting is a load and a store, without a lock
//! and without a cache line that another core writes. Invariant: counts are never lost. When a handle is dropped, for
//! example with its configuration, the next handle takes over its counters, so their number is bounded.

use super::counter::Counter;
use super::histogram::Histogram;
use super::totals::{NamedCounts, SiteTotals, Totals};
use selvedge::Reject;
use selvedge::service::{CloseReason, Exchange, ResponseOutcome};
use std::borrow::Cow;
use std::collections::BTreeMap;
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
    aborted: Counter,
    head_bytes: Counter,
    latencies: Histogram,
    rejects: [Counter; Reject::ALL.len()],
    reasons: LabelCounts,
    closes: LabelCounts,
    events: LabelCounts,
}

impl Default for WorkerCounters {
    fn default() -> Self {
        Self {
            aborted: Counter::ZERO,
            head_bytes: Counter::ZERO,
            latencies: Histogram::default(),
            rejects: [const { Counter::ZERO }; Reject::ALL.len()],
            reasons: LabelCounts::default(),
            closes: LabelCounts::default(),
            events: LabelCounts::default(),
        }
    }
}

impl WorkerCounters {
    /// Counts a request and its response, beside what [`SiteCounters`] count.
    fn exchange(&self, exchange: &Exchange<'_>) {
        self.head_bytes.add(exchange.head_bytes as u64);
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

/// The counters of one site on one worker, aligned so that two workers share no cache line.
#[derive(Debug)]
#[repr(align(64))]
struct SiteCounters {
    /// Responses with status 1xx to 5xx.
    classes: [Counter; 5],
    content_bytes: Counter,
}

impl SiteCounters {
    fn new() -> Self {
        Self { classes: [const { Counter::ZERO }; 5], content_bytes: Counter::ZERO }
    }

    fn count(&self, exchange: &Exchange<'_>) {
        let class = usize::from(exchange.status.code() / 100).clamp(1, self.classes.len());
        self.classes[class - 1].add(1);
        self.content_bytes.add(exchange.content_bytes);
    }

    fn totals(&self) -> SiteTotals {
        SiteTotals { classes: self.classes.each_ref().map(Counter::get), content_bytes: self.content_bytes.get() }
    }
}

/// The counters of all sites of a configuration on one worker.
#[derive(Debug)]
struct SiteCounterSet {
    /// First names, by site tag. Requests of no site have the first one, which is empty.
    names: Arc<[String]>,
    counters: Box<[SiteCounters]>,
}

impl SiteCounterSet {
    fn new(names: &Arc<[String]>) -> Self {
        let counters = (0..names.len().max(1)).map(|_| SiteCounters::new()).collect();
        Self { names: names.clone(), counters }
    }

    fn count(&self, site: u32, exchange: &Exchange<'_>) {
        self.counters.get(site as usize).unwrap_or(&self.counters[0]).count(exchange);
    }

    fn add_to(&self, sums: &mut BTreeMap<String, SiteTotals>) {
        for (number, totals) in self.counters.iter().map(SiteCounters::totals).enumerate() {
            if totals != SiteTotals::default() {
                let name = self.names.get(number).map_or("", String::as_str);
                sums.entry(name.to_owned()).or_default().add(totals);
            }
        }
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
    sites: Vec<Arc<SiteCounterSet>>,
    /// What handles that were dropped have counted.
    earlier_sites: BTreeMap<String, SiteTotals>,
}

impl Counters {
    /// Returns the sums over all workers since the process started.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        let registry = self.registry();
        registry.all.iter().for_each(|counter_set| totals.add_counters(counter_set));
        totals.sites.clone_from(&registry.earlier_sites);
        registry.sites.iter().for_each(|set| set.add_to(&mut totals.sites));
        drop(registry);
        for site in totals.sites.values() {
            totals.classes.iter_mut().zip(site.classes).for_each(|(sum, more)| *sum += more);
            totals.content_bytes += site.content_bytes;
        }
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
    sites: Arc<SiteCounterSet>,
}

impl CounterHandle {
    /// Returns a handle for sites with these first names, by site tag.
    pub(crate) fn new(counters: &Arc<Counters>, names: &Arc<[String]>) -> Self {
        let sites = Arc::new(SiteCounterSet::new(names));
        let mut registry = counters.registry();
        let own = registry.free.pop().unwrap_or_else(|| {
            let new = Arc::<WorkerCounters>::default();
            registry.all.push(new.clone());
            new
        });
        registry.sites.push(sites.clone());
        drop(registry);
        Self { shared: counters.clone(), own, sites }
    }

    /// Counts a request of a site, and its response.
    pub(super) fn count(&self, site: u32, exchange: &Exchange<'_>) {
        self.sites.count(site, exchange);
        self.own.exchange(exchange);
    }
}

impl Clone for CounterHandle {
    fn clone(&self) -> Self {
        Self::new(&self.shared, &self.sites.names)
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
        let registry = &mut *self.shared.registry();
        registry.free.push(self.own.clone());
        registry.sites.retain(|set| !Arc::ptr_eq(set, &self.sites));
        self.sites.add_to(&mut registry.earlier_sites);
    }
}

impl Totals {
    fn add_counters(&mut self, counter_set: &WorkerCounters) {
        self.aborted += counter_set.aborted.get();
        self.head_bytes += counter_set.head_bytes.get();
        self.latencies.add_histogram(&counter_set.latencies);
        let rejects = Reject::ALL.iter().map(|reject| (reject.name(), counter_set.rejects[*reject as usize].get()));
        add_named(&mut self.rejects, rejects.filter(|(_, count)| *count > 0));
        add_named(&mut self.reasons, counter_set.reasons.each());
        add_named(&mut self.closes, counter_set.closes.each());
        add_named(&mut self.events, counter_set.events.each());
    }
}

fn add_named(sums: &mut NamedCounts, more: impl Iterator<Item = (&'static str, u64)>) {
    more.for_each(|(name, count)| *sums.entry(Cow::Borrowed(name)).or_default() += count);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counts(counters: &Counters) -> (u64, u64, Vec<(String, u64)>) {
        let totals = counters.totals();
        let closes = totals.closes.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        (totals.classes[1], totals.latencies.count(), closes)
    }

    fn names() -> Arc<[String]> {
        ["", "a"].map(str::to_owned).into()
    }

    #[test]
    fn what_was_counted_stays_counted_and_a_tally_is_used_again() {
        let counters = Arc::new(Counters::default());
        for generation in 1..=10 {
            let workers = [(); 2].map(|()| CounterHandle::new(&counters, &names()));
            for worker in &workers {
                worker.sites.counters[1].classes[1].add(1);
                worker.latencies.count(Duration::from_millis(1));
                worker.close(CloseReason::KeepAliveTimeout);
            }
            let sum = generation * 2;
            assert_eq!(counts(&counters), (sum, sum, vec![("KeepAliveTimeout".to_owned(), sum)]));
            drop(workers);
            assert_eq!(counts(&counters), (sum, sum, vec![("KeepAliveTimeout".to_owned(), sum)]));
        }
        let sizes = {
            let registry = counters.registry();
            assert!(registry.sites.is_empty());
            (registry.all.len(), registry.free.len())
        };
        assert_eq!(sizes, (2, 2));
        assert_eq!(counters.totals().sites.keys().collect::<Vec<_>>(), ["a"]);
        let first = CounterHandle::new(&counters, &names());
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
                        let handle = CounterHandle::new(&counters, &names());
                        (0..100).for_each(|_| handle.sites.counters[1].classes[1].add(1));
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
        let (counters, rejects) = (Arc::new(Counters::default()), Reject::ALL.iter().map(|reject| reject.name()));
        let handle = CounterHandle::new(&counters, &names());
        for reject in Reject::ALL {
            handle.rejects[*reject as usize].add(1);
            handle.close(CloseReason::Rejected(*reject));
        }
        let totals = counters.totals();
        assert_eq!(totals.rejects, rejects.map(|name| (Cow::Borrowed(name), 1)).collect::<NamedCounts>());
        assert_eq!(totals.closes, totals.rejects);
    }
}
