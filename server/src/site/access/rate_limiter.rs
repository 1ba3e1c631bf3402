//! Limits the request rate of each client with a token bucket.
//!
//! A request takes a token, and time puts tokens back. A bucket is stored as the time at which it will be full,
//! which is one number. So the table is an array of words that all workers share without a lock.
//!
//! The table has a fixed size. A new client replaces the fullest bucket of its set. A full bucket carries no
//! information, so nothing is lost for a client that was idle. To have its bucket replaced, a client would need
//! the fullest bucket of the set, which a client over its rate never has. A secret decides which clients share
//! a set.

use super::{AccessDecision, DenialCounter, RuleMode};
use crate::site::network::client_key;
use crate::site::step_recorder::StepRecorder;
use selvedge::{Response, StatusCode};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The buckets of a set, one of which a new client replaces.
const BUCKETS_PER_SET: usize = 8;
/// The low bits of a bucket: the time in microseconds at which it is full. The high bits are the client's tag.
/// The time wraps after twelve days; a bucket that was unused for so long counts as full.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// The maximum time that a bucket takes to fill.
const FILL_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
/// The maximum number of attempts to update a bucket that other workers update at once. A client with more
/// concurrent requests is over its rate.
const TRIES_MAX: usize = 64;

const _: () = assert!(FILL_TIME_MAX.as_micros() < (1 << (TIME_BITS - 1)), "a full bucket differs from an empty one");

/// Limits the request rate of each client.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    buckets: Box<[AtomicU64]>,
    hash: RandomState,
    started: Instant,
    /// The time for one token in microseconds.
    token_us: u64,
    burst: u64,
    mode: RuleMode,
    denials: DenialCounter,
}

/// Why a rate is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateError {
    /// Zero requests, a zero period, or a zero burst.
    Zero,
    /// More than one request per microsecond.
    TooFast,
    /// A bucket would take more than a day to fill.
    TooSlow,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "a rate needs at least one request, a period above zero, and a burst of at least one",
            Self::TooFast => "a rate is at most a million requests a second",
            Self::TooSlow => "a rate must refill its whole burst within a day",
        })
    }
}

impl std::error::Error for RateError {}

/// A request rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The number of requests for each period.
    pub(crate) requests: u32,
    /// The period.
    pub(crate) period: Duration,
    /// The maximum number of requests at once after a pause.
    pub(crate) burst: u32,
}

impl RateLimiter {
    /// Creates a limiter. The table has room for about `clients` clients, at eight bytes each.
    pub(crate) fn new(rate: Rate, clients: usize, mode: RuleMode) -> Result<Self, RateError> {
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
        let buckets =
            (0..clients.next_multiple_of(BUCKETS_PER_SET).max(BUCKETS_PER_SET)).map(|_| AtomicU64::new(0)).collect();
        let (hash, started, denials) = (RandomState::new(), Instant::now(), DenialCounter::default());
        Ok(Self { buckets, hash, started, token_us, burst: burst.into(), mode, denials })
    }

    /// Counts denials with a counter in place of its own.
    pub(crate) fn counted_by(self, denials: DenialCounter) -> Self {
        Self { denials, ..self }
    }

    /// Returns the counter of denials if the limiter is in dry-run mode.
    pub(super) fn dry_run_counter(&self) -> Option<&DenialCounter> {
        self.denials.in_dry_run(self.mode)
    }

    /// Returns the counter of denials.
    #[cfg(test)]
    pub(crate) fn denials(&self) -> &DenialCounter {
        &self.denials
    }

    pub(super) fn check(&self, client: IpAddr, recorder: Option<&StepRecorder>) -> AccessDecision {
        let taken = match recorder {
            None => self.take_token(client, self.started.elapsed()),
            Some(_) => self.time_to_token(&client_key(client)).map_or(Ok(()), Err),
        };
        let decision = match taken {
            Ok(()) => AccessDecision::Allow,
            Err(wait) => self.deny(wait, recorder),
        };
        decision.record(recorder, "rate-limit", || "the client is within its rate".to_owned());
        decision
    }

    /// Refuses a request of a client that has to wait.
    fn deny(&self, wait: Duration, recorder: Option<&StepRecorder>) -> AccessDecision {
        const DRY_RUN_REASON: &str = "the client exceeds its rate limit (dry run)";
        AccessDecision::denied(self.mode, self.denials.unless_recorded(recorder), DRY_RUN_REASON, || {
            let seconds = wait.as_millis().div_ceil(1000).max(1);
            let response =
                Response::error(StatusCode::TOO_MANY_REQUESTS).log_reason("the client exceeds its rate limit");
            response.field("retry-after", seconds.to_string())
        })
    }

    /// Returns the time until the next token of a key, if it has none. Takes none.
    pub(super) fn time_to_token(&self, key: &impl Hash) -> Option<Duration> {
        let now = self.started.elapsed().as_micros() as u64 & TIME_MASK;
        let (set, tag) = self.place_of(key);
        let (_, _, refill_us) = self.find_bucket(set, tag, now);
        let refill_max_us = (self.burst - 1) * self.token_us;
        (refill_us > refill_max_us).then(|| Duration::from_micros(refill_us - refill_max_us))
    }

    /// Takes a token of a key, if it has one.
    #[cfg(feature = "configuration")]
    pub(super) fn spend(&self, key: &impl Hash) {
        // Without a token, the key has to wait already.
        let _ = self.take_token_of(key, self.started.elapsed());
    }

    /// Takes a token. If the bucket is empty, returns the time until the next token.
    fn take_token(&self, client: IpAddr, now: Duration) -> Result<(), Duration> {
        self.take_token_of(&client_key(client), now)
    }

    /// Returns the set of a key and its tag in that: the high bits of its hash, and the low ones.
    fn place_of(&self, key: &impl Hash) -> (usize, u64) {
        let hash = self.hash.hash_one(key);
        let sets = (self.buckets.len() / BUCKETS_PER_SET) as u64;
        (((u128::from(hash) * u128::from(sets)) >> 64) as usize * BUCKETS_PER_SET, hash << TIME_BITS)
    }

    fn take_token_of(&self, key: &impl Hash, now: Duration) -> Result<(), Duration> {
        let now = now.as_micros() as u64 & TIME_MASK;
        let (set, tag) = self.place_of(key);
        for _ in 0..TRIES_MAX {
            let (bucket, word, refill_us) = self.find_bucket(set, tag, now);
            let refill_max_us = (self.burst - 1) * self.token_us;
            if refill_us > refill_max_us {
                return Err(Duration::from_micros(refill_us - refill_max_us));
            }
            let full_at = (now + refill_us + self.token_us) & TIME_MASK;
            if bucket.compare_exchange(word, tag | full_at, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
        Err(Duration::from_micros(self.token_us))
    }

    /// Returns the client's bucket, or the one that it replaces, with its word and the time in microseconds
    /// that it takes to fill.
    fn find_bucket(&self, set: usize, tag: u64, now: u64) -> (&AtomicU64, u64, u64) {
        let mut fullest = (&self.buckets[set], 0, u64::MAX);
        for bucket in &self.buckets[set..set + BUCKETS_PER_SET] {
            let word = bucket.load(Ordering::Relaxed);
            let refill_us = self.refill_us(word, now);
            if word & !TIME_MASK == tag {
                return (bucket, word, refill_us);
            }
            if refill_us < fullest.2 {
                fullest = (bucket, word, refill_us);
            }
        }
        (fullest.0, fullest.1, 0)
    }

    /// Returns the time in microseconds that a bucket takes to fill. A result beyond the maximum means that the
    /// clock has passed the time at which the bucket was full.
    fn refill_us(&self, word: u64, now: u64) -> u64 {
        let refill_us = (word & TIME_MASK).wrapping_sub(now) & TIME_MASK;
        if refill_us > self.burst * self.token_us { 0 } else { refill_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn limiter(requests: u32, period_s: u64, burst: u32, clients: usize) -> RateLimiter {
        let rate = Rate { requests, period: Duration::from_secs(period_s), burst };
        RateLimiter::new(rate, clients, RuleMode::Enforce).unwrap()
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(number))
    }

    fn taken(limiter: &RateLimiter, client: IpAddr, now: Duration, tries: usize) -> usize {
        (0..tries).filter(|_| limiter.take_token(client, now).is_ok()).count()
    }

    #[test]
    fn burst_then_steady_rate() {
        let limiter = limiter(10, 1, 5, 1024);
        let at = Duration::from_millis;
        assert_eq!(taken(&limiter, client(1), at(1_000), 20), 5);
        assert_eq!(limiter.take_token(client(1), at(1_000)), Err(at(100)));
        assert_eq!(limiter.take_token(client(1), at(1_040)), Err(at(60)));
        assert_eq!(taken(&limiter, client(2), at(1_000), 20), 5, "another client has a bucket of its own");
        assert_eq!(taken(&limiter, client(1), at(1_100), 20), 1);
        assert_eq!(taken(&limiter, client(1), at(1_300), 20), 2);
        assert_eq!(taken(&limiter, client(1), at(60_000), 20), 5, "a bucket holds no more than a burst");
        // Denied requests take no token.
        assert_eq!(taken(&limiter, client(1), at(60_000), 1_000), 0);
        assert_eq!(taken(&limiter, client(1), at(60_100), 20), 1);
    }

    #[test]
    fn clock_wraps_around() {
        let limiter = limiter(1, 1, 3, 64);
        let wrap = Duration::from_micros(1 << TIME_BITS);
        let second = Duration::from_secs(1);
        assert_eq!(taken(&limiter, client(1), wrap - second, 9), 3);
        assert_eq!(taken(&limiter, client(1), wrap, 9), 1);
        assert_eq!(taken(&limiter, client(1), wrap + second * 2, 9), 2);
        assert_eq!(taken(&limiter, client(1), wrap * 3, 9), 3);
    }

    #[test]
    fn ipv6_subnet_shares_one_bucket() {
        let limiter = limiter(1, 60, 4, 1024);
        let addresses = (0..100).map(|n| IpAddr::V6(Ipv6Addr::from_bits(0x2001_0db8 << 96 | n)));
        assert_eq!(addresses.map(|address| taken(&limiter, address, Duration::ZERO, 1)).sum::<usize>(), 4);
    }

    #[test]
    fn many_clients_do_not_evict_an_empty_bucket() {
        let limiter = limiter(1, 3600, 10, 64);
        let now = Duration::from_secs(5);
        assert_eq!(taken(&limiter, client(1), now, 20), 10);
        for other in 2..100_000 {
            let _ = limiter.take_token(client(other), now);
        }
        assert_eq!(taken(&limiter, client(1), now, 20), 0, "its bucket is the emptiest of its set");
        assert_eq!(limiter.buckets.len(), 64, "the table has a fixed size");
    }

    #[test]
    fn workers_share_buckets() {
        let limiter = limiter(1, 3600, 20, 64);
        let count = || {
            std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..4).map(|_| scope.spawn(|| taken(&limiter, client(1), Duration::from_secs(1), 100))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            })
        };
        let first = count();
        assert!((1..=20).contains(&first), "{first}");
        assert_eq!(first + count(), 20);
    }

    #[test]
    fn invalid_rates() {
        let rate = |requests, micros, burst| {
            let rate = Rate { requests, period: Duration::from_micros(micros), burst };
            RateLimiter::new(rate, 8, RuleMode::Enforce).err()
        };
        assert_eq!(rate(0, 1, 1), Some(RateError::Zero));
        assert_eq!(rate(1, 0, 1), Some(RateError::Zero));
        assert_eq!(rate(1, 1, 0), Some(RateError::Zero));
        assert_eq!(rate(2, 1, 1), Some(RateError::TooFast));
        assert_eq!(rate(1, 3_600_000_000, 25), Some(RateError::TooSlow));
        assert_eq!(rate(1, 3_600_000_000, 24), None);
    }
}
