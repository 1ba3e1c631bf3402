//! Random numbers of one thread, for identifiers. Each of their bits is evenly distributed.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    /// A random number of the thread, and the number that the next one is made of.
    static STATE: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Returns a random number.
pub(super) fn number() -> u64 {
    STATE.with(|state| {
        let (key, last) = state.get().unwrap_or_else(|| {
            let random = RandomState::new();
            (random.hash_one(0_u8), random.hash_one(1_u8))
        });
        let next = last.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(Some((key, next)));
        key ^ mix(next)
    })
}

/// Returns a random number other than 0.
pub(super) fn nonzero() -> u64 {
    loop {
        match number() {
            0 => {}
            number => return number,
        }
    }
}

/// Returns a random number of 128 bits other than 0.
pub(super) fn nonzero_long() -> u128 {
    u128::from(nonzero()) << 64 | u128::from(number())
}

/// Mixes the bits of a number, so that consecutive ones have nothing in common (SplitMix64).
const fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_differ_within_a_thread_and_between_threads() {
        let some = || (0..1_000).map(|_| nonzero_long()).collect::<Vec<_>>();
        let all: Vec<_> = (0..4).flat_map(|_| std::thread::spawn(some).join().unwrap()).collect();
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
        assert!(all.iter().all(|id| *id != 0));
    }

    #[test]
    fn each_bit_is_set_in_half_of_the_numbers() {
        let mut counts = [0_u32; 64];
        for _ in 0..4096 {
            let number = number();
            counts.iter_mut().enumerate().for_each(|(bit, count)| *count += (number >> bit & 1) as u32);
        }
        // Twelve standard deviations.
        assert!(counts.iter().all(|count| (1664..2432).contains(count)), "{counts:?}");
    }
}
