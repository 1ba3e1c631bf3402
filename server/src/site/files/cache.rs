//! What a worker remembers of files, of all its sites together, bounded in entries, bytes
//! and descriptors.
//!
//! Two generations: what is asked for moves to the young one, and when that is full, or old
//! enough, it becomes the old one and what was old is forgotten. So what is used stays, a file
//! that is gone is let go of, and nothing has to be ordered on the way of a request. What is
//! forgotten is let go of little by little, since thousands at once hold everybody up, and all that is
//! held stays within what two generations may have.

use super::directories::Directories;
use super::resource::Resource;
use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap, hash_map};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

/// Entries of one generation.
const ENTRIES_MAX: usize = 8 * 1024;
/// Bytes that one generation keeps.
pub(crate) const BYTES_MAX: usize = 32 << 20;
/// How long a generation is the young one at the most. What nobody asks for is held for no more than
/// twice that and [`LET_GO_TIME`] while anything is asked for: its descriptor, and its space on the disk once
/// it is deleted.
const YOUNG_TIME: Duration = Duration::from_secs(60);
/// Within so long what is forgotten is let go of, also where little comes: a part of it for each moment that passed.
const LET_GO_TIME: Duration = Duration::from_secs(30);
/// Open files that one generation of all workers keeps.
const OPEN_FILES_MAX: usize = 2048;

/// A file and when it was last seen to be as it is.
pub(super) struct Cached {
    pub(super) resource: Rc<Resource>,
    pub(super) checked: Duration,
    /// What it counts for.
    bytes: usize,
    open: usize,
}

/// Whose path it is, and the path.
#[derive(PartialEq, Eq)]
pub(super) struct Key {
    pub(super) owner: Owner,
    pub(super) path: Box<[u8]>,
}

/// A key that need not be made to be looked for.
#[derive(Clone, Copy)]
pub(super) struct KeyRef<'a> {
    pub(super) owner: Owner,
    pub(super) path: &'a [u8],
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        KeyRef { owner: self.owner, path: &self.path }.hash(state);
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.owner.0);
        state.write(self.path);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.owner == key.owner && *self.path == *key.path
    }
}

/// Files, and what they count for together. Where a path of a request leads to a file by a star, clients choose
/// what it is, so the hash has a secret.
#[derive(Default)]
struct Generation {
    files: HashMap<Key, Cached, RandomState>,
    bytes: usize,
    open: usize,
}

impl Generation {
    fn insert(&mut self, key: Key, cached: Cached) {
        self.bytes += cached.bytes;
        self.open += cached.open;
        self.files.insert(key, cached);
    }

    fn remove(&mut self, key: &KeyRef<'_>) -> Option<Cached> {
        let cached = self.files.remove(key)?;
        self.bytes -= cached.bytes;
        self.open -= cached.open;
        Some(cached)
    }

    fn forget(&mut self, owner: Owner) {
        let (bytes, open) = (&mut self.bytes, &mut self.open);
        self.files.retain(|key, cached| {
            if key.owner == owner {
                *bytes -= cached.bytes;
                *open -= cached.open;
            }
            key.owner != owner
        });
    }
}

/// What is left of a generation that was forgotten.
struct Forgotten {
    files: hash_map::IntoIter<Key, Cached>,
    bytes: usize,
    open: usize,
    /// How many they were at first.
    count: usize,
    since: Duration,
}

impl Forgotten {
    fn new(Generation { files, bytes, open }: Generation, since: Duration) -> Self {
        Self { count: files.len(), files: files.into_iter(), bytes, open, since }
    }

    /// Lets go of one; false when there is none.
    fn let_go(&mut self) -> bool {
        let next = self.files.next();
        if let Some((_, cached)) = &next {
            self.bytes -= cached.bytes;
            self.open -= cached.open;
        }
        next.is_some()
    }

    /// Whether more are left than [`LET_GO_TIME`] allows by now.
    fn is_late(&self, now: Duration) -> bool {
        let left = LET_GO_TIME.saturating_sub(now.saturating_sub(self.since));
        self.files.len() as f64 > self.count as f64 * left.as_secs_f64() / LET_GO_TIME.as_secs_f64()
    }
}

/// Whose paths they are: the same path may be another file elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) struct Owner(u32);

pub(in crate::site) struct Cache {
    young: Generation,
    old: Generation,
    /// What was old, as far as it was not let go of.
    forgotten: Forgotten,
    young_since: Duration,
    open_max: usize,
    owners: u32,
    /// What is known of directories, by the same owners.
    pub(super) directories: Rc<Directories>,
}

impl Cache {
    pub(in crate::site) fn new(workers: usize) -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
        // A sixteenth of the descriptors, for two generations on each worker.
        let share = usize::try_from(descriptors / 16).unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        Self {
            young: Generation::default(),
            old: Generation::default(),
            forgotten: Forgotten::new(Generation::default(), Duration::ZERO),
            young_since: Duration::ZERO,
            open_max: (share / workers.max(1) / 2).max(4),
            owners: 0,
            directories: Rc::default(),
        }
    }

    /// Somebody who has remembered nothing yet.
    pub(in crate::site) fn new_owner(&mut self) -> Owner {
        self.owners += 1;
        Owner(self.owners)
    }

    pub(super) fn get(&self, owner: Owner, path: &[u8]) -> Option<&Cached> {
        let key = KeyRef { owner, path };
        self.young.files.get(&key).or_else(|| self.old.files.get(&key))
    }

    /// Notes that a file is as it was. This is also what moves it to the young generation:
    /// whatever is in use is checked often.
    pub(super) fn renew(&mut self, owner: Owner, path: &[u8], now: Duration) {
        if self.is_past(now) {
            self.begin_generation(now);
        }
        let key = KeyRef { owner, path };
        if let Some(cached) = self.young.files.get_mut(&key) {
            cached.checked = now;
            self.let_go(now);
        } else if let Some(cached) = self.old.remove(&key) {
            self.insert(owner, path, cached.resource, now);
        }
    }

    pub(super) fn insert(&mut self, owner: Owner, path: &[u8], resource: Rc<Resource>, now: Duration) {
        self.remove(owner, path);
        let (bytes, open) = (resource.memory_bytes() + path.len(), resource.open_files());
        let full = self.young.files.len() >= ENTRIES_MAX
            || self.young.bytes + bytes > BYTES_MAX
            || self.young.open + open > self.open_max;
        if full || self.is_past(now) {
            self.begin_generation(now);
        }
        self.young.insert(Key { owner, path: path.into() }, Cached { resource, checked: now, bytes, open });
        self.let_go(now);
    }

    fn is_past(&self, now: Duration) -> bool {
        now.saturating_sub(self.young_since) >= YOUNG_TIME
    }

    fn begin_generation(&mut self, now: Duration) {
        let young = std::mem::take(&mut self.young);
        // Some of those forgotten before are left only where nothing was asked for in half a minute.
        self.forgotten = Forgotten::new(std::mem::replace(&mut self.old, young), now);
        self.young_since = now;
    }

    /// Lets go of one that is forgotten, and of more where too much is held or they are held for too long.
    fn let_go(&mut self, now: Duration) {
        let mut is_first = true;
        while is_first || self.holds_too_much() || self.forgotten.is_late(now) {
            if !self.forgotten.let_go() {
                return;
            }
            is_first = false;
        }
    }

    /// Whether more is held than two generations may have.
    fn holds_too_much(&self) -> bool {
        let (young, old, forgotten) = (&self.young, &self.old, &self.forgotten);
        young.files.len() + old.files.len() + forgotten.files.len() > 2 * ENTRIES_MAX
            || young.bytes + old.bytes + forgotten.bytes > 2 * BYTES_MAX
            || young.open + old.open + forgotten.open > 2 * self.open_max
    }

    /// Forgets all that somebody has remembered, as when a root is another directory by now.
    pub(super) fn forget(&mut self, owner: Owner) {
        self.young.forget(owner);
        self.old.forget(owner);
        // There may be files of theirs among these.
        self.forgotten = Forgotten::new(Generation::default(), self.forgotten.since);
    }

    pub(super) fn remove(&mut self, owner: Owner, path: &[u8]) {
        let key = KeyRef { owner, path };
        self.young.remove(&key);
        self.old.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::{Content, Opened, Parts, State};
    use super::*;

    fn resource_of(content: Content) -> Rc<Resource> {
        let state = State { device: 0, inode: 0, length: 1, modified: (0, 0), changed: (0, 0) };
        let identity = Opened { state, content };
        Rc::new(Resource::new(Parts { name: "x".to_owned(), identity, sidecars: Vec::new() }))
    }

    fn resource() -> Rc<Resource> {
        resource_of(Content::Memory(b"x".to_vec()))
    }

    impl Cache {
        fn count(&self) -> usize {
            self.young.files.len() + self.old.files.len() + self.forgotten.files.len()
        }
    }

    #[test]
    fn a_generation_is_let_go_of_little_by_little() {
        let mut cache = Cache::new(1);
        let (owner, shared) = (cache.new_owner(), resource());
        let mut most = 0;
        for number in 0..5 * ENTRIES_MAX {
            let before = cache.count();
            cache.insert(owner, number.to_string().as_bytes(), shared.clone(), Duration::ZERO);
            assert!(cache.count() >= before, "never more than come");
            assert_eq!(Rc::strong_count(&shared), cache.count() + 1, "what is let go of is dropped");
            most = most.max(cache.count());
        }
        assert_eq!(most, 2 * ENTRIES_MAX);
    }

    #[test]
    fn no_more_is_held_than_two_generations_may_have() {
        let mut cache = Cache::new(1);
        cache.open_max = 50;
        let owner = cache.new_owner();
        let file = || Content::Open(std::fs::File::open("/dev/null").unwrap());
        let kinds = [resource(), resource_of(Content::Memory(vec![0; 32 << 10])), resource_of(file())];
        let (mut bytes, mut open) = (0, 0);
        for number in 0..50_000_usize {
            // Runs of each kind, and a few open files among many others.
            let kind = if number % 100 == 0 { 2 } else { number / 5_000 % 3 };
            cache.insert(owner, number.to_string().as_bytes(), kinds[kind].clone(), Duration::ZERO);
            let held = [&cache.young, &cache.old].map(|all| (all.bytes, all.open));
            let all = held.iter().fold((cache.forgotten.bytes, cache.forgotten.open), |a, b| (a.0 + b.0, a.1 + b.1));
            (bytes, open) = (bytes.max(all.0), open.max(all.1));
            assert!(all.0 <= 2 * BYTES_MAX && all.1 <= 100 && cache.count() <= 2 * ENTRIES_MAX);
        }
        assert!(bytes > 2 * BYTES_MAX - (100 << 10) && open == 100, "{bytes} {open}");
    }

    #[test]
    fn where_few_are_asked_for_what_is_forgotten_goes_in_time() {
        let mut cache = Cache::new(1);
        let (owner, used, unused) = (cache.new_owner(), resource(), resource());
        for number in 0..ENTRIES_MAX - 1 {
            cache.insert(owner, number.to_string().as_bytes(), unused.clone(), Duration::ZERO);
        }
        cache.insert(owner, b"/used", used, Duration::ZERO);
        let mut most = 0;
        for seconds in 0..=(2 * YOUNG_TIME + LET_GO_TIME).as_secs() {
            let before = Rc::strong_count(&unused);
            cache.renew(owner, b"/used", Duration::from_secs(seconds));
            most = most.max(before - Rc::strong_count(&unused));
        }
        assert_eq!(Rc::strong_count(&unused), 1);
        assert!(most <= ENTRIES_MAX / 30 + 1, "no more at once than a second's part: {most}");
    }

    #[test]
    fn what_nobody_asks_for_is_let_go_of() {
        let mut cache = Cache::new(1);
        let (owner, used, unused) = (cache.new_owner(), resource(), resource());
        cache.insert(owner, b"/used", used.clone(), Duration::ZERO);
        cache.insert(owner, b"/unused", unused.clone(), Duration::ZERO);
        for seconds in 0..=2 * YOUNG_TIME.as_secs() {
            cache.renew(owner, b"/used", Duration::from_secs(seconds));
        }
        assert!(cache.get(owner, b"/used").is_some() && cache.get(owner, b"/unused").is_none());
        assert_eq!((Rc::strong_count(&used), Rc::strong_count(&unused)), (2, 1));
    }
}
