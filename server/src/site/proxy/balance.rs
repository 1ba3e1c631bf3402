//! Chooses one of several servers: by load, in turn, or by the hash of a key. A function of numbers and chance.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a choice considers of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Requests at work.
    pub(super) at_work: u32,
    /// The weight of the configuration times [`WEIGHT_UNIT`], or less while the server starts slowly; 0 for a server that
    /// gets no request.
    pub(super) weight: u32,
}

/// The weight of a server of the weight 1.
pub(super) const WEIGHT_UNIT: u32 = 1000;

/// A source of chance for choices (SplitMix64). Clients can neither see nor influence its numbers.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        // The product is below bound * 2^64, so its upper half is below bound.
        let product = u128::from(self.next()) * u128::from(bound);
        (product >> 64) as u64
    }
}

/// Distributes the bits of a number over all bits (the finalizer of SplitMix64).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Chooses two servers at random by weight, and returns the one with fewer requests at work for its weight. With equal
/// load, the first one, so that idle servers share requests by weight.
pub(super) fn least_loaded(count: usize, candidate: impl Fn(usize) -> Candidate, random: &mut Random) -> Option<usize> {
    let total: u64 = (0..count).map(|index| u64::from(candidate(index).weight)).sum();
    let first = pick(count, &candidate, random, (total, None))?;
    let rest = total - u64::from(candidate(first).weight).min(total);
    let Some(second) = pick(count, &candidate, random, (rest, Some(first))) else { return Some(first) };
    let (one, other) = (candidate(first), candidate(second));
    let load = |a: Candidate, b: Candidate| u64::from(a.at_work) * u64::from(b.weight);
    Some(if load(other, one) < load(one, other) { second } else { first })
}

/// Picks a server at random by weight, except one.
fn pick(
    count: usize,
    candidate: &impl Fn(usize) -> Candidate,
    random: &mut Random,
    (total, except): (u64, Option<usize>),
) -> Option<usize> {
    if total == 0 {
        return None;
    }
    let mut remaining = random.below(total);
    let mut last = None;
    for index in (0..count).filter(|&index| Some(index) != except) {
        let weight = u64::from(candidate(index).weight);
        if weight > 0 {
            last = Some(index);
        }
        if remaining < weight {
            return last;
        }
        remaining -= weight;
    }
    // Other workers changed weights after the sum was computed.
    last
}

/// The turns of a round-robin, which all workers share: one number that each choice increases.
#[derive(Debug, Default)]
pub(super) struct Turns(AtomicU64);

impl Turns {
    /// Returns the server of the next turn.
    pub(super) fn next(&self, count: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
        in_turn(self.0.fetch_add(1, Ordering::Relaxed), count, candidate)
    }

    /// Returns the server of the next turn, and leaves it to the next request.
    pub(super) fn would_be_next(&self, count: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
        in_turn(self.0.load(Ordering::Relaxed), count, candidate)
    }
}

/// Returns the server of a turn. Each server has as many slots as its weight, and the turns visit every slot once before
/// they begin again. So a server that is out changes nothing for the shares of the others.
fn in_turn(turn: u64, count: usize, candidate: impl Fn(usize) -> Candidate) -> Option<usize> {
    let weight = |index| u64::from(candidate(index).weight);
    let unit = (0..count).map(weight).fold(0, greatest_common_divisor);
    if unit == 0 {
        return None;
    }
    let total = (0..count).map(weight).sum::<u64>() / unit;
    // The product of two numbers below 2^64 fits.
    let mut slot = (u128::from(turn) * u128::from(stride(total)) % u128::from(total)) as u64;
    let mut last = None;
    for index in 0..count {
        let slots = weight(index) / unit;
        if slots > 0 {
            last = Some(index);
        }
        if slot < slots {
            return last;
        }
        slot -= slots;
    }
    // Other workers changed weights after the sum was computed.
    last
}

/// Returns the distance between the slots of two turns. It has no divisor in common with the number of slots, so that all
/// are visited. It is near the golden section, so that the turns of a server of high weight are spread.
fn stride(slots: u64) -> u64 {
    let golden = (slots as f64 * 0.618_034) as u64;
    (golden.max(1)..=slots).find(|&stride| greatest_common_divisor(stride, slots) == 1).unwrap_or(1)
}

/// Returns the greatest common divisor. That with 0 is the other number.
fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// Returns the hash of a key. It is equal on all machines, so that several proxies choose one server for one key.
pub(super) fn hash(key: &[u8]) -> u64 {
    // FNV-1a, whose low bits are then spread.
    let folded = key
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    mix(folded)
}

/// Chooses the server to which a key is assigned (weighted rendezvous hashing): each server draws a number from the key
/// and its own identity, and the highest wins. So a new server wins only its share of keys, and the keys of a missing
/// server are shared by all others.
///
/// `weight` is that of the configuration, so that a slow start does not move keys; 0 for a server that gets no request.
pub(super) fn by_hash(
    count: usize,
    key: u64,
    identity: impl Fn(usize) -> u64,
    weight: impl Fn(usize) -> u32,
) -> Option<usize> {
    let score = |index: usize| {
        // 53 bits are a fraction that f64 represents exactly; it is above 0 and below 1.
        let fraction = ((mix(key ^ identity(index)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        f64::from(weight(index)) / -fraction.ln()
    };
    (0..count).filter(|&index| weight(index) > 0).max_by(|&a, &b| score(a).total_cmp(&score(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(loads: &[(u32, u32)]) -> impl Fn(usize) -> Candidate {
        move |index| Candidate { at_work: loads[index].0, weight: loads[index].1 * WEIGHT_UNIT }
    }

    /// Returns how many of 10,000 choices each server gets.
    fn shares(loads: &[(u32, u32)]) -> Vec<u32> {
        let mut random = Random::new(7);
        let mut shares = vec![0; loads.len()];
        for _ in 0..10_000 {
            shares[least_loaded(loads.len(), servers(loads), &mut random).unwrap()] += 1;
        }
        shares
    }

    #[test]
    fn idle_servers_share_requests_by_weight() {
        for (loads, expected) in [
            (&[(0, 1)][..], &[10_000][..]),
            (&[(0, 1), (0, 1)], &[5000, 5000]),
            (&[(0, 1), (0, 3)], &[2500, 7500]),
            (&[(0, 1), (0, 0), (0, 1)], &[5000, 0, 5000]),
            // Equal load for the weight.
            (&[(2, 1), (6, 3)], &[2500, 7500]),
        ] {
            let shares = shares(loads);
            let is_near = shares.iter().zip(expected).all(|(&got, &want): (&u32, &u32)| got.abs_diff(want) < 200);
            assert!(is_near, "{loads:?}: {shares:?}");
        }
    }

    #[test]
    fn the_less_loaded_of_two_servers_is_chosen() {
        assert_eq!(shares(&[(1, 1), (0, 1)]), [0, 10_000]);
        assert_eq!(shares(&[(3, 1), (4, 2)]), [0, 10_000]);
        // The most loaded one of three is never the better one of two.
        let three = shares(&[(5, 1), (9, 1), (0, 1)]);
        assert!(three[1] == 0 && three[2] > three[0] && three[0] > 0, "{three:?}");
        assert_eq!(least_loaded(2, servers(&[(0, 0), (0, 0)]), &mut Random::new(1)), None);
        assert_eq!(least_loaded(0, servers(&[]), &mut Random::new(1)), None);
    }

    fn turns(weights: &[u32], steps: usize) -> String {
        let turns = Turns::default();
        let candidate = |index: usize| Candidate { at_work: 0, weight: weights[index] * WEIGHT_UNIT };
        let next = |_| turns.next(weights.len(), candidate).map_or('-', |index| char::from(b'a' + index as u8));
        (0..steps).map(next).collect()
    }

    #[test]
    fn round_robin_spreads_servers_by_weight() {
        for (weights, expected) in [
            (&[1][..], "aaa"),
            (&[1, 1], "abab"),
            (&[7, 7, 7], "abcabc"),
            (&[3, 1], "abaaabaa"),
            (&[5, 1, 1], "aaabacaaaabaca"),
            (&[0, 1, 1], "bcbc"),
            (&[0], "--"),
        ] {
            assert_eq!(turns(weights, expected.len()), expected, "{weights:?}");
        }
        let of_hundred = turns(&[70, 29, 1], 1000);
        let share = |server| of_hundred.matches(server).count();
        assert_eq!((share('a'), share('b'), share('c')), (700, 290, 10));
        assert!(!of_hundred.contains("bbb") && !of_hundred.contains("aaaaaa"), "{of_hundred}");
    }

    #[test]
    fn round_robin_is_even_while_a_server_is_out_and_after_it() {
        let turns = Turns::default();
        let count = |weights: [u32; 3], steps| {
            let mut counts = [0; 3];
            (0..steps).for_each(|_| {
                counts[turns.next(3, |index| Candidate { at_work: 0, weight: weights[index] }).unwrap()] += 1;
            });
            counts
        };
        assert_eq!(count([1, 1, 1], 30), [10, 10, 10]);
        assert_eq!(count([1, 0, 1], 100), [50, 0, 50]);
        assert_eq!(count([1, 1, 1], 30), [10, 10, 10]);
    }

    #[test]
    fn workers_share_the_turns() {
        let turns = Turns::default();
        let candidate = |_| Candidate { at_work: 0, weight: 1 };
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let work = || (0..1000).filter(|_| turns.next(2, candidate) == Some(0)).count();
            let workers = [scope.spawn(work), scope.spawn(work)];
            workers.map(|worker| worker.join().unwrap()).to_vec()
        });
        assert_eq!(counts.iter().sum::<usize>(), 1000, "{counts:?}");
    }

    fn assigned(names: &[&str], weights: &[u32], key: u32) -> usize {
        let identities: Vec<u64> = names.iter().map(|name| hash(name.as_bytes())).collect();
        let key = hash(format!("/path/{key}").as_bytes());
        by_hash(names.len(), key, |index| identities[index], |index| weights[index]).unwrap()
    }

    #[test]
    fn a_new_server_takes_over_its_share_of_keys_only() {
        let three = ["http://10.0.0.1:80", "http://10.0.0.2:80", "http://10.0.0.3:80"];
        let four = [&three[..], &["http://10.0.0.4:80"]].concat();
        let mut moved = 0;
        for key in 0..10_000 {
            let (before, after) = (assigned(&three, &[1; 3], key), assigned(&four, &[1; 4], key));
            assert!(after == before || after == 3, "key {key} moved from {before} to {after}");
            moved += u32::from(after == 3);
        }
        assert!(moved.abs_diff(2500) < 200, "{moved}");
    }

    #[test]
    fn keys_are_shared_by_weight_and_skip_servers_that_are_out() {
        let names = ["a", "b", "c"];
        let mut shares = [0u32; 3];
        (0..10_000).for_each(|key| shares[assigned(&names, &[1, 2, 1], key)] += 1);
        assert!(shares[1].abs_diff(5000) < 250 && shares[0].abs_diff(2500) < 250, "{shares:?}");
        for key in 0..1000 {
            let all = assigned(&names, &[1, 1, 1], key);
            let without = assigned(&names, &[1, 0, 1], key);
            assert!(without != 1 && (all == 1 || without == all), "only the keys of the missing server move");
        }
    }
}
