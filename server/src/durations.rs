//! Counts of durations in the buckets that metrics have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the buckets in microseconds. A last bucket has the longer ones.
const BOUNDS_MICROS: [u64; 10] =
    [100, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000];
const BUCKETS: usize = BOUNDS_MICROS.len() + 1;

/// Counts that any thread may read.
#[derive(Debug, Default)]
pub(crate) struct DurationCounters {
    buckets: [AtomicU64; BUCKETS],
    sum_nanos: AtomicU64,
}

impl DurationCounters {
    /// Counts a duration. For one writing thread only: counts of two threads could be lost.
    pub(crate) fn count(&self, time: Duration) {
        let nanos = nanos(time);
        for (counter, more) in [(&self.buckets[bucket_of(nanos)], 1), (&self.sum_nanos, nanos)] {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }

    /// Counts a duration. Any thread may call it.
    pub(crate) fn count_shared(&self, time: Duration) {
        let nanos = nanos(time);
        self.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Returns the counts so far.
    pub(crate) fn totals(&self) -> Durations {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Durations { buckets: self.buckets.each_ref().map(read), sum_nanos: read(&self.sum_nanos) }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn bucket_of(nanos: u64) -> usize {
    // A comparison with each bound has no branch to mispredict.
    BOUNDS_MICROS.iter().map(|bound| usize::from(nanos > bound * 1000)).sum()
}

/// Sums of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durations {
    /// The number of durations in each bucket, and of longer ones.
    buckets: [u64; BUCKETS],
    sum_nanos: u64,
}

impl Durations {
    /// Adds other sums.
    pub(crate) fn add(&mut self, more: &Self) {
        self.buckets.iter_mut().zip(more.buckets).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
        self.sum_nanos = self.sum_nanos.wrapping_add(more.sum_nanos);
    }

    /// Returns the number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all durations in seconds.
    pub(crate) fn sum_seconds(&self) -> f64 {
        self.sum_nanos as f64 / 1e9
    }

    /// Returns the upper bound of each bucket in seconds with the number of durations in it; that of the last one is
    /// infinity.
    pub(crate) fn buckets(&self) -> [(f64, u64); BUCKETS] {
        std::array::from_fn(|bucket| {
            let bound = BOUNDS_MICROS.get(bucket).map_or(f64::INFINITY, |micros| *micros as f64 / 1e6);
            (bound, self.buckets[bucket])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_no_duration_is_lost() {
        let (alone, shared) = (DurationCounters::default(), DurationCounters::default());
        let of_bounds = BOUNDS_MICROS.iter().flat_map(|micros| [micros * 1000, micros * 1000 + 1]);
        for time in of_bounds.chain([0]).map(Duration::from_nanos) {
            alone.count(time);
            shared.count_shared(time);
        }
        let totals = alone.totals();
        assert_eq!(totals, shared.totals());
        let mut expected = [2; BUCKETS];
        expected[BUCKETS - 1] = 1;
        assert_eq!((totals.buckets, totals.count()), (expected, 2 * BOUNDS_MICROS.len() as u64 + 1));
        let bounds = totals.buckets().map(|(bound, _)| bound);
        assert!(bounds.is_sorted() && bounds[0] == 0.0001 && bounds[BUCKETS - 1] == f64::INFINITY);
        let mut twice = totals;
        twice.add(&totals);
        assert!(twice.count() == 2 * totals.count() && twice.sum_seconds() > 73.0, "{}", twice.sum_seconds());
    }
}
