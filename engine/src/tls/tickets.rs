//! Session tickets: the state of a session, encrypted with a key that only the servers know. A client that returns it
//! resumes the session without certificates.
//!
//! Keys change every eight hours. They derive from a secret and the number of the period, so that all workers, and all
//! processes or machines with the secret, have equal keys without exchanging messages.

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

/// How long a key encrypts. It decrypts for one more period.
const PERIOD_SECONDS: u64 = 8 * 60 * 60;
const SECRET_BYTES: usize = 32;
const KEY_NAME_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
/// The shortest content of a key file.
const FILE_BYTES_MIN: usize = 32;

static PROCESS_KEYS: OnceLock<TicketKeys> = OnceLock::new();

type Secret = [u8; SECRET_BYTES];

/// The keys of session tickets. Clones share them.
#[derive(Clone)]
pub struct TicketKeys(Arc<Mutex<Source>>);

enum Source {
    /// A secret that is replaced by its successor in each period. Earlier secrets do not derive from later ones.
    Ratchet(Ratchet),
    /// Secrets of several machines. The first encrypts.
    Fixed(Vec<Secret>),
}

struct Ratchet {
    period: u64,
    secret: Secret,
    previous: Option<Secret>,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// Creates random keys.
    pub fn random() -> Self {
        let mut secret = Secret::default();
        // Without random numbers, no handshake succeeds either.
        rand::fill(&mut secret).expect("the system has random numbers");
        Self::new(Source::Ratchet(Ratchet { period: current_period(), secret, previous: None }))
    }

    /// Returns the keys of this process: random ones, or those of [`TicketKeys::continue_with`].
    pub fn of_process() -> &'static Self {
        PROCESS_KEYS.get_or_init(Self::random)
    }

    /// Makes exported keys those of this process, so that it continues the sessions of another one. Without effect if
    /// they are not from [`TicketKeys::export`], or the process already uses keys.
    pub fn continue_with(exported: &[u8]) {
        if let Some(keys) = Self::import(exported) {
            let _ = PROCESS_KEYS.set(keys);
        }
    }

    /// Uses secrets that several machines share, such as the content of files. The first encrypts, and all decrypt. Each
    /// has at least 32 random bytes. `None` if a secret is shorter or none is given.
    pub fn from_secrets(secrets: &[Vec<u8>]) -> Option<Self> {
        if secrets.is_empty() || secrets.iter().any(|secret| secret.len() < FILE_BYTES_MIN) {
            return None;
        }
        let extract =
            |text: &Vec<u8>| expand(&Salt::new(HKDF_SHA256, b"selvedge ticket file").extract(text), &[b"secret"]);
        Some(Self::new(Source::Fixed(secrets.iter().map(extract).collect())))
    }

    /// Restores keys from [`TicketKeys::export`]. `None` if the bytes are not from there.
    pub fn import(bytes: &[u8]) -> Option<Self> {
        let (period, secrets) = bytes.split_first_chunk::<8>()?;
        let (period, secrets) = (u64::from_be_bytes(*period), secrets.as_chunks::<SECRET_BYTES>());
        let (secret, previous) = match secrets {
            ([secret], []) => (*secret, None),
            ([secret, previous], []) => (*secret, Some(*previous)),
            _ => return None,
        };
        Some(Self::new(Source::Ratchet(Ratchet { period, secret, previous })))
    }

    /// Returns the current keys as bytes, for another process. Empty for keys that other machines have as well.
    pub fn export(&self) -> Vec<u8> {
        match &mut *self.lock() {
            Source::Fixed(_) => Vec::new(),
            Source::Ratchet(ratchet) => {
                ratchet.advance(current_period());
                let previous = ratchet.previous.as_ref().map_or(&[][..], |previous| previous);
                [&ratchet.period.to_be_bytes()[..], &ratchet.secret, previous].concat()
            }
        }
    }

    fn new(source: Source) -> Self {
        Self(Arc::new(Mutex::new(source)))
    }

    fn lock(&self) -> MutexGuard<'_, Source> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys of a host in a period. The first encrypts.
    fn keys_of(&self, period: u64, identity: &[u8]) -> Vec<TicketKey> {
        let key = |secret: &Secret, period: u64| TicketKey::derive(secret, period, identity);
        match &mut *self.lock() {
            Source::Ratchet(ratchet) => {
                ratchet.advance(period);
                let previous = ratchet.previous.map(|secret| key(&secret, ratchet.period.wrapping_sub(1)));
                [key(&ratchet.secret, ratchet.period)].into_iter().chain(previous).collect()
            }
            // The clocks of the machines may differ.
            Source::Fixed(secrets) => {
                let periods = [period, period.wrapping_sub(1), period.wrapping_add(1)];
                periods.into_iter().flat_map(|period| secrets.iter().map(move |secret| key(secret, period))).collect()
            }
        }
    }
}

impl Ratchet {
    /// Moves on to a period. A clock that was set back changes nothing.
    fn advance(&mut self, period: u64) {
        while self.period < period {
            let next = expand(&Prk::new_less_safe(HKDF_SHA256, &self.secret), &[b"next"]);
            // A key that was not used for a whole period is not needed.
            self.previous = Some(std::mem::replace(&mut self.secret, next));
            self.period += 1;
        }
    }
}

/// Returns the number of the current period.
fn current_period() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_epoch.map_or(0, |time| time.as_secs() / PERIOD_SECONDS)
}

/// The length of a derived value.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives a value from a secret.
fn expand<const N: usize>(secret: &Prk, info: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    let expanded = secret.expand(info, Length(N)).and_then(|okm| okm.fill(&mut out));
    expanded.expect("the length is within the bounds of HKDF");
    out
}

/// A key with the name that its tickets begin with.
struct TicketKey {
    name: [u8; KEY_NAME_BYTES],
    key: RandomizedNonceKey,
}

impl TicketKey {
    fn derive(secret: &Secret, period: u64, identity: &[u8]) -> Self {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret);
        let period = period.to_be_bytes();
        let key: [u8; 32] = expand(&secret, &[b"key", &period, identity]);
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key).expect("the length is that of the algorithm");
        Self { name: expand(&secret, &[b"name", &period, identity]), key }
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut encrypted = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(self.name), &mut encrypted).ok()?;
        Some([&self.name[..], nonce.as_ref(), &encrypted].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (nonce, encrypted) = ticket.strip_prefix(&self.name)?.split_first_chunk::<NONCE_BYTES>()?;
        let mut plain = encrypted.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, Aad::from(self.name), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

/// The tickets of one host.
pub(super) struct HostTickets {
    keys: TicketKeys,
    identity: Box<[u8]>,
    derived: Mutex<Option<DerivedKeys>>,
}

/// The keys of a host and the period that they were derived for.
type DerivedKeys = (u64, Arc<[TicketKey]>);

impl fmt::Debug for HostTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostTickets")
    }
}

impl HostTickets {
    pub(super) fn new(keys: TicketKeys, identity: &[u8]) -> Self {
        Self { keys, identity: identity.into(), derived: Mutex::new(None) }
    }

    fn keys_at(&self, period: u64) -> Arc<[TicketKey]> {
        let mut derived = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        match &*derived {
            Some((at, keys)) if *at == period => keys.clone(),
            _ => {
                let keys: Arc<[TicketKey]> = self.keys.keys_of(period, &self.identity).into();
                *derived = Some((period, keys.clone()));
                keys
            }
        }
    }

    fn encrypt_at(&self, period: u64, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys_at(period).first()?.encrypt(plain)
    }

    fn decrypt_at(&self, period: u64, ticket: &[u8]) -> Option<Vec<u8>> {
        self.keys_at(period).iter().find_map(|key| key.decrypt(ticket))
    }
}

impl ProducesTickets for HostTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD_SECONDS as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.encrypt_at(current_period(), plain)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.decrypt_at(current_period(), ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"the state of a session";

    fn host(keys: &TicketKeys, identity: &str) -> HostTickets {
        HostTickets::new(keys.clone(), identity.as_bytes())
    }

    #[test]
    fn tickets_last_one_more_period_than_their_key_encrypts() {
        let now = current_period();
        for keys in [TicketKeys::random(), TicketKeys::from_secrets(&[vec![7; 48]]).unwrap()] {
            let host = host(&keys, "a");
            let ticket = host.encrypt_at(now, PLAIN).unwrap();
            assert_eq!(host.decrypt_at(now, &ticket).as_deref(), Some(PLAIN));
            assert_eq!(host.decrypt_at(now + 1, &ticket).as_deref(), Some(PLAIN));
            assert_eq!(host.decrypt_at(now + 2, &ticket), None);
        }
    }

    #[test]
    fn tickets_are_bound_to_a_host() {
        let keys = TicketKeys::random();
        let ticket = host(&keys, "a").encrypt(PLAIN).unwrap();
        assert_eq!(host(&keys, "a").decrypt(&ticket).as_deref(), Some(PLAIN));
        assert_eq!(host(&keys, "b").decrypt(&ticket), None);
        assert_eq!(host(&TicketKeys::random(), "a").decrypt(&ticket), None);
    }

    #[test]
    fn a_changed_ticket_is_refused() {
        let host = host(&TicketKeys::random(), "a");
        let ticket = host.encrypt(PLAIN).unwrap();
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(host.decrypt(&changed), None, "byte {at}");
            assert_eq!(host.decrypt(&ticket[..at]), None, "the first {at} bytes");
        }
    }

    #[test]
    fn another_process_takes_the_keys_over() {
        let (first, now) = (TicketKeys::random(), current_period());
        let early = host(&first, "a").encrypt_at(now - 1, PLAIN).unwrap();
        let second = TicketKeys::import(&first.export()).unwrap();
        let late = host(&first, "a").encrypt_at(now + 1, PLAIN).unwrap();
        assert_eq!(host(&second, "a").decrypt_at(now, &early).as_deref(), Some(PLAIN));
        assert_eq!(host(&second, "a").decrypt_at(now + 1, &late).as_deref(), Some(PLAIN), "both move on alike");
        for bytes in [&[][..], &[0; 39], &[0; 41], &[0; 104]] {
            assert!(TicketKeys::import(bytes).is_none());
        }
    }

    #[test]
    fn machines_share_secrets_in_any_order() {
        let (old, new) = (vec![1; 32], vec![2; 32]);
        let [before, after] =
            [[old.clone(), new.clone()], [new, old]].map(|all| TicketKeys::from_secrets(&all).unwrap());
        let (now, ticket) = (current_period(), host(&before, "a").encrypt(PLAIN).unwrap());
        assert_eq!(host(&after, "a").decrypt_at(now, &ticket).as_deref(), Some(PLAIN));
        assert_eq!(host(&after, "a").decrypt_at(now - 1, &ticket).as_deref(), Some(PLAIN), "a clock may be late");
        assert!(TicketKeys::from_secrets(&[]).is_none());
        assert!(TicketKeys::from_secrets(&[vec![0; 31]]).is_none());
    }
}
