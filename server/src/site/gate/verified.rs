//! Checks passwords off the worker, few at once, and remembers for a while which were right.
//!
//! What is remembered is a keyed hash of the name, of the stored hash and of the password, so
//! neither a password nor anything that would tell one stays in memory, and nothing holds
//! for a password that was changed since.

use super::users::Users;
use blake2::Blake2sMac256;
use blake2::digest::{KeyInit, Mac};
use selvedge::offload;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a password that was right need not be checked again.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Passwords that one worker remembers to be right.
const REMEMBERED_MAX: usize = 1024;
/// Passwords that wait on one worker to be checked.
const WAITING_MAX: usize = 64;

type Digest = [u8; 32];

/// One worker's checks.
pub(crate) struct Verifier {
    key: Digest,
    right: RefCell<HashMap<Digest, Remembered>>,
    waiting: Arc<Semaphore>,
    /// Checks at once, of all workers: each takes a core and, perhaps, much memory.
    at_once: Arc<Semaphore>,
}

struct Remembered {
    user: Rc<str>,
    until: Duration,
}

/// What a check comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// It is this user.
    Right(Rc<str>),
    /// There is no such user with this password.
    Wrong,
    /// Too many passwords wait to be checked.
    Busy,
}

impl Verifier {
    pub(crate) fn new(at_once: Arc<Semaphore>) -> Self {
        let mut key = Digest::default();
        for part in key.chunks_mut(8) {
            part.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
        }
        Self { key, right: RefCell::default(), waiting: Arc::new(Semaphore::new(WAITING_MAX)), at_once }
    }

    /// Whether there is such a user with this password, which takes as long for a stranger as
    /// for a user with another password.
    pub(super) async fn check(&self, users: &Users, name: &str, password: &[u8], now: Duration) -> Checked {
        let known = users.get(name);
        let digest = known.map(|hash| self.digest(&[name.as_bytes(), hash.text().as_bytes(), password]));
        if let Some(user) = digest.and_then(|digest| self.recall(&digest, now)) {
            return Checked::Right(user);
        }
        let Ok(_place) = self.waiting.clone().try_acquire_owned() else { return Checked::Busy };
        let Ok(turn) = self.at_once.clone().acquire_owned().await else { return Checked::Busy };
        // What came with the same password a moment before may have been checked by now.
        if let Some(user) = digest.and_then(|digest| self.recall(&digest, now)) {
            return Checked::Right(user);
        }
        let hash = known.unwrap_or_else(|| users.stand_in(name)).clone();
        let password = password.to_vec();
        let is_right = offload(move || {
            // Given up with the check, also when nobody waits for it any more.
            let _turn = turn;
            hash.verify(&password)
        });
        match (is_right.await, digest) {
            (Some(true), Some(digest)) => Checked::Right(self.remember(digest, name, now)),
            (Some(_), _) => Checked::Wrong,
            (None, _) => Checked::Busy,
        }
    }

    fn recall(&self, digest: &Digest, now: Duration) -> Option<Rc<str>> {
        let right = self.right.borrow();
        right.get(digest).filter(|remembered| now < remembered.until).map(|remembered| remembered.user.clone())
    }

    fn remember(&self, digest: Digest, name: &str, now: Duration) -> Rc<str> {
        let right = &mut *self.right.borrow_mut();
        if right.len() >= REMEMBERED_MAX {
            right.retain(|_, remembered| now < remembered.until);
        }
        if right.len() >= REMEMBERED_MAX {
            right.clear();
        }
        let user: Rc<str> = name.into();
        right.insert(digest, Remembered { user: user.clone(), until: now + REMEMBERED });
        user
    }

    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut mac = Blake2sMac256::new_from_slice(&self.key).expect("a key of 32 octets is one of its lengths");
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    fn verifier() -> Verifier {
        Verifier::new(Arc::new(Semaphore::new(1)))
    }

    #[test]
    fn what_was_right_is_remembered_for_a_while() {
        let (verifier, now) = (verifier(), Duration::from_secs(100));
        let digest = verifier.digest(&[b"ann", b"hash", b"password"]);
        assert_eq!(verifier.recall(&digest, now), None);
        verifier.remember(digest, "ann", now);
        assert_eq!(verifier.recall(&digest, now + REMEMBERED / 2).as_deref(), Some("ann"));
        assert_eq!(verifier.recall(&digest, now + REMEMBERED), None);
        for parts in [
            [&b"ann"[..], b"hash", b"passwore"],
            [b"ann", b"other", b"password"],
            [b"bob", b"hash", b"password"],
            [b"ann", b"hashp", b"assword"],
        ] {
            assert_eq!(verifier.recall(&verifier.digest(&parts), now), None);
        }
        assert_ne!(self::verifier().digest(&[b"ann"]), verifier.digest(&[b"ann"]), "each has a key of its own");
    }

    #[test]
    fn who_waits_behind_too_many_is_sent_away() {
        let (verifier, now) = (verifier(), Duration::ZERO);
        let hash = "$2y$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
        let users = Users::parse(&format!("ann:{hash}")).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let _busy = verifier.at_once.clone().try_acquire_owned().unwrap();
        let mut waiting: Vec<_> =
            (0..WAITING_MAX).map(|_| Box::pin(verifier.check(&users, "ann", b"wrong", now))).collect();
        assert!(waiting.iter_mut().all(|check| check.as_mut().poll(&mut context).is_pending()));
        let mut late = Box::pin(verifier.check(&users, "ann", b"wrong", now));
        assert_eq!(late.as_mut().poll(&mut context), Poll::Ready(Checked::Busy));
        // Whoever gives up makes room.
        waiting.pop();
        let mut next = Box::pin(verifier.check(&users, "ann", b"wrong", now));
        assert!(next.as_mut().poll(&mut context).is_pending());
        // Who is known to be right does not wait.
        let digest = verifier.digest(&[b"ann", hash.as_bytes(), b"right"]);
        verifier.remember(digest, "ann", now);
        let mut known = Box::pin(verifier.check(&users, "ann", b"right", now));
        assert_eq!(known.as_mut().poll(&mut context), Poll::Ready(Checked::Right("ann".into())));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let (verifier, now) = (verifier(), Duration::from_secs(1));
        for number in 0..REMEMBERED_MAX * 3 {
            let digest = verifier.digest(&[&number.to_le_bytes()]);
            verifier.remember(digest, "ann", now);
            assert!(verifier.right.borrow().len() <= REMEMBERED_MAX);
            assert!(verifier.recall(&digest, now).is_some());
        }
    }
}
