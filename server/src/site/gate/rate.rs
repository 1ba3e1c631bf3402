//! How often a client may ask.
//!
//! Each client has a bucket of tokens: a request takes one, and time puts them back. Written
//! as the time at which the bucket will be full again, a bucket is one number, so a table of
//! them is an array of words that all workers share without a lock.
//!
//! The table has a fixed size. A newcomer takes the place of the bucket in its set that is
//! fullest, which for a client that has not asked for a while means that nothing is lost; so
//! whoever wants to be forgotten has to have the fullest bucket of all, and is refused as
//! long as its bucket is empty. Which clients share a set depends on a secret.

use super::{Mode, Tally, Verdict};
use crate::site::network::client_key;
use selvedge::{Response, Status};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Buckets that a newcomer may take the place of.
const SET: usize = 8;
/// A bucket is a word: what tells its client from others, above the time at which it is full,
/// in microseconds. The time wraps after twelve days, which a bucket that was left alone for
/// so long does not notice: it is full by then.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// The longest time that a bucket takes to fill.
const FILL_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// How often a bucket that other workers change at the same time is tried. Whoever comes so
/// late in a crowd of its own is over its rate.
const TRIES_MAX: usize = 64;

const _: () = assert!(FILL_TIME_MAX.as_micros() < (1 << (TIME_BITS - 1)), "full and empty can be told apart");

/// How often a client may ask.
#[derive(Debug)]
pub(crate) struct RateGate {
    buckets: Box<[AtomicU64]>,
    hash: RandomState,
    started: Instant,
    /// Time for one token, in microseconds.
    token_us: u64,
    burst: u64,
    mode: Mode,
    tally: Tally,
}

/// Why there is no such rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateError {
    /// No request, or no time, or a burst of none.
    Zero,
    /// More than a request a microsecond.
    TooFast,
    /// A bucket would take more than a day to fill.
    TooSlow,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "a rate has at least one request, some time, and a burst of at least one",
            Self::TooFast => "a rate is at most a million requests a second",
            Self::TooSlow => "a rate gives its whole burst back within a day",
        })
    }
}

impl std::error::Error for RateError {}

/// A rate in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// So many requests.
    pub(crate) requests: u32,
    /// In this time.
    pub(crate) period: Duration,
    /// So many at once, after a pause.
    pub(crate) burst: u32,
}

impl RateGate {
    /// Lets each client ask this often. The table has room for about `clients` at a time, at
    /// eight bytes each.
    pub(crate) fn new(rate: Rate, clients: usize, mode: Mode) -> Result<Self, RateError> {
        let Rate { requests, period, burst } = rate;
        if requests == 0 || burst == 0 || period.is_zero() {
            return Err(RateError::Zero);
        }
        let token = period / requests;
        let token_us = u64::try_from(token.as_micros()).map_err(|_| RateError::TooSlow)?;
        if token_us == 0 {
            return Err(RateError::TooFast);
        }
        if token.checked_mul(burst).is_none_or(|fill| fill > FILL_TIME_MAX) {
            return Err(RateError::TooSlow);
        }
        let buckets = (0..clients.next_multiple_of(SET).max(SET)).map(|_| AtomicU64::new(0)).collect();
        let (hash, started, tally) = (RandomState::new(), Instant::now(), Tally::default());
        Ok(Self { buckets, hash, started, token_us, burst: burst.into(), mode, tally })
    }

    /// How many requests it was against, where it only observes.
    pub(super) fn observed(&self) -> Option<u64> {
        self.tally.observed(self.mode)
    }

    /// How many requests it was against.
    #[cfg(test)]
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn admit(&self, client: IpAddr) -> Verdict {
        let Err(wait) = self.take(client, self.started.elapsed()) else { return Verdict::Pass };
        const OBSERVED: &str = "the client asks more often than it may (only observed)";
        Verdict::against(self.mode, &self.tally, OBSERVED, || {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let refusal = Response::error(Status::TOO_MANY_REQUESTS).because("the client asks more often than it may");
            refusal.field("retry-after", seconds.to_string())
        })
    }

    /// Takes a token, or says how long it takes until there is one.
    fn take(&self, client: IpAddr, now: Duration) -> Result<(), Duration> {
        let now = now.as_micros() as u64 & TIME_MASK;
        let hash = self.hash.hash_one(client_key(client));
        let sets = (self.buckets.len() / SET) as u64;
        // The upper bits choose the set and the lower ones tell its clients apart.
        let set = ((u128::from(hash) * u128::from(sets)) >> 64) as usize * SET;
        let tag = hash << TIME_BITS;
        for _ in 0..TRIES_MAX {
            let (bucket, word, debt_us) = self.bucket_of(set, tag, now);
            let most_us = (self.burst - 1) * self.token_us;
            if debt_us > most_us {
                return Err(Duration::from_micros(debt_us - most_us));
            }
            let full_at = (now + debt_us + self.token_us) & TIME_MASK;
            if bucket.compare_exchange(word, tag | full_at, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
        Err(Duration::from_micros(self.token_us))
    }

    /// The client's bucket, or the one whose place it takes; what stands in it, and how long
    /// it takes to fill.
    fn bucket_of(&self, set: usize, tag: u64, now: u64) -> (&AtomicU64, u64, u64) {
        let mut fullest = (&self.buckets[set], 0, u64::MAX);
        for bucket in &self.buckets[set..set + SET] {
            let word = bucket.load(Ordering::Relaxed);
            let debt_us = self.debt_us(word, now);
            if word & !TIME_MASK == tag {
                return (bucket, word, debt_us);
            }
            if debt_us < fullest.2 {
                fullest = (bucket, word, debt_us);
            }
        }
        (fullest.0, fullest.1, 0)
    }

    /// How long a bucket takes to fill. More than the longest time means that it has been full
    /// for long and the clock has gone past it.
    fn debt_us(&self, word: u64, now: u64) -> u64 {
        let debt_us = (word & TIME_MASK).wrapping_sub(now) & TIME_MASK;
        if debt_us > self.burst * self.token_us { 0 } else { debt_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn gate(requests: u32, period_s: u64, burst: u32, clients: usize) -> RateGate {
        let rate = Rate { requests, period: Duration::from_secs(period_s), burst };
        RateGate::new(rate, clients, Mode::Enforce).unwrap()
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    fn taken(gate: &RateGate, client: IpAddr, now: Duration, tries: usize) -> usize {
        (0..tries).filter(|_| gate.take(client, now).is_ok()).count()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let gate = gate(10, 1, 5, 1024);
        let at = Duration::from_millis;
        assert_eq!(taken(&gate, client(1), at(1_000), 20), 5);
        assert_eq!(gate.take(client(1), at(1_000)), Err(at(100)));
        assert_eq!(gate.take(client(1), at(1_040)), Err(at(60)));
        assert_eq!(taken(&gate, client(2), at(1_000), 20), 5, "another client has a bucket of its own");
        assert_eq!(taken(&gate, client(1), at(1_100), 20), 1);
        assert_eq!(taken(&gate, client(1), at(1_300), 20), 2);
        assert_eq!(taken(&gate, client(1), at(60_000), 20), 5, "a bucket holds no more than a burst");
        // Refused requests are not held against the client.
        assert_eq!(taken(&gate, client(1), at(60_000), 1_000), 0);
        assert_eq!(taken(&gate, client(1), at(60_100), 20), 1);
    }

    #[test]
    fn the_clock_goes_round() {
        let gate = gate(1, 1, 3, 64);
        let wrap = Duration::from_micros(1 << TIME_BITS);
        let second = Duration::from_secs(1);
        assert_eq!(taken(&gate, client(1), wrap - second, 9), 3);
        assert_eq!(taken(&gate, client(1), wrap, 9), 1);
        assert_eq!(taken(&gate, client(1), wrap + second * 2, 9), 2);
        assert_eq!(taken(&gate, client(1), wrap * 3, 9), 3);
    }

    #[test]
    fn a_subnet_is_one_client() {
        let gate = gate(1, 60, 4, 1024);
        let addresses = (0..100).map(|n| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n)));
        assert_eq!(addresses.map(|address| taken(&gate, address, Duration::ZERO, 1)).sum::<usize>(), 4);
    }

    #[test]
    fn a_crowd_makes_nobody_forgotten_who_owes() {
        let gate = gate(1, 3600, 10, 64);
        let now = Duration::from_secs(5);
        assert_eq!(taken(&gate, client(1), now, 20), 10);
        for other in 2..100_000 {
            let _ = gate.take(client(other), now);
        }
        assert_eq!(taken(&gate, client(1), now, 20), 0, "its bucket is the emptiest of its set");
        assert_eq!(gate.buckets.len(), 64, "nothing has grown");
    }

    #[test]
    fn workers_share_one_bucket() {
        let gate = gate(1, 3600, 20, 64);
        let count = || {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| taken(&gate, client(1), Duration::from_secs(1), 100))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            })
        };
        let first = count();
        assert!((1..=20).contains(&first), "{first}");
        assert_eq!(first + count(), 20);
    }

    #[test]
    fn rates_that_are_none() {
        let rate = |requests, micros, burst| {
            let rate = Rate { requests, period: Duration::from_micros(micros), burst };
            RateGate::new(rate, 8, Mode::Enforce).err()
        };
        assert_eq!(rate(0, 1, 1), Some(RateError::Zero));
        assert_eq!(rate(1, 0, 1), Some(RateError::Zero));
        assert_eq!(rate(1, 1, 0), Some(RateError::Zero));
        assert_eq!(rate(2, 1, 1), Some(RateError::TooFast));
        assert_eq!(rate(1, 3_600_000_000, 25), Some(RateError::TooSlow));
        assert_eq!(rate(1, 3_600_000_000, 24), None);
    }
}
