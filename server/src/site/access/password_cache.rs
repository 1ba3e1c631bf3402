//! Verifies passwords on blocking threads, a few at once, and caches valid ones for a time.
//!
//! The cache key is a keyed hash of the name, the stored hash and the password. So no password stays in memory,
//! and a changed password invalidates its entry. Each worker has a cache of its own, behind which all workers
//! share one. So a user stays verified on every worker and after a reload.
//!
//! Checks queue. Each client has a small share of the queue, so that one client that guesses passwords does not
//! block others. Concurrent requests with one password share one check and one slot, since a page and its
//! images arrive together.

use super::password_hash::PasswordHash;
use super::users::Users;
use crate::site::network::client_key;
use crate::site::single_flight::SingleFlight;
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use selvedge::cache::Cache;
use selvedge::spawn_blocking;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a valid password is cached after its last use.
const CACHE_TIME: Duration = Duration::from_secs(60);
/// How often an entry in use is extended.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// The maximum number of entries in the cache of a worker, and in the shared one.
const CACHED_MAX: usize = 1024;
/// The maximum number of concurrent checks on all workers. Each takes a core, and much memory with Argon2.
pub(crate) const CHECKS_AT_ONCE_MAX: usize = 2;
/// The maximum number of checks that wait or run, on all workers.
const WAITING_MAX: usize = 128;
/// The maximum number of waiting or running checks of one client.
const WAITING_PER_CLIENT_MAX: usize = 4;

const _: () = assert!(WAITING_PER_CLIENT_MAX > CHECKS_AT_ONCE_MAX, "one client alone can use all check permits");
const _: () = assert!(WAITING_PER_CLIENT_MAX * 8 <= WAITING_MAX, "the share of a client is small");

type Digest = [u8; 32];

/// The state of password checks that all workers share. It outlives a configuration.
pub(crate) struct PasswordCache {
    key: Digest,
    verified: Mutex<VerifiedPasswords>,
    waiting: Arc<Mutex<WaitingByClient>>,
    check_permits: Arc<Semaphore>,
}

/// The number of checks of each client that wait or run.
type WaitingByClient = HashMap<IpAddr, usize>;

/// Verifies passwords for one worker.
pub(crate) struct Verifier {
    shared: Arc<PasswordCache>,
    /// The cache of this worker.
    verified: RefCell<VerifiedPasswords>,
    /// The checks of this worker that wait or run.
    checks: SingleFlight<Digest, bool>,
}

/// The credentials of a request, its client, and its time.
#[derive(Clone, Copy)]
pub(super) struct LoginAttempt<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a [u8],
    pub(super) client: IpAddr,
    pub(super) now: Duration,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    Valid,
    /// The user is unknown or the password is wrong.
    Invalid,
    Busy(Busy),
}

/// Why a password cannot be checked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// Too many checks are waiting.
    QueueFull,
    /// Too many checks of this client are waiting.
    ClientShareFull,
}

impl Default for PasswordCache {
    fn default() -> Self {
        let mut key = Digest::default();
        for part in key.chunks_mut(8) {
            part.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
        }
        Self {
            key,
            verified: Mutex::default(),
            waiting: Arc::default(),
            check_permits: Arc::new(Semaphore::new(CHECKS_AT_ONCE_MAX)),
        }
    }
}

impl fmt::Debug for PasswordCache {
    /// Omits the key, so that it never gets into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordCache")
    }
}

impl PasswordCache {
    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut mac = Blake2sMac256::new_from_slice(&self.key).expect("BLAKE2s accepts a key of 32 bytes");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Acquires a queue slot for a check of this client.
    fn acquire_slot(&self, client: IpAddr) -> Result<QueueSlot, Busy> {
        let client = client_key(client);
        let mut waiting = lock(&self.waiting);
        if waiting.get(&client).is_some_and(|count| *count >= WAITING_PER_CLIENT_MAX) {
            return Err(Busy::ClientShareFull);
        }
        if waiting.values().sum::<usize>() >= WAITING_MAX {
            return Err(Busy::QueueFull);
        }
        *waiting.entry(client).or_default() += 1;
        Ok(QueueSlot { waiting: self.waiting.clone(), client })
    }
}

/// Locks a mutex. No code panics while it has the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A queue slot of a check, released when it is dropped.
struct QueueSlot {
    waiting: Arc<Mutex<WaitingByClient>>,
    client: IpAddr,
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        let count = waiting.get_mut(&self.client).expect("a slot is counted for its client");
        *count -= 1;
        if *count == 0 {
            waiting.remove(&self.client);
        }
    }
}

/// The digests of valid passwords, with the time at which each expires.
struct VerifiedPasswords(Cache<Digest, Duration>);

impl Default for VerifiedPasswords {
    fn default() -> Self {
        Self(Cache::new(CACHED_MAX))
    }
}

impl VerifiedPasswords {
    /// Returns for how long an entry is still valid; zero if it is missing or expired.
    fn time_left(&self, digest: &Digest, now: Duration) -> Duration {
        self.0.get(digest).map_or(Duration::ZERO, |until| until.saturating_sub(now))
    }

    fn add(&mut self, digest: Digest, now: Duration) {
        self.0.insert(digest, now + CACHE_TIME + REFRESH_INTERVAL, 1);
    }
}

impl Verifier {
    pub(crate) fn new(shared: Arc<PasswordCache>) -> Self {
        Self { shared, verified: RefCell::default(), checks: SingleFlight::default() }
    }

    /// Whether the password of a user is known to be right.
    pub(super) fn is_verified(&self, users: &Users, attempt: LoginAttempt<'_>) -> bool {
        let LoginAttempt { name, password, now, .. } = attempt;
        users.get(name).is_some_and(|hash| {
            self.lookup(&self.shared.digest(&[name.as_bytes(), hash.text().as_bytes(), password]), now)
        })
    }

    /// Checks the password of a user. An unknown user takes as long as a wrong password.
    pub(super) async fn check(&self, users: &Users, attempt: LoginAttempt<'_>) -> CheckResult {
        let LoginAttempt { name, password, now, .. } = attempt;
        let user_hash = users.get(name);
        // Without users, the duration of a check reveals nothing.
        let Some(hash) = user_hash.or_else(|| users.decoy(name)) else { return CheckResult::Invalid };
        let digest = self.shared.digest(&[name.as_bytes(), hash.text().as_bytes(), password]);
        if self.lookup(&digest, now) && user_hash.is_some() {
            return CheckResult::Valid;
        }
        match self.checks.run(digest, self.verify(hash, &digest, attempt)).await {
            Ok(true) if user_hash.is_some() => {
                self.insert(digest, now);
                CheckResult::Valid
            }
            Ok(_) => CheckResult::Invalid,
            Err(busy) => CheckResult::Busy(busy),
        }
    }

    /// Waits for a check permit and compares the password with the hash.
    async fn verify(&self, hash: &Arc<PasswordHash>, digest: &Digest, attempt: LoginAttempt<'_>) -> Result<bool, Busy> {
        let slot = self.shared.acquire_slot(attempt.client)?;
        let permit = self.shared.check_permits.clone().acquire_owned().await.map_err(|_| Busy::QueueFull)?;
        // Another worker may have finished this check meanwhile.
        if self.lookup(digest, attempt.now) {
            return Ok(true);
        }
        let (hash, password) = (hash.clone(), attempt.password.to_vec());
        let verified = spawn_blocking(move || {
            // Released when the check ends, also if the request was cancelled.
            let _released = (permit, slot);
            hash.verify(&password)
        });
        verified.await.ok_or(Busy::QueueFull)
    }

    /// Whether a password is cached as valid. Extends its entry.
    fn lookup(&self, digest: &Digest, now: Duration) -> bool {
        let time_left = self.verified.borrow().time_left(digest, now);
        if time_left > CACHE_TIME {
            return true;
        }
        let is_valid = !time_left.is_zero() || !lock(&self.shared.verified).time_left(digest, now).is_zero();
        if is_valid {
            self.insert(*digest, now);
        }
        is_valid
    }

    fn insert(&self, digest: Digest, now: Duration) {
        self.verified.borrow_mut().add(digest, now);
        lock(&self.shared.verified).add(digest, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    const HASH: &str = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    fn verifier() -> Verifier {
        Verifier::new(Arc::default())
    }

    fn users() -> Users {
        Users::parse(&format!("ann:{HASH}")).0
    }

    fn poll<F: Future>(check: &mut Pin<Box<F>>) -> Poll<F::Output> {
        check.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn valid_password_is_cached_for_a_time() {
        let (verifier, now) = (verifier(), Duration::from_secs(100));
        let digest_of = |parts: &[&[u8]]| verifier.shared.digest(parts);
        let digest = digest_of(&[b"ann", b"hash", b"password"]);
        assert!(!verifier.lookup(&digest, now));
        verifier.insert(digest, now);
        assert!(verifier.lookup(&digest, now + CACHE_TIME));
        // Every use extends the entry.
        assert!(verifier.lookup(&digest, now + CACHE_TIME * 2));
        assert!(!verifier.lookup(&digest, now + CACHE_TIME * 3 + REFRESH_INTERVAL));
        for parts in [
            [&b"ann"[..], b"hash", b"passwore"],
            [b"ann", b"other", b"password"],
            [b"bob", b"hash", b"password"],
            [b"ann", b"hashp", b"assword"],
        ] {
            assert!(!verifier.lookup(&digest_of(&parts), now));
        }
        assert_ne!(self::verifier().shared.digest(&[b"ann"]), digest_of(&[b"ann"]), "each cache has its own key");
    }

    #[test]
    fn workers_share_the_cache() {
        let (one, now) = (verifier(), Duration::from_secs(1));
        let other = Verifier::new(one.shared.clone());
        let digest = one.shared.digest(&[b"ann"]);
        one.insert(digest, now);
        assert!(other.lookup(&digest, now));
        // An entry that one worker uses stays valid for the others.
        for tens in 0..60 {
            assert!(one.lookup(&digest, now + Duration::from_secs(tens * 10)));
        }
        assert!(other.lookup(&digest, now + Duration::from_secs(600)));
    }

    #[test]
    fn waiting_checks_per_client_are_bounded() {
        let (verifier, users, now) = (verifier(), users(), Duration::ZERO);
        let _busy = verifier.shared.check_permits.clone().try_acquire_many_owned(CHECKS_AT_ONCE_MAX as u32).unwrap();
        let passwords: Vec<_> = (0..1000).map(|number: usize| number.to_string()).collect();
        let attempt = |client: &str, number: usize| {
            let (password, client) = (passwords[number].as_bytes(), client.parse().unwrap());
            Box::pin(verifier.check(&users, LoginAttempt { name: "ann", password, client, now }))
        };
        let mut waiting: Vec<_> = (0..WAITING_PER_CLIENT_MAX).map(|n| attempt(&format!("2001:db8::{n}"), n)).collect();
        assert!(waiting.iter_mut().all(|check| poll(check).is_pending()));
        let mut late = attempt("2001:db8::ffff", 900);
        assert_eq!(poll(&mut late), Poll::Ready(CheckResult::Busy(Busy::ClientShareFull)), "a /64 is one client");
        // Another request with a waiting password takes no slot.
        let mut joined = attempt("2001:db8::ffff", 0);
        assert!(poll(&mut joined).is_pending());
        let mut others: Vec<_> = (waiting.len()..WAITING_MAX)
            .map(|n| attempt(&format!("192.0.2.{}", n / WAITING_PER_CLIENT_MAX), n))
            .collect();
        assert!(others.iter_mut().all(|check| poll(check).is_pending()));
        let mut late = attempt("198.51.100.1", 901);
        assert_eq!(poll(&mut late), Poll::Ready(CheckResult::Busy(Busy::QueueFull)));
        // A cancelled check releases its slot.
        others.pop();
        let mut next = attempt("198.51.100.1", 902);
        assert!(poll(&mut next).is_pending());
        // A cached password does not wait.
        verifier.insert(verifier.shared.digest(&[b"ann", HASH.as_bytes(), passwords[903].as_bytes()]), now);
        let mut cached = attempt("2001:db8::1", 903);
        assert_eq!(poll(&mut cached), Poll::Ready(CheckResult::Valid));
        drop((waiting, joined, others, late, next, cached));
        assert!(lock(&verifier.shared.waiting).is_empty() && verifier.checks.is_idle());
    }

    #[tokio::test]
    async fn unknown_user_takes_a_full_check() {
        let (verifier, users) = (verifier(), users());
        for name in ["ann", "eve"] {
            let busy = verifier.shared.check_permits.clone().try_acquire_many_owned(CHECKS_AT_ONCE_MAX as u32).unwrap();
            let client = "192.0.2.1".parse().unwrap();
            let attempt = LoginAttempt { name, password: b"wrong", client, now: Duration::ZERO };
            let mut check = Box::pin(verifier.check(&users, attempt));
            assert!(poll(&mut check).is_pending(), "the check of {name} waits");
            assert_eq!(lock(&verifier.shared.waiting).values().sum::<usize>(), 1, "the check of {name} has a slot");
            drop(busy);
            assert_eq!(check.await, CheckResult::Invalid);
        }
    }

    #[test]
    fn removed_user_is_not_served_from_the_cache() {
        let (verifier, now) = (verifier(), Duration::ZERO);
        verifier.insert(verifier.shared.digest(&[b"bob", HASH.as_bytes(), b"U*U"]), now);
        let _busy = verifier.shared.check_permits.clone().try_acquire_many_owned(CHECKS_AT_ONCE_MAX as u32).unwrap();
        let client = "192.0.2.1".parse().unwrap();
        let users = users();
        let mut check = Box::pin(verifier.check(&users, LoginAttempt { name: "bob", password: b"U*U", client, now }));
        assert!(poll(&mut check).is_pending(), "bob is no user any more");
    }

    #[test]
    fn cache_size_is_bounded() {
        let (verifier, now) = (verifier(), Duration::from_secs(1));
        for number in 0..CACHED_MAX * 3 {
            let digest = verifier.shared.digest(&[&number.to_le_bytes()]);
            verifier.insert(digest, now);
            assert!(verifier.verified.borrow().0.len() <= CACHED_MAX);
            assert!(lock(&verifier.shared.verified).0.len() <= CACHED_MAX);
            assert!(verifier.lookup(&digest, now));
        }
    }
}
