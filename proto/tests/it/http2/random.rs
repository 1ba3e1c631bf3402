//! Numbers that depend only on a seed, so that a failure can be reproduced.

/// A generator (xorshift).
#[derive(Clone, Copy, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Whether an event of this many in a hundred happens.
    pub(super) fn happens(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}
