//! Checks passwords off the worker, few at once, and remembers for a while which were right.
//!
//! What is remembered is a keyed hash of the name, of the stored hash and of the password, so
//! neither a password nor anything that would tell one stays in memory, and nothing holds
//! for a password that was changed since. Each worker looks into a memory of its own; behind
//! those is one that all share, so that a user is known wherever the next connection leads,
//! and under the next configuration.
//!
//! Checks wait for each other. Each client has a small share of the room for that, so that
//! nobody is shut out by one who tries passwords. What comes with a password that is being
//! checked takes no room, but waits for that check: a page and its images are one.

use super::hashes::PasswordHash;
use super::users::Users;
use crate::site::network::client_key;
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use selvedge::offload;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// How long a password that was right need not be checked again, from its last use on.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How often what is used is remembered anew.
const RENEWED: Duration = Duration::from_secs(30);
/// Passwords that one worker, and all together, remember to be right.
const REMEMBERED_MAX: usize = 1024;
/// Passwords that all workers check at once: each takes a core and, perhaps, much memory.
pub(crate) const AT_ONCE_MAX: usize = 2;
/// Passwords that wait to be checked or are being checked, on all workers.
const WAITING_MAX: usize = 128;
/// Those among them that one client may have.
const WAITING_OF_CLIENT_MAX: usize = 4;

const _: () = assert!(WAITING_OF_CLIENT_MAX > AT_ONCE_MAX, "one client alone may use all there is");
const _: () = assert!(WAITING_OF_CLIENT_MAX * 8 <= WAITING_MAX, "a share is small");

type Digest = [u8; 32];

/// What all workers know of passwords. It outlives a configuration.
pub(crate) struct Passwords {
    key: Digest,
    right: Mutex<Right>,
    waiting: Arc<Mutex<Waiting>>,
    at_once: Arc<Semaphore>,
}

/// How many passwords of each client wait to be checked or are being checked.
type Waiting = HashMap<IpAddr, usize>;

/// One worker's checks.
pub(crate) struct Verifier {
    passwords: Arc<Passwords>,
    /// What this worker knows to be right.
    right: RefCell<Right>,
    /// What is being checked; whether it is right stands there once that is known.
    checks: RefCell<HashMap<Digest, Rc<OnceCell<bool>>>>,
}

/// Somebody who says who it is.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a [u8],
    pub(super) client: IpAddr,
    pub(super) now: Duration,
}

/// What a check comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    Right,
    /// There is no such user with this password.
    Wrong,
    NotNow(NotNow),
}

/// Why a password cannot be checked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotNow {
    /// Too many wait for that.
    Crowded,
    /// Too many of this client do.
    ShareTaken,
}

impl Default for Passwords {
    fn default() -> Self {
        let mut key = Digest::default();
        for part in key.chunks_mut(8) {
            part.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
        }
        Self { key, right: Mutex::default(), waiting: Arc::default(), at_once: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }
}

impl fmt::Debug for Passwords {
    /// The key stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passwords")
    }
}

impl Passwords {
    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut mac = Blake2sMac256::new_from_slice(&self.key).expect("a key of 32 octets is one of its lengths");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// Room for a password of a client to wait in.
    fn place_for(&self, client: IpAddr) -> Result<Place, NotNow> {
        let client = client_key(client);
        let mut waiting = lock(&self.waiting);
        if waiting.get(&client).is_some_and(|own| *own >= WAITING_OF_CLIENT_MAX) {
            return Err(NotNow::ShareTaken);
        }
        if waiting.values().sum::<usize>() >= WAITING_MAX {
            return Err(NotNow::Crowded);
        }
        *waiting.entry(client).or_default() += 1;
        Ok(Place { waiting: self.waiting.clone(), client })
    }
}

/// What is behind a lock. Nothing that could panic runs under one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Room that a password waits in and is checked in.
struct Place {
    waiting: Arc<Mutex<Waiting>>,
    client: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        let own = waiting.get_mut(&self.client).expect("who has a place is counted");
        *own -= 1;
        if *own == 0 {
            waiting.remove(&self.client);
        }
    }
}

/// Until when which passwords are remembered to be right.
#[derive(Default)]
struct Right(HashMap<Digest, Duration>);

impl Right {
    /// For how long a password is remembered yet.
    fn left(&self, digest: &Digest, now: Duration) -> Duration {
        self.0.get(digest).map_or(Duration::ZERO, |until| until.saturating_sub(now))
    }

    fn add(&mut self, digest: Digest, now: Duration) {
        if self.0.len() >= REMEMBERED_MAX {
            self.0.retain(|_, until| now < *until);
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.0.clear();
        }
        self.0.insert(digest, now + REMEMBERED + RENEWED);
    }
}

impl Verifier {
    pub(crate) fn new(passwords: Arc<Passwords>) -> Self {
        Self { passwords, right: RefCell::default(), checks: RefCell::default() }
    }

    /// Whether there is such a user with this password, which takes as long for a stranger as
    /// for a user with another password.
    pub(super) async fn check(&self, users: &Users, attempt: Attempt<'_>) -> Checked {
        let Attempt { name, password, now, .. } = attempt;
        let known = users.get(name);
        let hash = known.unwrap_or_else(|| users.stand_in(name));
        let digest = self.passwords.digest(&[name.as_bytes(), hash.text().as_bytes(), password]);
        if self.recall(&digest, now) && known.is_some() {
            return Checked::Right;
        }
        let check = self.join(digest);
        match check.is_right.get_or_try_init(|| self.verify(hash, &digest, attempt)).await {
            Ok(true) if known.is_some() => {
                self.remember(digest, now);
                Checked::Right
            }
            Ok(_) => Checked::Wrong,
            Err(not_now) => Checked::NotNow(not_now),
        }
    }

    /// Holds a password against a hash when its turn has come.
    async fn verify(&self, hash: &Arc<PasswordHash>, digest: &Digest, attempt: Attempt<'_>) -> Result<bool, NotNow> {
        let place = self.passwords.place_for(attempt.client)?;
        let turn = self.passwords.at_once.clone().acquire_owned().await.map_err(|_| NotNow::Crowded)?;
        // Another worker may have checked it meanwhile.
        if self.recall(digest, attempt.now) {
            return Ok(true);
        }
        let (hash, password) = (hash.clone(), attempt.password.to_vec());
        let verified = offload(move || {
            // Given up with the check, also when nobody waits for it any more.
            let _taken = (turn, place);
            hash.verify(&password)
        });
        verified.await.ok_or(NotNow::Crowded)
    }

    /// Whether a password is remembered to be right. Using it puts the end of that off.
    fn recall(&self, digest: &Digest, now: Duration) -> bool {
        let left = self.right.borrow().left(digest, now);
        if left > REMEMBERED {
            return true;
        }
        let is_right = !left.is_zero() || !lock(&self.passwords.right).left(digest, now).is_zero();
        if is_right {
            self.remember(*digest, now);
        }
        is_right
    }

    fn remember(&self, digest: Digest, now: Duration) {
        self.right.borrow_mut().add(digest, now);
        lock(&self.passwords.right).add(digest, now);
    }

    /// The check of a password, which may be under way.
    fn join(&self, digest: Digest) -> Check<'_> {
        let is_right = self.checks.borrow_mut().entry(digest).or_default().clone();
        Check { checks: &self.checks, digest, is_right }
    }
}

/// A share in the check of a password. The last one to leave takes it away.
struct Check<'v> {
    checks: &'v RefCell<HashMap<Digest, Rc<OnceCell<bool>>>>,
    digest: Digest,
    is_right: Rc<OnceCell<bool>>,
}

impl Drop for Check<'_> {
    fn drop(&mut self) {
        // Its own and that of the table.
        if Rc::strong_count(&self.is_right) == 2 {
            self.checks.borrow_mut().remove(&self.digest);
        }
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
        Users::parse(&format!("ann:{HASH}")).unwrap()
    }

    fn poll<F: Future>(check: &mut Pin<Box<F>>) -> Poll<F::Output> {
        check.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_was_right_is_remembered_for_a_while() {
        let (verifier, now) = (verifier(), Duration::from_secs(100));
        let digest_of = |parts: &[&[u8]]| verifier.passwords.digest(parts);
        let digest = digest_of(&[b"ann", b"hash", b"password"]);
        assert!(!verifier.recall(&digest, now));
        verifier.remember(digest, now);
        assert!(verifier.recall(&digest, now + REMEMBERED));
        // Every use puts the end off.
        assert!(verifier.recall(&digest, now + REMEMBERED * 2));
        assert!(!verifier.recall(&digest, now + REMEMBERED * 3 + RENEWED));
        for parts in [
            [&b"ann"[..], b"hash", b"passwore"],
            [b"ann", b"other", b"password"],
            [b"bob", b"hash", b"password"],
            [b"ann", b"hashp", b"assword"],
        ] {
            assert!(!verifier.recall(&digest_of(&parts), now));
        }
        assert_ne!(self::verifier().passwords.digest(&[b"ann"]), digest_of(&[b"ann"]), "each has a key of its own");
    }

    #[test]
    fn all_workers_know_what_one_has_found() {
        let (one, now) = (verifier(), Duration::from_secs(1));
        let other = Verifier::new(one.passwords.clone());
        let digest = one.passwords.digest(&[b"ann"]);
        one.remember(digest, now);
        assert!(other.recall(&digest, now));
        // What one goes on using the others go on knowing.
        for tens in 0..60 {
            assert!(one.recall(&digest, now + Duration::from_secs(tens * 10)));
        }
        assert!(other.recall(&digest, now + Duration::from_secs(600)));
    }

    #[test]
    fn a_client_takes_its_share_of_the_room_and_no_more() {
        let (verifier, users, now) = (verifier(), users(), Duration::ZERO);
        let _busy = verifier.passwords.at_once.clone().try_acquire_many_owned(AT_ONCE_MAX as u32).unwrap();
        let passwords: Vec<_> = (0..1000).map(|number: usize| number.to_string()).collect();
        let attempt = |client: &str, number: usize| {
            let (password, client) = (passwords[number].as_bytes(), client.parse().unwrap());
            Box::pin(verifier.check(&users, Attempt { name: "ann", password, client, now }))
        };
        let mut waiting: Vec<_> = (0..WAITING_OF_CLIENT_MAX).map(|n| attempt(&format!("2001:db8::{n}"), n)).collect();
        assert!(waiting.iter_mut().all(|check| poll(check).is_pending()));
        let mut late = attempt("2001:db8::ffff", 900);
        assert_eq!(poll(&mut late), Poll::Ready(Checked::NotNow(NotNow::ShareTaken)), "a /64 is one client");
        // Its next request with a password that waits already takes no room.
        let mut same = attempt("2001:db8::ffff", 0);
        assert!(poll(&mut same).is_pending());
        let mut others: Vec<_> = (waiting.len()..WAITING_MAX)
            .map(|n| attempt(&format!("192.0.2.{}", n / WAITING_OF_CLIENT_MAX), n))
            .collect();
        assert!(others.iter_mut().all(|check| poll(check).is_pending()));
        let mut late = attempt("198.51.100.1", 901);
        assert_eq!(poll(&mut late), Poll::Ready(Checked::NotNow(NotNow::Crowded)));
        // Whoever gives up makes room.
        others.pop();
        let mut next = attempt("198.51.100.1", 902);
        assert!(poll(&mut next).is_pending());
        // Who is known to be right does not wait.
        verifier.remember(verifier.passwords.digest(&[b"ann", HASH.as_bytes(), passwords[903].as_bytes()]), now);
        let mut known = attempt("2001:db8::1", 903);
        assert_eq!(poll(&mut known), Poll::Ready(Checked::Right));
        drop((waiting, same, others, late, next, known));
        assert!(lock(&verifier.passwords.waiting).is_empty() && verifier.checks.borrow().is_empty());
    }

    #[tokio::test]
    async fn a_strangers_password_is_checked_as_a_users_is() {
        let (verifier, users) = (verifier(), users());
        for name in ["ann", "eve"] {
            let busy = verifier.passwords.at_once.clone().try_acquire_many_owned(AT_ONCE_MAX as u32).unwrap();
            let client = "192.0.2.1".parse().unwrap();
            let attempt = Attempt { name, password: b"wrong", client, now: Duration::ZERO };
            let mut check = Box::pin(verifier.check(&users, attempt));
            assert!(poll(&mut check).is_pending(), "{name} has to wait for others");
            assert_eq!(lock(&verifier.passwords.waiting).values().sum::<usize>(), 1, "{name} has a place");
            drop(busy);
            assert_eq!(check.await, Checked::Wrong);
        }
    }

    #[test]
    fn a_hash_that_two_have_lets_no_stranger_in() {
        let (verifier, now) = (verifier(), Duration::ZERO);
        verifier.remember(verifier.passwords.digest(&[b"bob", HASH.as_bytes(), b"U*U"]), now);
        let _busy = verifier.passwords.at_once.clone().try_acquire_many_owned(AT_ONCE_MAX as u32).unwrap();
        let client = "192.0.2.1".parse().unwrap();
        let users = users();
        let mut check = Box::pin(verifier.check(&users, Attempt { name: "bob", password: b"U*U", client, now }));
        assert!(poll(&mut check).is_pending(), "bob was a user once");
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (verifier, now) = (verifier(), Duration::from_secs(1));
        for number in 0..REMEMBERED_MAX * 3 {
            let digest = verifier.passwords.digest(&[&number.to_le_bytes()]);
            verifier.remember(digest, now);
            assert!(verifier.right.borrow().0.len() <= REMEMBERED_MAX);
            assert!(lock(&verifier.passwords.right).0.len() <= REMEMBERED_MAX);
            assert!(verifier.recall(&digest, now));
        }
    }
}
