//! Knows which servers of a group work: by what happens to requests, and by checks.
//!
//! A server that failed too often is out for a while. Then one request at a time tries it: a success returns it to use,
//! a failure takes it out for twice the time. Time is an argument: the time since the start of the group.

use super::failure_history::{Failure, FailureHistory};
use super::rules::FailureRules;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Share of its weight that a server has when it returns to use, in thousandths.
const SLOW_START_SHARE: u32 = 100;
/// The whole weight, in thousandths.
const WHOLE_SHARE: u32 = 1000;

/// Whether a server gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Availability {
    /// It gets its share.
    InUse,
    /// It was out, and gets one request at a time until one succeeds.
    Trial,
    /// It gets none.
    Out,
}

/// The result of the last check of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    Passed,
    Failed,
}

const CHECK_FAILED: u8 = 2;
const CHECK_PASSED: u8 = 1;

/// The state of one server. Times are in milliseconds, plus 1.
#[derive(Debug, Default)]
struct ServerHealth {
    /// When the server may be tried again; 0 if it is in use. Changes while the histories are locked.
    out_until: AtomicU64,
    /// When it returned to use; 0 if it never was out.
    returned_at: AtomicU64,
    /// 0 before the first check.
    check: AtomicU8,
    /// Whether a success changes something, so that most successes take no lock.
    has_failed: AtomicBool,
}

/// The health of all servers of a group. Workers share it.
#[derive(Debug)]
pub(super) struct GroupHealth {
    servers: Box<[ServerHealth]>,
    histories: Mutex<Box<[FailureHistory]>>,
    rules: FailureRules,
    slow_start: Duration,
}

fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}

impl GroupHealth {
    pub(super) fn new(count: usize, rules: FailureRules, slow_start: Duration) -> Self {
        Self {
            servers: (0..count).map(|_| ServerHealth::default()).collect(),
            histories: Mutex::new((0..count).map(|_| FailureHistory::default()).collect()),
            rules,
            slow_start,
        }
    }

    /// A panic while the lock is held leaves the histories consistent.
    fn histories(&self) -> MutexGuard<'_, Box<[FailureHistory]>> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a server gets requests by its own health.
    pub(super) fn availability(&self, server: usize, now: Duration) -> Availability {
        if self.fails_check(server) {
            return Availability::Out;
        }
        match self.servers[server].out_until.load(Ordering::Relaxed) {
            0 => Availability::InUse,
            until if to_millis(now) < until => Availability::Out,
            _ => Availability::Trial,
        }
    }

    /// Returns for how long failures have taken a server out from now on; `None` if they have not, or if its last check
    /// failed.
    pub(super) fn out_for(&self, server: usize, now: Duration) -> Option<Duration> {
        let health = &self.servers[server];
        let has_failed_check = self.fails_check(server);
        let left = health.out_until.load(Ordering::Relaxed).saturating_sub(to_millis(now));
        (!has_failed_check && left > 0).then(|| Duration::from_millis(left))
    }

    /// Returns whether failures have taken out more than half of the servers that pass their checks. Then failures are ignored,
    /// because a few servers could not do the work of all, and a cause outside of the servers is likely. A failed check is
    /// never ignored: the server itself states that it cannot work.
    pub(super) fn is_ignored(&self, now: Duration) -> bool {
        let passing = || (0..self.servers.len()).filter(|&server| !self.fails_check(server));
        passing().filter(|&server| self.availability(server, now) == Availability::Out).count() > passing().count() / 2
    }

    /// Whether the last check of a server failed.
    pub(super) fn fails_check(&self, server: usize) -> bool {
        self.servers[server].check.load(Ordering::Relaxed) == CHECK_FAILED
    }

    /// Returns the share of its weight that a server has, in thousandths: less while it starts slowly.
    pub(super) fn share(&self, server: usize, now: Duration) -> u32 {
        let returned_at = self.servers[server].returned_at.load(Ordering::Relaxed);
        if returned_at == 0 || self.slow_start.is_zero() {
            return WHOLE_SHARE;
        }
        let passed = u128::from(to_millis(now).saturating_sub(returned_at));
        let all = self.slow_start.as_millis().max(1);
        let gained = passed.saturating_mul(u128::from(WHOLE_SHARE - SLOW_START_SHARE)) / all;
        u32::try_from(gained).map_or(WHOLE_SHARE, |gained| (SLOW_START_SHARE + gained).min(WHOLE_SHARE))
    }

    /// Records a failure. Returns for how long the server is out, if that takes it out.
    pub(super) fn failed(&self, server: usize, failure: Failure, now: Duration) -> Option<Duration> {
        let health = &self.servers[server];
        let mut histories = self.histories();
        health.has_failed.store(true, Ordering::Relaxed);
        let is_one_too_many = match health.out_until.load(Ordering::Relaxed) {
            0 => histories[server].record(failure, now, &self.rules),
            // A request that began before.
            until if to_millis(now) < until => return None,
            // The trial failed.
            _ => true,
        };
        if !is_one_too_many || !self.may_take_out(server) {
            return None;
        }
        let time = histories[server].eject(&self.rules);
        health.out_until.store(to_millis(now.saturating_add(time)), Ordering::Relaxed);
        Some(time)
    }

    /// Whether at most half of the group is out if this server is. A server on trial is still out. Call it with the
    /// histories locked.
    fn may_take_out(&self, server: usize) -> bool {
        let is_out = |other: &usize| *other != server && self.servers[*other].out_until.load(Ordering::Relaxed) != 0;
        let out = (0..self.servers.len()).filter(is_out).count();
        out < self.servers.len() / 2
    }

    /// Records a response of a working server. Returns whether that returns the server to use.
    pub(super) fn succeeded(&self, server: usize, now: Duration) -> bool {
        let health = &self.servers[server];
        if !health.has_failed.load(Ordering::Relaxed) {
            return false;
        }
        let mut histories = self.histories();
        let until = health.out_until.load(Ordering::Relaxed);
        if to_millis(now) < until {
            // A response to a request that began before, or while health is ignored.
            return false;
        }
        histories[server].succeeded();
        health.has_failed.store(false, Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        health.returned_at.store(to_millis(now), Ordering::Relaxed);
        health.out_until.store(0, Ordering::Relaxed);
        true
    }

    /// Records the result of a check. Returns whether it differs from the one before.
    pub(super) fn checked(&self, server: usize, result: CheckResult, now: Duration) -> bool {
        let health = &self.servers[server];
        let number = match result {
            CheckResult::Passed => CHECK_PASSED,
            CheckResult::Failed => CHECK_FAILED,
        };
        let before = health.check.swap(number, Ordering::Relaxed);
        if before == CHECK_FAILED && result == CheckResult::Passed {
            health.returned_at.store(to_millis(now), Ordering::Relaxed);
        }
        before != number && (before != 0 || result == CheckResult::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::ZERO;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn group(count: usize) -> GroupHealth {
        GroupHealth::new(count, FailureRules::default(), seconds(10))
    }

    fn take_out(health: &GroupHealth, server: usize, now: Duration) -> Option<Duration> {
        (0..3).filter_map(|_| health.failed(server, Failure::Exchange, now)).last()
    }

    fn availabilities(health: &GroupHealth, now: Duration) -> String {
        let mark = |server| match health.availability(server, now) {
            Availability::InUse => 'u',
            Availability::Trial => 't',
            Availability::Out => 'o',
        };
        (0..health.servers.len()).map(mark).collect()
    }

    #[test]
    fn a_server_is_out_then_tried_then_returns() {
        let health = group(2);
        assert_eq!(take_out(&health, 0, START), Some(seconds(10)));
        for (at, expected) in [(0, "ou"), (9, "ou"), (10, "tu"), (1000, "tu")] {
            assert_eq!(availabilities(&health, seconds(at)), expected, "{at} s");
        }
        // A response to a request that began before changes nothing.
        assert!(!health.succeeded(0, seconds(5)));
        assert_eq!(availabilities(&health, seconds(5)), "ou");
        assert_eq!(health.failed(0, Failure::Exchange, seconds(10)), Some(seconds(20)), "one failed trial is enough");
        assert_eq!(health.failed(0, Failure::Status, seconds(29)), None, "it is out already");
        assert_eq!(availabilities(&health, seconds(30)), "tu");
        assert!(health.succeeded(0, seconds(31)));
        assert_eq!(availabilities(&health, seconds(31)), "uu");
        assert!(!health.succeeded(0, seconds(31)), "it is in use already");
        assert_eq!(take_out(&health, 0, seconds(40)), Some(seconds(10)), "a success resets the time");
    }

    #[test]
    fn at_most_half_of_a_group_is_out() {
        for (count, expected) in [(1, "u"), (2, "ou"), (3, "ouu"), (4, "oouu"), (5, "oouuu")] {
            let health = group(count);
            for server in 0..count {
                take_out(&health, server, START);
            }
            assert_eq!(availabilities(&health, START), expected);
            assert!(!health.is_ignored(START));
        }
        // A server on trial is not in use yet, so no other one may leave.
        let health = group(2);
        take_out(&health, 0, START);
        assert_eq!(take_out(&health, 1, seconds(10)), None);
        assert!(health.succeeded(0, seconds(11)));
        assert!(take_out(&health, 1, seconds(12)).is_some());
    }

    #[test]
    fn checks_are_never_ignored() {
        let health = group(3);
        let check = |server, result, at| health.checked(server, result, seconds(at));
        assert!(!check(0, CheckResult::Passed, 0), "as expected");
        assert!(check(0, CheckResult::Failed, 1) && !check(0, CheckResult::Failed, 2));
        assert!(!health.is_ignored(seconds(2)));
        assert!(check(1, CheckResult::Failed, 2));
        assert_eq!(availabilities(&health, seconds(2)), "oou");
        assert!(!health.is_ignored(seconds(2)), "the last one gets all requests");
        take_out(&health, 2, seconds(2));
        assert!(health.is_ignored(seconds(2)), "its failures do not count");
        assert!(check(2, CheckResult::Failed, 3) && !health.is_ignored(seconds(3)), "none is left");
        assert!(check(0, CheckResult::Passed, 4));
        assert_eq!((health.share(0, seconds(4)), health.share(1, seconds(4))), (100, 1000));
    }

    #[test]
    fn a_server_that_returns_starts_slowly() {
        let health = group(2);
        assert_eq!(health.share(0, START), 1000);
        take_out(&health, 0, START);
        assert!(health.succeeded(0, seconds(10)));
        for (at, expected) in [(10, 100), (15, 550), (20, 1000), (1_000_000, 1000)] {
            assert_eq!(health.share(0, seconds(at)), expected, "{at} s");
        }
    }
}
