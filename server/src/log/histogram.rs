//! Response times in a fixed number of buckets.
//!
//! A bucket is a sixteenth of a power of two wide, so a value read from the histogram is at most 1/32 off. Memory
//! does not grow.

use super::counter::Counter;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Buckets for each power of two.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;
/// The first power of two with its own buckets, 256 ns. Shorter times share the first bucket.
const FIRST_BITS: u32 = 8;
/// The first power of two without, 73 minutes. Longer times share the last bucket.
const LAST_BITS: u32 = 42;
const BUCKETS: usize = 1 + (LAST_BITS - FIRST_BITS) as usize * STEPS;

const _: () = assert!(FIRST_BITS >= STEP_BITS, "a bucket is a nanosecond wide or wider");

/// The counts of one thread.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [Counter; BUCKETS],
    max_ns: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { Counter::ZERO }; BUCKETS], max_ns: Counter::ZERO }
    }
}

impl Histogram {
    pub(super) fn count(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(ns)].add(1);
        if ns > self.max_ns.get() {
            self.max_ns.set(ns);
        }
    }
}

/// The sums of several threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SparseLatencies", into = "SparseLatencies")]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], max_ns: 0 }
    }
}

/// The buckets with responses, by number.
#[derive(Serialize, Deserialize)]
struct SparseLatencies {
    buckets: Vec<(usize, u64)>,
    max_ns: u64,
}

impl From<Latencies> for SparseLatencies {
    fn from(latencies: Latencies) -> Self {
        let all = latencies.buckets.into_iter().enumerate();
        Self { buckets: all.filter(|(_, count)| *count > 0).collect(), max_ns: latencies.max_ns }
    }
}

impl From<SparseLatencies> for Latencies {
    fn from(sparse: SparseLatencies) -> Self {
        let mut latencies = Self { max_ns: sparse.max_ns, ..Self::default() };
        for (bucket, count) in sparse.buckets {
            // A later version may have more.
            latencies.buckets[bucket.min(BUCKETS - 1)] += count;
        }
        latencies
    }
}

impl Latencies {
    /// Adds other sums.
    pub(super) fn add(&mut self, more: &Self) {
        self.buckets.iter_mut().zip(&more.buckets).for_each(|(sum, more)| *sum += more);
        self.max_ns = self.max_ns.max(more.max_ns);
    }

    /// Subtracts earlier sums. The longest time stays.
    pub(super) fn subtract(&mut self, earlier: &Self) {
        self.buckets.iter_mut().zip(&earlier.buckets).for_each(|(sum, less)| *sum = sum.saturating_sub(*less));
    }

    /// Counts a response.
    pub(crate) fn count_time(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(ns)] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    pub(super) fn add_histogram(&mut self, histogram: &Histogram) {
        self.buckets.iter_mut().zip(&histogram.buckets).for_each(|(sum, more)| *sum += more.get());
        self.max_ns = self.max_ns.max(histogram.max_ns.get());
    }

    /// Returns the number of responses.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the longest time in nanoseconds.
    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the time in nanoseconds within which `per_mille` of a thousand responses were complete; 0 without
    /// responses.
    pub(crate) fn within_ns(&self, per_mille: u64) -> u64 {
        // The number of responses is far below the overflow.
        let rank = (self.count() * per_mille).div_ceil(1000).max(1);
        let mut below = 0;
        let bucket = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        });
        bucket.map_or(0, |bucket| middle_ns(bucket).min(self.max_ns))
    }
}

fn bucket_of(ns: u64) -> usize {
    if ns < 1 << FIRST_BITS {
        return 0;
    }
    let power = ns.ilog2();
    if power >= LAST_BITS {
        return BUCKETS - 1;
    }
    // The bits after the leading one give the bucket within the power.
    let step = (ns >> (power - STEP_BITS)) as usize - STEPS;
    1 + (power - FIRST_BITS) as usize * STEPS + step
}

/// Returns the value that represents a bucket.
fn middle_ns(bucket: usize) -> u64 {
    let Some(index) = bucket.checked_sub(1) else { return 1 << (FIRST_BITS - 1) };
    let width = 1 << (index / STEPS + (FIRST_BITS - STEP_BITS) as usize);
    width * (STEPS + index % STEPS) as u64 + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_ns: impl IntoIterator<Item = u64>) -> Latencies {
        let (histogram, mut all) = (Histogram::default(), Latencies::default());
        times_ns.into_iter().for_each(|ns| histogram.count(Duration::from_nanos(ns)));
        all.add_histogram(&histogram);
        all
    }

    #[test]
    fn every_time_is_at_most_a_thirty_second_off() {
        let mut ns = 1_u64 << FIRST_BITS;
        while ns < 1 << LAST_BITS {
            for ns in [ns - 1, ns, ns + 1, ns + ns / 17].map(|ns| ns.min((1 << LAST_BITS) - 1)) {
                let read = of([ns, 1 << LAST_BITS]).within_ns(500);
                assert!(ns < 256 && read == 128 || read.abs_diff(ns) * 32 <= ns, "{ns} was read as {read}");
            }
            ns += ns / 37 + 1;
        }
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut bucket = 0;
        for power in FIRST_BITS..LAST_BITS {
            for step in 0..STEPS as u64 {
                let begins = (1 << power) + (step << (power - STEP_BITS));
                assert_eq!(bucket_of(begins - 1), bucket);
                bucket += 1;
                assert_eq!(bucket_of(begins), bucket);
                assert_eq!(bucket_of(middle_ns(bucket)), bucket);
            }
        }
        assert_eq!((bucket, bucket_of(u64::MAX), bucket_of(0)), (BUCKETS - 1, BUCKETS - 1, 0));
    }

    #[test]
    fn percentiles_count_from_the_shortest() {
        let thousand = of((1..=1000).map(|ms| ms * 1_000_000));
        for (per_mille, ms) in [(500, 500), (900, 900), (990, 990), (999, 999), (1000, 1000)] {
            let read = thousand.within_ns(per_mille);
            assert!(read.abs_diff(ms * 1_000_000) * 32 <= ms * 1_000_000, "{per_mille}: {read}");
        }
        assert_eq!((thousand.count(), thousand.max_ns()), (1000, 1_000_000_000));
        let one = of([7_000]);
        assert_eq!((one.within_ns(500), one.within_ns(999)), (one.within_ns(1000), one.within_ns(1)));
        assert!(one.within_ns(999) <= one.max_ns(), "no percentile is beyond the longest");
        let none = of([]);
        assert_eq!((none.within_ns(999), none.max_ns(), none.count()), (0, 0, 0));
    }
}
