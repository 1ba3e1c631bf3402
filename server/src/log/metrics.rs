//! Counters of requests and connections for `status` and for metrics.
//!
//! Each worker writes its own counters, which any thread may read. So counting is a load and a store, without a lock
//! and without a cache line that another core writes. Invariant: counts are never lost. When a handle is dropped, for
//! example with its configuration, the next handle takes over its counters, so their number is bounded.

use super::counter::Counter;
use super::histogram::Histogram;
use super::route_counters::{CounterLabels, RouteCounterSet, RouteSums};
use super::totals::{NamedCounts, Totals};
use crate::durations::{DurationCounters, Durations};
use selvedge::Reject;
use selvedge::proto::head::Version;
use selvedge::service::{
    CacheUse, CloseReason, Exchange, PhaseTimes, RequestPhase, ResponseOutcome, TlsInfo, cache_use, route_tag,
};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

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
    /// Requests by protocol version.
    versions: [Counter; Version::ALL.len()],
    /// Responses from the cache of files, and those that were not in it.
    cache_hits: Counter,
    cache_misses: Counter,
    /// Complete TLS handshakes by version: full ones, and resumed ones.
    handshakes: LabelCounts,
    resumptions: LabelCounts,
    /// Times of the phases that requests had to wait in.
    phases: [DurationCounters; RequestPhase::ALL.len()],
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
            versions: [const { Counter::ZERO }; Version::ALL.len()],
            cache_hits: Counter::ZERO,
            cache_misses: Counter::ZERO,
            handshakes: LabelCounts::default(),
            resumptions: LabelCounts::default(),
            phases: std::array::from_fn(|_| DurationCounters::default()),
        }
    }
}

impl WorkerCounters {
    /// Counts a request and its response, beside what [`RouteCounterSet`] counts.
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
        if let Some(request) = exchange.request {
            self.versions[request.version() as usize].add(1);
            match cache_use(request) {
                CacheUse::None => {}
                CacheUse::Hit => self.cache_hits.add(1),
                CacheUse::Miss => self.cache_misses.add(1),
            }
        }
        // Most requests had to wait nowhere.
        if exchange.phases != PhaseTimes::default() {
            self.count_phases(&exchange.phases);
        }
    }

    #[inline(never)]
    fn count_phases(&self, phases: &PhaseTimes) {
        for (phase, counters) in RequestPhase::ALL.into_iter().zip(&self.phases) {
            // Handshakes are counted when they are complete, also those without a request.
            if let Some(time) = phases.get(phase).filter(|_| phase != RequestPhase::Handshake) {
                counters.count(time);
            }
        }
    }

    /// Counts a complete TLS handshake.
    pub(super) fn handshake(&self, tls: &TlsInfo, took: Option<Duration>) {
        took.iter().for_each(|took| self.phases[RequestPhase::Handshake as usize].count(*took));
        let counts = if tls.is_resumed() { &self.resumptions } else { &self.handshakes };
        counts.count(tls.version());
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
    routes: Vec<Arc<RouteCounterSet>>,
    /// What handles that were dropped have counted.
    earlier_routes: RouteSums,
}

impl Counters {
    /// Returns the sums over all workers since the process started.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = self.totals_without_routes();
        for ((site, _), route) in self.routes() {
            totals.classes.iter_mut().zip(route.requests.classes).for_each(|(sum, more)| *sum += more);
            totals.content_bytes += route.requests.content_bytes;
            totals.sites.entry(site).or_default().add(route.requests);
        }
        totals
    }

    /// Returns the sums over all workers since the process started, without those that each route has.
    pub(crate) fn totals_without_routes(&self) -> Totals {
        let mut totals = Totals::default();
        self.registry().all.iter().for_each(|counter_set| totals.add_counters(counter_set));
        totals
    }

    /// Returns the sums of each route over all workers since the process started.
    pub(crate) fn routes(&self) -> RouteSums {
        let registry = self.registry();
        let mut sums = registry.earlier_routes.clone();
        registry.routes.iter().for_each(|set| set.add_to(&mut sums));
        sums
    }

    /// Returns what only metrics have, as sums over all workers since the process started.
    pub(crate) fn details(&self) -> CounterDetails {
        let mut details = CounterDetails::default();
        self.registry().all.iter().for_each(|counter_set| details.add_counters(counter_set));
        details
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
    routes: Arc<RouteCounterSet>,
}

impl CounterHandle {
    /// Returns a handle for the sites and routes with these names.
    pub(crate) fn new(counters: &Arc<Counters>, labels: &Arc<CounterLabels>) -> Self {
        let routes = Arc::new(RouteCounterSet::new(labels));
        let mut registry = counters.registry();
        let own = registry.free.pop().unwrap_or_else(|| {
            let new = Arc::<WorkerCounters>::default();
            registry.all.push(new.clone());
            new
        });
        registry.routes.push(routes.clone());
        drop(registry);
        Self { shared: counters.clone(), own, routes }
    }

    /// Counts a request of a site, and its response. Returns the place of its route among those of the labels.
    pub(super) fn count(&self, site: u32, exchange: &Exchange<'_>) -> usize {
        let place = self.routes.labels.place(site, exchange.request.map_or(0, route_tag));
        self.routes.count(place, exchange);
        self.own.exchange(exchange);
        place
    }
}

impl Clone for CounterHandle {
    fn clone(&self) -> Self {
        Self::new(&self.shared, &self.routes.labels)
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
        registry.routes.retain(|set| !Arc::ptr_eq(set, &self.routes));
        self.routes.add_to(&mut registry.earlier_routes);
    }
}

/// Sums of counters that only metrics have. They begin with the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterDetails {
    /// Requests by protocol version, in the order of [`Version::ALL`].
    pub(crate) versions: [u64; Version::ALL.len()],
    /// Responses from the cache of files.
    pub(crate) cache_hits: u64,
    /// Responses with files that were not in it.
    pub(crate) cache_misses: u64,
    /// Full TLS handshakes by version.
    pub(crate) handshakes: NamedCounts,
    /// Resumed TLS handshakes by version.
    pub(crate) resumptions: NamedCounts,
    /// Times of phases, in the order of [`RequestPhase::ALL`].
    pub(crate) phases: [Durations; RequestPhase::ALL.len()],
}

impl CounterDetails {
    fn add_counters(&mut self, counters: &WorkerCounters) {
        self.versions.iter_mut().zip(&counters.versions).for_each(|(sum, more)| *sum += more.get());
        self.cache_hits += counters.cache_hits.get();
        self.cache_misses += counters.cache_misses.get();
        add_named(&mut self.handshakes, counters.handshakes.each());
        add_named(&mut self.resumptions, counters.resumptions.each());
        self.phases.iter_mut().zip(&counters.phases).for_each(|(sum, more)| sum.add(&more.totals()));
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
    use crate::log::route_counters::SiteLabels;

    fn counts(counters: &Counters) -> (u64, u64, Vec<(String, u64)>) {
        let totals = counters.totals();
        let closes = totals.closes.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        (totals.classes[1], totals.latencies.count(), closes)
    }

    fn names() -> Arc<CounterLabels> {
        let site = |name: &str| SiteLabels { site: name.to_owned(), ..SiteLabels::default() };
        Arc::new(CounterLabels::new(["", "a"].map(site).into()))
    }

    #[test]
    fn what_was_counted_stays_counted_and_a_tally_is_used_again() {
        let counters = Arc::new(Counters::default());
        for generation in 1..=10 {
            let workers = [(); 2].map(|()| CounterHandle::new(&counters, &names()));
            for worker in &workers {
                worker.routes.count_status(1, 1);
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
            assert!(registry.routes.is_empty());
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
                        (0..100).for_each(|_| handle.routes.count_status(1, 1));
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
