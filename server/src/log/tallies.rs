//! What is counted of requests and connections, for whoever asks how the server is.
//!
//! Each worker writes a tally of its own, which nobody else writes and anybody may read; so to
//! count is to load and to store, without a lock and without a word that another core writes.
//! Invariant: what was counted stays counted. A tally whose keeper has gone, as with its
//! configuration, goes to the next one, so there are never more than were kept at once.

use super::histogram::{Histogram, Latencies};
use selvedge::Reject;
use selvedge::service::{CloseReason, Exchange, Outcome};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Names of one kind that are told apart. There are fewer; what is beyond them is counted
/// as [`OTHERS`].
const NAMES_MAX: usize = 64;
/// What stands for names beyond those.
const OTHERS: &str = "others";

/// A number that one thread writes and others read.
#[derive(Debug)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[allow(clippy::declare_interior_mutable_const, reason = "each use of it is to be another counter")]
    pub(super) const ZERO: Self = Self(AtomicU64::new(0));

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Only for the one thread that writes it: what two would add could be lost.
    pub(super) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }
}

/// Counts by name, for what is rare: each look goes through the names.
#[derive(Debug)]
struct Names {
    named: [(OnceLock<&'static str>, Counter); NAMES_MAX],
    others: Counter,
}

impl Default for Names {
    fn default() -> Self {
        Self { named: [const { (OnceLock::new(), Counter::ZERO) }; NAMES_MAX], others: Counter::ZERO }
    }
}

impl Names {
    fn count(&self, name: &'static str) {
        // The first place without a name takes this one.
        let found = self.named.iter().find(|(known, _)| *known.get_or_init(|| name) == name);
        found.map_or(&self.others, |(_, count)| count).add(1);
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let named = self.named.iter().map_while(|(name, count)| Some((*name.get()?, count.get())));
        named.chain(Some((OTHERS, self.others.get())).filter(|(_, count)| *count > 0))
    }
}

/// What one worker has counted. Apart from those of others by more than a line of the cache.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Tally {
    /// 1xx to 5xx.
    classes: [Counter; 5],
    cut: Counter,
    head_bytes: Counter,
    content_bytes: Counter,
    latencies: Histogram,
    rejects: [Counter; Reject::ALL.len()],
    reasons: Names,
    closes: Names,
    incidents: Names,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            classes: [const { Counter::ZERO }; 5],
            cut: Counter::ZERO,
            head_bytes: Counter::ZERO,
            content_bytes: Counter::ZERO,
            latencies: Histogram::default(),
            rejects: [const { Counter::ZERO }; Reject::ALL.len()],
            reasons: Names::default(),
            closes: Names::default(),
            incidents: Names::default(),
        }
    }
}

impl Tally {
    /// Counts a request and its answer.
    pub(super) fn exchange(&self, exchange: &Exchange<'_>) {
        let class = usize::from(exchange.status.code() / 100).clamp(1, self.classes.len());
        self.classes[class - 1].add(1);
        self.head_bytes.add(exchange.head_bytes as u64);
        self.content_bytes.add(exchange.content_bytes);
        match (exchange.outcome, exchange.elapsed) {
            (Outcome::Complete, Some(elapsed)) => self.latencies.count(elapsed),
            (Outcome::Complete, None) => {}
            (Outcome::Cut, _) => self.cut.add(1),
        }
        if let Some(reject) = exchange.reject {
            self.rejects[reject as usize].add(1);
        } else if let Some(reason) = exchange.reason {
            self.reasons.count(reason);
        }
    }

    /// Counts a connection that has ended.
    pub(super) fn close(&self, reason: CloseReason) {
        self.closes.count(reason.name());
    }

    /// Counts what happened to the server.
    pub(super) fn incident(&self, name: &'static str) {
        self.incidents.count(name);
    }
}

/// The tallies of a process.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    all: Vec<Arc<Tally>>,
    /// Those of them that nobody writes.
    free: Vec<Arc<Tally>>,
}

impl Tallies {
    /// What all workers have counted since the process began.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.shelf().all.iter().for_each(|tally| totals.add(tally));
        totals
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // A tally is in its place before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever writes a tally. Each clone writes another one.
#[derive(Debug)]
pub(crate) struct Keeper {
    tallies: Arc<Tallies>,
    tally: Arc<Tally>,
}

impl Keeper {
    pub(crate) fn new(tallies: &Arc<Tallies>) -> Self {
        let mut shelf = tallies.shelf();
        let tally = shelf.free.pop().unwrap_or_else(|| {
            let new = Arc::<Tally>::default();
            shelf.all.push(new.clone());
            new
        });
        drop(shelf);
        Self { tallies: tallies.clone(), tally }
    }
}

impl Clone for Keeper {
    fn clone(&self) -> Self {
        Self::new(&self.tallies)
    }
}

impl Deref for Keeper {
    type Target = Tally;

    fn deref(&self) -> &Tally {
        &self.tally
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tallies.shelf().free.push(self.tally.clone());
    }
}

/// Sums of all that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Answers by the first digit of their status, from 1 on.
    pub(crate) classes: [u64; 5],
    /// Answers among them that were not complete when the connection ended.
    pub(crate) cut: u64,
    /// Bytes of the heads of answers.
    pub(crate) head_bytes: u64,
    /// Bytes of their content.
    pub(crate) content_bytes: u64,
    /// From the complete head of a request to the complete answer.
    pub(crate) latencies: Latencies,
    /// Requests that the engine refused.
    pub(crate) rejects: Vec<(&'static str, u64)>,
    /// Why applications answered with an error, or would have.
    pub(crate) reasons: Vec<(&'static str, u64)>,
    /// Why connections ended.
    pub(crate) closes: Vec<(&'static str, u64)>,
    /// What happened to the server.
    pub(crate) incidents: Vec<(&'static str, u64)>,
}

impl Totals {
    fn add(&mut self, tally: &Tally) {
        self.classes.iter_mut().zip(&tally.classes).for_each(|(sum, more)| *sum += more.get());
        self.cut += tally.cut.get();
        self.head_bytes += tally.head_bytes.get();
        self.content_bytes += tally.content_bytes.get();
        self.latencies.add(&tally.latencies);
        let rejects = Reject::ALL.iter().map(|reject| (reject.name(), tally.rejects[*reject as usize].get()));
        add_named(&mut self.rejects, rejects.filter(|(_, count)| *count > 0));
        add_named(&mut self.reasons, tally.reasons.each());
        add_named(&mut self.closes, tally.closes.each());
        add_named(&mut self.incidents, tally.incidents.each());
    }

    /// How many requests were answered.
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

    fn counts(tallies: &Tallies) -> (u64, u64, Vec<(&'static str, u64)>) {
        let totals = tallies.totals();
        (totals.classes[1], totals.latencies.count(), totals.closes)
    }

    #[test]
    fn what_was_counted_stays_counted_and_a_tally_is_used_again() {
        let tallies = Arc::new(Tallies::default());
        for generation in 1..=10 {
            let workers = [(); 2].map(|()| Keeper::new(&tallies));
            for worker in &workers {
                worker.classes[1].add(1);
                worker.latencies.count(Duration::from_millis(1));
                worker.close(CloseReason::Idle);
            }
            let sum = generation * 2;
            assert_eq!(counts(&tallies), (sum, sum, vec![("Idle", sum)]));
            drop(workers);
            assert_eq!(counts(&tallies), (sum, sum, vec![("Idle", sum)]));
        }
        let sizes = {
            let shelf = tallies.shelf();
            (shelf.all.len(), shelf.free.len())
        };
        assert_eq!(sizes, (2, 2));
        let first = Keeper::new(&tallies);
        let second = first.clone();
        assert!(!Arc::ptr_eq(&first.tally, &second.tally), "each has its own");
    }

    #[test]
    fn tallies_of_two_workers_share_no_line_of_the_cache() {
        let (one, other) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
        assert_eq!((&raw const *one as usize % 128, &raw const *other as usize % 128), (0, 0));
        assert_eq!(size_of::<Tally>() % 128, 0);
    }

    #[test]
    fn threads_count_at_once_and_nothing_is_lost() {
        let tallies = Arc::new(Tallies::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let keeper = Keeper::new(&tallies);
                        (0..100).for_each(|_| keeper.classes[1].add(1));
                    }
                });
            }
        });
        assert_eq!(tallies.totals().requests(), 40_000);
        assert!(tallies.shelf().all.len() <= 4);
    }

    #[test]
    fn names_are_bounded() {
        let names = Names::default();
        let all: Vec<&'static str> = (0..NAMES_MAX + 3).map(|number| &*number.to_string().leak()).collect();
        for _ in 0..2 {
            all.iter().for_each(|name| names.count(name));
        }
        let counted: Vec<_> = names.each().collect();
        assert_eq!(counted.len(), NAMES_MAX + 1);
        assert!(counted[..NAMES_MAX].iter().zip(&all).all(|(counted, name)| *counted == (*name, 2)));
        assert_eq!(counted[NAMES_MAX], (OTHERS, 6));
        // Another copy of a text is the same name.
        let copy: &'static str = all[0].to_owned().leak();
        names.count(copy);
        assert_eq!(names.each().next(), Some((all[0], 3)));
    }

    /// Every way for a connection to end has a place of its own.
    #[test]
    fn every_reject_is_counted_under_its_name() {
        let (tallies, names) = (Arc::new(Tallies::default()), Reject::ALL.iter().map(|reject| reject.name()));
        let keeper = Keeper::new(&tallies);
        for reject in Reject::ALL {
            keeper.rejects[*reject as usize].add(1);
            keeper.close(CloseReason::Rejected(*reject));
        }
        let totals = tallies.totals();
        assert_eq!(totals.rejects, names.map(|name| (name, 1)).collect::<Vec<_>>());
        assert_eq!(totals.closes, totals.rejects);
    }
}
