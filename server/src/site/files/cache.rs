//! What a worker remembers of files, of all its sites together, bounded in entries, bytes
//! and descriptors.
//!
//! Two generations: what is asked for moves to the young one, and when that is full, or old
//! enough, it becomes the old one and what was old is forgotten. So what is used stays, a file
//! that is gone is let go of, and nothing has to be ordered on the way of a request. What is
//! forgotten is let go of a few at a time, since thousands at once hold everybody up.

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
/// twice that while anything is asked for: its descriptor, and its space on the disk once it is deleted.
const YOUNG_TIME: Duration = Duration::from_secs(60);
/// Forgotten ones that are let go of with each one that comes, at least.
const LET_GO_AT_ONCE: usize = 1;
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

/// Where a path of a request leads to a file by a star, clients choose what it is, so the hash has a secret.
type Generation = HashMap<Key, Cached, RandomState>;

/// Whose paths they are: the same path may be another file elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::site) struct Owner(u32);

pub(in crate::site) struct Cache {
    young: Generation,
    old: Generation,
    /// What was old, as far as it was not let go of.
    forgotten: hash_map::IntoIter<Key, Cached>,
    young_bytes: usize,
    young_open: usize,
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
            forgotten: Generation::default().into_iter(),
            young_bytes: 0,
            young_open: 0,
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
        self.young.get(&key).or_else(|| self.old.get(&key))
    }

    /// Notes that a file is as it was. This is also what moves it to the young generation:
    /// whatever is in use is checked often.
    pub(super) fn renew(&mut self, owner: Owner, path: &[u8], now: Duration) {
        self.let_go(0, 0);
        if self.is_past(now) {
            self.begin_generation(now);
        }
        let key = KeyRef { owner, path };
        if let Some(cached) = self.young.get_mut(&key) {
            cached.checked = now;
        } else if let Some(cached) = self.old.remove(&key) {
            self.insert(owner, path, cached.resource, now);
        }
    }

    pub(super) fn insert(&mut self, owner: Owner, path: &[u8], resource: Rc<Resource>, now: Duration) {
        self.remove(owner, path);
        let (bytes, open) = (resource.memory_bytes() + path.len(), resource.open_files());
        let full = self.young.len() >= ENTRIES_MAX
            || self.young_bytes + bytes > BYTES_MAX
            || self.young_open + open > self.open_max;
        if full || self.is_past(now) {
            self.begin_generation(now);
        }
        self.let_go(bytes, open);
        self.young_bytes += bytes;
        self.young_open += open;
        self.young.insert(Key { owner, path: path.into() }, Cached { resource, checked: now, bytes, open });
    }

    fn is_past(&self, now: Duration) -> bool {
        now.saturating_sub(self.young_since) >= YOUNG_TIME
    }

    fn begin_generation(&mut self, now: Duration) {
        let young = std::mem::take(&mut self.young);
        self.forgotten = std::mem::replace(&mut self.old, young).into_iter();
        (self.young_bytes, self.young_open, self.young_since) = (0, 0, now);
    }

    /// Lets go of some that are forgotten, and of as many bytes and open files at least as come: so all that
    /// is held is no more than two generations.
    fn let_go(&mut self, bytes: usize, open: usize) {
        let (mut count, mut freed, mut closed) = (0, 0, 0);
        while count < LET_GO_AT_ONCE || freed < bytes || closed < open {
            let Some((_, cached)) = self.forgotten.next() else { return };
            count += 1;
            freed += cached.bytes;
            closed += cached.open;
        }
    }

    /// Forgets all that somebody has remembered, as when a root is another directory by now.
    pub(super) fn forget(&mut self, owner: Owner) {
        self.old.retain(|key, _| key.owner != owner);
        let (bytes, open) = (&mut self.young_bytes, &mut self.young_open);
        self.young.retain(|key, cached| {
            if key.owner == owner {
                *bytes -= cached.bytes;
                *open -= cached.open;
            }
            key.owner != owner
        });
    }

    pub(super) fn remove(&mut self, owner: Owner, path: &[u8]) {
        let key = KeyRef { owner, path };
        if let Some(cached) = self.young.remove(&key) {
            self.young_bytes -= cached.bytes;
            self.young_open -= cached.open;
        }
        self.old.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::{Content, Opened, Parts, State};
    use super::*;

    fn resource() -> Rc<Resource> {
        let state = State { device: 0, inode: 0, length: 1, modified: (0, 0), changed: (0, 0) };
        let identity = Opened { state, content: Content::Memory(b"x".to_vec()) };
        Rc::new(Resource::new(Parts { name: "x".to_owned(), identity, sidecars: Vec::new() }))
    }

    #[test]
    fn a_generation_is_let_go_of_a_few_at_a_time() {
        let mut cache = Cache::new(1);
        let (owner, shared) = (cache.new_owner(), resource());
        let held = |cache: &Cache| cache.young.len() + cache.old.len() + cache.forgotten.len();
        let mut most = 0;
        for number in 0..5 * ENTRIES_MAX {
            let before = Rc::strong_count(&shared);
            cache.insert(owner, number.to_string().as_bytes(), shared.clone(), Duration::ZERO);
            assert!(Rc::strong_count(&shared) + LET_GO_AT_ONCE > before, "never many at once");
            assert_eq!(Rc::strong_count(&shared), held(&cache) + 1);
            most = most.max(held(&cache));
        }
        assert_eq!(most, 2 * ENTRIES_MAX);
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
