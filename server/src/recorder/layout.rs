//! Where the numbers of a recorder stand.
//!
//! ```text
//! header │ texts │ ring 0: count, records │ ring 1: … │
//! ```

/// The version of this layout. A dump may be read by a later program.
pub(super) const FORMAT: u64 = 0x5345_4c56_5245_0001;

/// Numbers of the header.
const HEADER_NUMBERS: usize = 8;
/// The place of [`FORMAT`].
pub(super) const HEADER_FORMAT: usize = 0;
/// The place of the number of rings.
pub(super) const HEADER_RINGS: usize = 1;
/// The place of the number of numbers that texts use.
pub(super) const HEADER_LABELS: usize = 2;

/// Where the texts begin.
pub(super) const LABELS: usize = HEADER_NUMBERS;
/// Numbers for texts: 1 MiB.
pub(super) const LABEL_NUMBERS: usize = (1 << 20) / 8;

/// Requests that a ring keeps.
pub(super) const RECORDS: usize = 65_536;
/// Numbers of a record.
pub(super) const RECORD_NUMBERS: usize = 24;
/// Numbers of a ring before its records: how many records were begun.
const RING_HEADER: usize = 8;
const RING_NUMBERS: usize = RING_HEADER + RECORDS * RECORD_NUMBERS;

/// The memory of one ring in bytes.
pub(crate) const RING_BYTES: u64 = (RING_NUMBERS * 8) as u64;

/// Returns how many numbers a recorder with this number of rings has.
pub(super) const fn words_for(rings: usize) -> usize {
    LABELS + LABEL_NUMBERS + rings * RING_NUMBERS
}

/// Returns the place of the number of records that were begun in a ring.
pub(super) const fn ring_count(ring: usize) -> usize {
    words_for(ring)
}

/// Returns the place of the record with a number in a ring.
pub(super) const fn record_at(ring: usize, number: u64) -> usize {
    words_for(ring) + RING_HEADER + (number % RECORDS as u64) as usize * RECORD_NUMBERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_do_not_overlap_and_a_ring_is_used_again() {
        assert_eq!(record_at(0, 0), record_at(0, RECORDS as u64));
        assert_eq!(record_at(0, RECORDS as u64 - 1) + RECORD_NUMBERS, ring_count(1));
        assert_eq!(record_at(1, RECORDS as u64 - 1) + RECORD_NUMBERS, words_for(2));
        assert_eq!(RING_BYTES, 12 * (1 << 20) + 64);
    }
}
