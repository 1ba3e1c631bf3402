//! Reads records while they are written, or from a dump.

use super::filter::LastQuery;
use super::layout::{FORMAT, HEADER_FORMAT, HEADER_RINGS, RECORD_NUMBERS, RECORDS, record_at, ring_count, words_for};
use super::record::{RecordRank, RequestRecord};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Returns the last requests that a query selects, the newest one first; none if the numbers are not those of a recorder.
pub(crate) fn select(memory: &[AtomicU64], query: &LastQuery) -> Vec<RequestRecord> {
    if let Some(id) = query.id {
        return find(memory, id).into_iter().filter(|record| query.selects(record)).take(query.count()).collect();
    }
    let mut selected = Vec::new();
    for ring in 0..rings(memory) {
        selected.extend(records(memory, ring).filter(|record| query.selects(record)).take(query.count()));
    }
    selected.sort_by_key(|record| Reverse((record.completed_micros, record.id)));
    selected.truncate(query.count());
    selected
}

/// Returns what ranks the records since a time in microseconds since 1970, those of a ring from the newest one on.
pub(crate) fn ranks_since(memory: &[AtomicU64], since_micros: u64) -> impl Iterator<Item = RecordRank> {
    (0..rings(memory)).flat_map(move |ring| {
        let ranks = newest_first(memory, ring).map(move |(number, numbers)| RecordRank::of((ring, number), &numbers));
        ranks.take_while(move |rank| rank.completed_micros >= since_micros)
    })
}

/// Returns the record with an id; `None` if it was replaced.
pub(crate) fn record_of(memory: &[AtomicU64], (ring, number): (usize, u64)) -> Option<RequestRecord> {
    let numbers = (ring < rings(memory)).then(|| read(memory, ring, number)).flatten()?;
    Some(RequestRecord::of((ring, number), &numbers, memory))
}

/// Returns the number of rings.
pub(super) fn rings(memory: &[AtomicU64]) -> usize {
    let is_complete = |rings: &usize| *rings <= memory.len() && words_for(*rings) == memory.len();
    rings_of_header(memory).filter(is_complete).unwrap_or(0)
}

/// Returns the number of rings that a header states; `None` if it is not one of this version.
pub(super) fn rings_of_header(memory: &[AtomicU64]) -> Option<usize> {
    let read = |place: usize| memory.get(place).map_or(0, |number| number.load(Ordering::Acquire));
    (read(HEADER_FORMAT) == FORMAT).then(|| usize::try_from(read(HEADER_RINGS)).unwrap_or(usize::MAX))
}

/// Returns the record of a request; `None` if it is not complete, or was replaced.
fn find(memory: &[AtomicU64], (ring, number): (usize, u64)) -> Option<RequestRecord> {
    let is_begun = ring < rings(memory) && number < memory[ring_count(ring)].load(Ordering::Acquire);
    let numbers = is_begun.then(|| read(memory, ring, number)).flatten()?;
    Some(RequestRecord::of((ring, number), &numbers, memory))
}

/// Returns the complete records of a ring, the newest one first.
fn records(memory: &[AtomicU64], ring: usize) -> impl Iterator<Item = RequestRecord> {
    newest_first(memory, ring).map(move |(number, numbers)| RequestRecord::of((ring, number), &numbers, memory))
}

/// Returns the number and the numbers of each complete record of a ring, the newest one first.
fn newest_first(memory: &[AtomicU64], ring: usize) -> impl Iterator<Item = (u64, [u64; RECORD_NUMBERS])> {
    let count = memory[ring_count(ring)].load(Ordering::Acquire);
    let oldest = count.saturating_sub(RECORDS as u64);
    (oldest..count).rev().filter_map(move |number| Some((number, read(memory, ring, number)?)))
}

/// Reads the numbers of a record; `None` if it is being written or was replaced.
fn read(memory: &[AtomicU64], ring: usize, number: u64) -> Option<[u64; RECORD_NUMBERS]> {
    let at = record_at(ring, number);
    let place = &memory[at..at + RECORD_NUMBERS];
    // A damaged dump may have any number.
    let complete = number.checked_mul(2)?.checked_add(2)?;
    if place[0].load(Ordering::Acquire) != complete {
        return None;
    }
    let numbers = std::array::from_fn(|index| place[index].load(Ordering::Relaxed));
    fence(Ordering::Acquire);
    (place[0].load(Ordering::Relaxed) == complete).then_some(numbers)
}
