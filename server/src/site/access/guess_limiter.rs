//! Slows down the guessing of passwords: counts the wrong ones of each client and for each user name.
//!
//! Only wrong passwords count, so a client that knows the password is never slowed down. A name has more attempts than a
//! client, because otherwise one client could keep the user out. A password that is known to be right is not affected.

use super::rate_limiter::{Rate, RateError, RateLimiter};
use super::{DenialCounter, RuleMode};
use crate::site::network::client_key;
use std::net::IpAddr;
use std::time::Duration;

/// The number of clients, and of names, whose attempts are counted: 64 KiB each.
const KEYS_MAX: usize = 8 << 10;
/// How many times the attempts of a client a name has.
const NAME_FACTOR: u32 = 10;

/// Counts wrong passwords.
#[derive(Debug)]
pub(crate) struct GuessLimiter {
    by_client: RateLimiter,
    by_name: RateLimiter,
    mode: RuleMode,
    denials: DenialCounter,
}

impl GuessLimiter {
    /// Creates a limiter of `attempts` wrong passwords of a client in a time.
    ///
    /// # Errors
    /// If the rate is invalid.
    pub(crate) fn new(attempts: u32, time: Duration, mode: RuleMode) -> Result<Self, RateError> {
        let limiter = |attempts: u32| {
            RateLimiter::new(Rate { requests: attempts, period: time, burst: attempts }, KEYS_MAX, mode)
        };
        Ok(Self {
            by_client: limiter(attempts)?,
            by_name: limiter(attempts.saturating_mul(NAME_FACTOR))?,
            mode,
            denials: DenialCounter::default(),
        })
    }

    pub(super) fn mode(&self) -> RuleMode {
        self.mode
    }

    pub(super) fn denials(&self) -> &DenialCounter {
        &self.denials
    }

    /// Counts denials with a counter in place of its own.
    pub(crate) fn counted_by(self, denials: DenialCounter) -> Self {
        Self { denials, ..self }
    }

    /// Returns the counter of denials if the limiter is in dry-run mode.
    pub(super) fn dry_run_counter(&self) -> Option<&DenialCounter> {
        self.denials.in_dry_run(self.mode)
    }

    /// Returns the time until the client may try another password for the name, if it may not now.
    pub(super) fn time_to_wait(&self, client: IpAddr, name: &str) -> Option<Duration> {
        let by_client = self.by_client.time_to_token(&client_key(client));
        by_client.max(self.by_name.time_to_token(&name))
    }

    /// Counts a wrong password.
    pub(super) fn count_wrong(&self, client: IpAddr, name: &str) {
        self.by_client.spend(&client_key(client));
        self.by_name.spend(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_passwords_are_counted_by_client_and_by_name() {
        let limiter = GuessLimiter::new(3, Duration::from_secs(3600), RuleMode::Enforce).unwrap();
        let client = |number: u8| IpAddr::from([192, 0, 2, number]);
        for _ in 0..3 {
            assert_eq!(limiter.time_to_wait(client(1), "ann"), None);
            limiter.count_wrong(client(1), "ann");
        }
        assert!(limiter.time_to_wait(client(1), "bob").is_some_and(|wait| wait > Duration::from_secs(1000)));
        assert_eq!(limiter.time_to_wait(client(2), "ann"), None, "another client may still try");
        for number in 0..27 {
            limiter.count_wrong(client(100 + number), "ann");
        }
        assert!(limiter.time_to_wait(client(2), "ann").is_some(), "many clients guess the password of one name");
        assert_eq!(limiter.time_to_wait(client(2), "bob"), None);
    }
}
