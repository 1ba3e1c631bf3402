//! A cache bounded in weight, for one thread, with SIEVE eviction.
//!
//! SIEVE (Zhang et al., NSDI 2024) keeps the entries in order of insertion. A hand moves from the oldest entry to the
//! newest: it evicts unused entries, and keeps those that were used since its last visit. A hit only sets a flag, so it
//! needs no exclusive access and moves nothing. An entry that is never used is evicted soon, so a client that requests
//! each of many files once does not evict the files in use.
//!
//! Each call visits a limited number of entries, so none delays the other connections of a worker.

use foldhash::fast::RandomState;
pub use hashbrown::Equivalent;
use hashbrown::HashTable;
use slab::Slab;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// The maximum number of used entries that the hand skips for one eviction. Then it evicts a used entry.
const SKIPPED_MAX: usize = 4096;
/// The maximum number of positions that one call of [`Cache::remove_unused`] visits.
const VISITED_MAX: usize = 1024;

/// The entry was used since the last visit of the hand.
const USED_SINCE_HAND: u8 = 1;
/// The entry was used since the last visit of [`Cache::remove_unused`] or [`Cache::remove_all_unused`].
const USED_SINCE_VISIT: u8 = 2;

/// A cache of weighted entries.
///
/// The hash has a secret, because clients may choose the keys.
pub struct Cache<K, V> {
    entries: Slab<CacheEntry<K, V>>,
    /// The positions of the entries in `entries`.
    index: HashTable<usize>,
    hasher: RandomState,
    weight: usize,
    weight_max: usize,
    /// The first and the last entry in order of insertion.
    oldest: Option<usize>,
    newest: Option<usize>,
    /// The entry that the next eviction visits first. `None` is the oldest.
    hand: Option<usize>,
    /// The position that [`Cache::remove_unused`] visits next, and the time until which it has visited all that are due.
    next_visit: usize,
    visited_until: Duration,
}

struct CacheEntry<K, V> {
    key: K,
    value: V,
    weight: usize,
    used: Cell<u8>,
    older: Option<usize>,
    newer: Option<usize>,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    /// Creates a cache for entries with at most this total weight.
    pub fn new(weight_max: usize) -> Self {
        Self {
            entries: Slab::new(),
            index: HashTable::new(),
            hasher: RandomState::default(),
            weight: 0,
            weight_max,
            oldest: None,
            newest: None,
            hand: None,
            next_visit: 0,
            visited_until: Duration::ZERO,
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the cache has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the total weight of the entries.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Returns the value of a key, and marks it as used.
    #[inline]
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        let entry = &self.entries[self.position(key)?];
        entry.used.set(USED_SINCE_HAND | USED_SINCE_VISIT);
        Some(&entry.value)
    }

    /// Returns the value of a key for changes that keep its weight, and marks it as used.
    pub fn get_mut<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<&mut V> {
        let position = self.position(key)?;
        let entry = &mut self.entries[position];
        entry.used.set(USED_SINCE_HAND | USED_SINCE_VISIT);
        Some(&mut entry.value)
    }

    /// Returns the value of a key, without marking it as used.
    pub fn peek<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<&V> {
        Some(&self.entries[self.position(key)?].value)
    }

    /// Inserts a value in place of any other of this key, and evicts entries until the weight is within its limit. A
    /// value that is heavier than the limit is dropped.
    pub fn insert(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight > self.weight_max {
            return;
        }
        while self.weight > self.weight_max - weight {
            self.evict();
        }
        let hash = self.hasher.hash_one(&key);
        // A new entry is as good as used for `remove_unused`, but not for the hand.
        let used = Cell::new(USED_SINCE_VISIT);
        let position = self.entries.insert(CacheEntry { key, value, weight, used, older: self.newest, newer: None });
        match self.newest.replace(position) {
            Some(newest) => self.entries[newest].newer = Some(position),
            None => self.oldest = Some(position),
        }
        let Self { entries, index, hasher, .. } = self;
        index.insert_unique(hash, position, |&other| hasher.hash_one(&entries[other].key));
        self.weight += weight;
    }

    /// Removes a key, and returns its value.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&mut self, key: &Q) -> Option<V> {
        self.position(key).map(|position| self.remove_at(position).value)
    }

    /// Removes the entries whose key does not match. Takes time for each entry.
    pub fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        let removed: Vec<_> =
            self.entries.iter().filter(|(_, entry)| !is_kept(&entry.key)).map(|(position, _)| position).collect();
        for position in removed {
            self.remove_at(position);
        }
    }

    /// Removes entries that were unused for at least `period`, and returns their values. If it is called often, no entry
    /// stays unused for more than two periods. Each call visits the part of the entries that is due at `now`.
    pub fn remove_unused(&mut self, now: Duration, period: Duration) -> Vec<V> {
        let positions = self.entries.capacity();
        let due = now.saturating_sub(self.visited_until).min(period);
        let count = (positions as f64 * due.as_secs_f64() / period.as_secs_f64()) as usize;
        let mut removed = Vec::new();
        if count == 0 && positions > 0 {
            return removed;
        }
        self.visited_until = now;
        for _ in 0..count.min(VISITED_MAX) {
            self.next_visit = if self.next_visit + 1 < positions { self.next_visit + 1 } else { 0 };
            removed.extend(self.visit(self.next_visit));
        }
        removed
    }

    /// Removes all entries that were unused since the last call, and returns their values.
    pub fn remove_all_unused(&mut self) -> Vec<V> {
        (0..self.entries.capacity()).filter_map(|position| self.visit(position)).collect()
    }

    /// Removes the entry at a position if it was unused since the last visit.
    fn visit(&mut self, position: usize) -> Option<V> {
        let entry = self.entries.get(position)?;
        let used = entry.used.replace(entry.used.get() & !USED_SINCE_VISIT);
        (used & USED_SINCE_VISIT == 0).then(|| self.remove_at(position).value)
    }

    #[inline]
    fn position<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<usize> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |&position| key.equivalent(&self.entries[position].key)).copied()
    }

    /// Removes the first unused entry from the hand on. The cache is not empty.
    fn evict(&mut self) {
        let mut at = self.hand.or(self.oldest).expect("an entry has weight");
        for _ in 0..SKIPPED_MAX {
            let entry = &self.entries[at];
            let used = entry.used.get();
            if used & USED_SINCE_HAND == 0 {
                break;
            }
            entry.used.set(used & !USED_SINCE_HAND);
            at = entry.newer.or(self.oldest).expect("the entry is in the list");
        }
        self.hand = Some(at);
        self.remove_at(at);
    }

    fn remove_at(&mut self, position: usize) -> CacheEntry<K, V> {
        let entry = self.entries.remove(position);
        let hash = self.hasher.hash_one(&entry.key);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == position) {
            found.remove();
        }
        match entry.older {
            Some(older) => self.entries[older].newer = entry.newer,
            None => self.oldest = entry.newer,
        }
        match entry.newer {
            Some(newer) => self.entries[newer].older = entry.older,
            None => self.newest = entry.older,
        }
        if self.hand == Some(position) {
            self.hand = entry.newer;
        }
        self.weight -= entry.weight;
        entry
    }
}

impl<K, V> fmt::Debug for Cache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("entries", &self.entries.len()).field("weight", &self.weight).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::rc::Rc;

    const MINUTE: Duration = Duration::from_secs(60);

    impl<V> Cache<u32, V> {
        /// Returns the keys in order, and checks the list and the index.
        fn keys(&self) -> Vec<u32> {
            let mut keys = Vec::new();
            let (mut at, mut older) = (self.oldest, None);
            while let Some(position) = at {
                let entry = &self.entries[position];
                assert_eq!((entry.older, self.position(&entry.key)), (older, Some(position)));
                keys.push(entry.key);
                (older, at) = (at, entry.newer);
            }
            assert_eq!((older, keys.len(), keys.len()), (self.newest, self.entries.len(), self.index.len()));
            assert_eq!(self.weight, self.entries.iter().map(|(_, entry)| entry.weight).sum::<usize>());
            keys
        }
    }

    fn cache_of(count: u32) -> Cache<u32, ()> {
        let mut cache = Cache::new(count as usize);
        (0..count).for_each(|key| cache.insert(key, (), 1));
        cache
    }

    #[test]
    fn used_entry_is_kept_and_unused_one_evicted() {
        let mut cache = cache_of(4);
        for key in [0, 2] {
            assert!(cache.get(&key).is_some());
        }
        assert!(cache.peek(&1).is_some(), "this is no use");
        cache.insert(4, (), 1);
        assert_eq!(cache.keys(), [0, 2, 3, 4]);
        // The hand continues after the evicted entry: it has passed the entry 0.
        cache.insert(5, (), 1);
        assert_eq!(cache.keys(), [0, 2, 4, 5]);
        // A new entry that is not used is evicted before those in use.
        cache.insert(6, (), 1);
        assert_eq!(cache.keys(), [0, 2, 5, 6]);
    }

    #[test]
    fn many_keys_requested_once_evict_no_entry_in_use() {
        let mut cache = cache_of(1000);
        for key in 1000..100_000 {
            if key % 100 == 0 {
                assert!((0..500).all(|key| cache.get(&key).is_some()));
            }
            cache.insert(key, (), 1);
        }
        assert!((0..500).all(|key| cache.get(&key).is_some()));
        assert_eq!(cache.keys().len(), 1000);
    }

    #[test]
    fn eviction_skips_a_limited_number_of_used_entries() {
        let mut cache = cache_of(5000);
        assert!((0..5000).all(|key| cache.get(&key).is_some()));
        cache.insert(5000, (), 1);
        assert!(!cache.keys().contains(&(SKIPPED_MAX as u32)));
        let skipped = cache.entries.iter().filter(|(_, entry)| entry.used.get() & USED_SINCE_HAND == 0).count();
        assert_eq!(skipped, SKIPPED_MAX + 1, "and the new one");
    }

    #[test]
    fn weight_stays_within_its_limit() {
        let mut cache = Cache::new(10);
        for (key, weight, expected) in [
            (1, 4, vec![1]),
            (2, 4, vec![1, 2]),
            (3, 4, vec![2, 3]),
            // Another weight of a cached key.
            (2, 6, vec![3, 2]),
            (2, 7, vec![2]),
            (1, 3, vec![2, 1]),
            (4, 10, vec![4]),
            // A value beyond the limit evicts nothing but an earlier one of its key.
            (5, 11, vec![4]),
            (4, 11, vec![]),
        ] {
            cache.insert(key, (), weight);
            assert_eq!(cache.keys(), expected, "{key} {weight}");
        }
        assert!(cache.is_empty());
    }

    #[test]
    fn random_operations_match_a_map_without_a_limit() {
        let (mut cache, mut map) = (Cache::new(300), HashMap::new());
        let mut seed = 1_u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % below) as u32
        };
        let (mut hits, mut now) = (0, Duration::ZERO);
        for step in 0..20_000 {
            let key = random(100);
            match random(8) {
                0..3 => {
                    cache.insert(key, step, 1 + random(20) as usize);
                    map.insert(key, step);
                }
                3 => {
                    let removed = cache.remove(&key);
                    let known = map.remove(&key);
                    assert!(removed.is_none() || removed == known);
                }
                4 => {
                    now += Duration::from_secs(1);
                    cache.remove_unused(now, MINUTE);
                }
                5 if step % 100 == 0 => {
                    cache.retain(|key| key % 7 != 0);
                    assert!(cache.keys().iter().all(|key| key % 7 != 0));
                }
                _ => {
                    hits += u32::from(cache.get(&key).is_some());
                    assert!(cache.get(&key).is_none_or(|value| map.get(&key) == Some(value)));
                    assert_eq!(cache.get_mut(&key).copied(), cache.peek(&key).copied());
                }
            }
            assert!(cache.keys().len() == cache.len() && cache.weight() <= 300);
        }
        assert!(hits > 1000, "{hits}");
    }

    #[test]
    fn unused_entries_are_removed_a_few_at_a_time() {
        let shared = Rc::new(());
        let mut cache = Cache::new(usize::MAX);
        (0..6000_u32).for_each(|key| cache.insert(key, shared.clone(), 1));
        let mut removed_max = 0;
        for seconds in 1..=130 {
            assert!(cache.get(&7).is_some());
            removed_max = removed_max.max(cache.remove_unused(Duration::from_secs(seconds), MINUTE).len());
        }
        assert_eq!((cache.keys(), Rc::strong_count(&shared)), (vec![7], 2));
        assert!(removed_max <= cache.entries.capacity() / 60 + 1, "at most the share of one second: {removed_max}");
        // After a pause, the number is limited too.
        (0..6000).for_each(|key| cache.insert(key, shared.clone(), 1));
        cache.remove_all_unused();
        assert_eq!(cache.remove_unused(MINUTE * 60, MINUTE).len(), VISITED_MAX);
    }

    #[test]
    fn entries_unused_since_the_last_call_are_removed() {
        let mut cache = cache_of(4);
        assert!(cache.remove_all_unused().is_empty(), "a new entry counts as used");
        assert!(cache.get(&2).is_some());
        assert_eq!((cache.remove_all_unused().len(), cache.keys()), (3, vec![2]));
        assert_eq!((cache.remove_all_unused().len(), cache.keys()), (1, vec![]));
    }
}
