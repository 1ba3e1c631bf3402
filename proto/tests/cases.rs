//! Parses all rows of the case files: whole, byte by byte, and split at random positions.
//!
//! A server cannot choose how a peer's bytes are split, so no split may change a verdict.

use selvedge_cases::{Case, check, load_cases, read};
use std::num::NonZero;
use std::thread;

/// Random splits of each row.
const SPLITS: u64 = 32;

/// If fewer rows are loaded, files are missing.
const ROWS_MIN: usize = 340;

/// A generator whose numbers depend only on its seed, so that a failure can be reproduced.
struct Xorshift(u64);

impl Xorshift {
    /// Seeds the generator with the row's name, so that a row that moves keeps its splits.
    fn seeded(name: &str, round: u64) -> Self {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self((hash ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Splits the bytes into pieces of random lengths.
///
/// The bound of the lengths is random too, so that some rounds have many pieces and some have few.
fn split_at_random(mut rest: &[u8], mut random: Xorshift) -> Vec<&[u8]> {
    let bound = 2 + random.below(rest.len().max(1));
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at((1 + random.below(bound)).min(rest.len()));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

fn run(case: &Case) -> Result<(), String> {
    let whole = read([&case.raw[..]]);
    check(case, &whole)?;
    let expect_equal = |how: String, got: Vec<String>| match got == whole {
        true => Ok(()),
        false => Err(check(case, &got).err().unwrap_or_else(|| case.to_string()) + &format!("  when read {how}\n")),
    };
    expect_equal("byte by byte".to_owned(), read(case.raw.chunks(1)))?;
    for round in 0..SPLITS {
        let random = Xorshift::seeded(&case.name, round);
        let how = format!("in pieces, seed {:#x}", random.0);
        expect_equal(how, read(split_at_random(&case.raw, random)))?;
    }
    Ok(())
}

#[test]
fn rows_hold_for_all_splits() {
    let cases = load_cases();
    // Long rows, read byte by byte, take most of the time, so the rows are distributed to all cores.
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = &|first: usize| -> Vec<String> {
        cases.iter().skip(first).step_by(threads).filter_map(|case| run(case).err()).collect()
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        started.into_iter().flat_map(|thread| thread.join().expect("no row panics")).collect()
    });
    assert!(failures.is_empty(), "{} of {} rows\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(cases.len() >= ROWS_MIN, "only {} rows", cases.len());
}
