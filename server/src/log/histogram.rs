//! How long answers took, in buckets of a fixed number.
//!
//! Buckets are as wide as a sixteenth of the power of two that they begin in, so a figure that is
//! read from them is at most 1/32 off. Memory does not grow with what is counted.

use super::tallies::Counter;
use std::time::Duration;

/// Buckets of each power of two.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;
/// The first power of two with buckets of its own, 256 ns; all that is less shares the first one.
const FIRST_BITS: u32 = 8;
/// The first one without, 73 minutes; all that is more shares the last bucket.
const LAST_BITS: u32 = 42;
const BUCKETS: usize = 1 + (LAST_BITS - FIRST_BITS) as usize * STEPS;

const _: () = assert!(FIRST_BITS >= STEP_BITS, "a bucket is a nanosecond wide or wider");

/// What one thread counts.
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

/// What several threads have counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Latencies {
    buckets: Vec<u64>,
    max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], max_ns: 0 }
    }
}

impl Latencies {
    pub(super) fn add(&mut self, histogram: &Histogram) {
        self.buckets.iter_mut().zip(&histogram.buckets).for_each(|(sum, more)| *sum += more.get());
        self.max_ns = self.max_ns.max(histogram.max_ns.get());
    }

    /// How many answers were timed.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The longest time, in nanoseconds.
    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The time in nanoseconds within which so many of a thousand answers were complete; 0 when
    /// there was none.
    pub(crate) fn within_ns(&self, per_mille: u64) -> u64 {
        // A number of answers is far from the bits that this takes.
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
    // The bits behind the first one say how far it is to the next power.
    let step = (ns >> (power - STEP_BITS)) as usize - STEPS;
    1 + (power - FIRST_BITS) as usize * STEPS + step
}

/// What stands for all times of a bucket.
fn middle_ns(bucket: usize) -> u64 {
    let Some(place) = bucket.checked_sub(1) else { return 1 << (FIRST_BITS - 1) };
    let width = 1 << (place / STEPS + (FIRST_BITS - STEP_BITS) as usize);
    width * (STEPS + place % STEPS) as u64 + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_ns: impl IntoIterator<Item = u64>) -> Latencies {
        let (histogram, mut all) = (Histogram::default(), Latencies::default());
        times_ns.into_iter().for_each(|ns| histogram.count(Duration::from_nanos(ns)));
        all.add(&histogram);
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
