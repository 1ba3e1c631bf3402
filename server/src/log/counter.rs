//! A counter with one writer.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and others read.
#[derive(Debug)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[allow(clippy::declare_interior_mutable_const, reason = "each use of it is to be another counter")]
    pub(super) const ZERO: Self = Self(AtomicU64::new(0));

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Adds to the counter. For its writing thread only: additions of two threads could be lost.
    pub(super) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }
}
