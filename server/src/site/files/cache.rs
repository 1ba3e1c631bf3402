//! What a worker remembers of files, bounded in entries, bytes and descriptors.
//!
//! Two generations: what is asked for moves to the young one, and when that is full it
//! becomes the old one and what was old is forgotten. So what is used stays, and nothing
//! has to be ordered on the way of a request.

use super::resource::Resource;
use foldhash::fast::FixedState;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Entries of one generation.
const ENTRIES_MAX: usize = 8 * 1024;
/// Bytes that one generation keeps.
pub(crate) const BYTES_MAX: usize = 32 << 20;
/// Open files that one generation of all workers keeps.
const OPEN_FILES_MAX: usize = 512;

/// A file and when it was last seen to be as it is.
pub(super) struct Cached {
    pub(super) resource: Rc<Resource>,
    pub(super) checked: Duration,
}

/// Names are chosen by whoever owns the files, not by clients, so the hash needs no secret.
type Generation = HashMap<Box<[u8]>, Cached, FixedState>;

pub(super) struct Cache {
    young: Generation,
    old: Generation,
    young_bytes: usize,
    young_open: usize,
    open_max: usize,
}

impl Cache {
    pub(super) fn new(workers: usize) -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
        // A sixteenth of the descriptors, for two generations on each worker.
        let share = usize::try_from(descriptors / 16).unwrap_or(OPEN_FILES_MAX).min(OPEN_FILES_MAX);
        Self {
            young: Generation::default(),
            old: Generation::default(),
            young_bytes: 0,
            young_open: 0,
            open_max: (share / workers.max(1) / 2).max(4),
        }
    }

    pub(super) fn get(&self, raw: &[u8]) -> Option<&Cached> {
        self.young.get(raw).or_else(|| self.old.get(raw))
    }

    /// Notes that a file is as it was. This is also what moves it to the young generation:
    /// whatever is in use is checked often.
    pub(super) fn renew(&mut self, raw: &[u8], now: Duration) {
        if let Some(cached) = self.young.get_mut(raw) {
            cached.checked = now;
        } else if let Some(cached) = self.old.remove(raw) {
            self.insert(raw, cached.resource, now);
        }
    }

    pub(super) fn insert(&mut self, raw: &[u8], resource: Rc<Resource>, now: Duration) {
        self.remove(raw);
        let (bytes, open) = (resource.memory_bytes() + raw.len(), resource.open_files());
        let full = self.young.len() >= ENTRIES_MAX
            || self.young_bytes + bytes > BYTES_MAX
            || self.young_open + open > self.open_max;
        if full {
            self.old = std::mem::take(&mut self.young);
            (self.young_bytes, self.young_open) = (0, 0);
        }
        self.young_bytes += bytes;
        self.young_open += open;
        self.young.insert(raw.into(), Cached { resource, checked: now });
    }

    pub(super) fn remove(&mut self, raw: &[u8]) {
        if let Some(cached) = self.young.remove(raw) {
            self.young_bytes -= cached.resource.memory_bytes() + raw.len();
            self.young_open -= cached.resource.open_files();
        }
        self.old.remove(raw);
    }
}
