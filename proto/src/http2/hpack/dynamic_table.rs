//! The dynamic table (RFC 7541 §2.3.2, §4): the newest fields, up to a size in bytes.
//!
//! All names and values stand in one buffer, oldest first. Removed bytes at its start are reclaimed once they are
//! as many as the table may have, so that an insertion moves few bytes on average and never allocates for itself.

use crate::field_section::FieldFacts;
use std::collections::VecDeque;

/// Bytes that each entry adds to the size of the table (RFC 7541 §4.1).
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The position of one entry: its name begins at `start`, its value follows.
#[derive(Clone, Copy, Debug)]
struct EntryPosition {
    start: u32,
    name_len: u32,
    value_len: u32,
    facts: FieldFacts,
}

/// A field of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableEntry<'a> {
    /// Name and value.
    pub(crate) text: &'a [u8],
    pub(crate) name_len: usize,
    pub(crate) facts: FieldFacts,
}

impl<'a> TableEntry<'a> {
    pub(crate) fn name(&self) -> &'a [u8] {
        &self.text[..self.name_len]
    }

    pub(crate) fn value(&self) -> &'a [u8] {
        &self.text[self.name_len..]
    }
}

#[derive(Debug)]
pub(crate) struct DynamicTable {
    bytes: Vec<u8>,
    /// Oldest first.
    entries: VecDeque<EntryPosition>,
    /// Size of all entries, with their overhead.
    size: usize,
    size_max: usize,
    /// Number of insertions, modulo 2³².
    insertions: u32,
    /// Number of changes, modulo 2³².
    revision: u32,
}

impl DynamicTable {
    /// Creates an empty table of at most `size_max` bytes. Does not allocate.
    pub(crate) fn new(size_max: usize) -> Self {
        Self { bytes: Vec::new(), entries: VecDeque::new(), size: 0, size_max, insertions: 0, revision: 0 }
    }

    /// Returns an entry. The newest one has the index 0.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<TableEntry<'_>> {
        let position = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let start = position.start as usize;
        let text = &self.bytes[start..start + (position.name_len + position.value_len) as usize];
        Some(TableEntry { text, name_len: position.name_len as usize, facts: position.facts })
    }

    /// Returns the most bytes that the table may have.
    pub(crate) fn size_max(&self) -> usize {
        self.size_max
    }

    /// Returns the number of insertions, modulo 2³².
    pub(crate) fn insertions(&self) -> u32 {
        self.insertions
    }

    /// Returns a number that changes with the table.
    pub(crate) fn revision(&self) -> u32 {
        self.revision
    }

    /// Changes the size. Evicts the oldest entries that do not fit.
    pub(crate) fn set_size_max(&mut self, size_max: usize) {
        self.revision = self.revision.wrapping_add(1);
        self.size_max = size_max;
        self.evict_down_to(size_max);
        if size_max == 0 {
            self.bytes = Vec::new();
            self.entries = VecDeque::new();
        }
    }

    /// Inserts a field. Evicts the oldest entries.
    ///
    /// A field that is larger than the table empties it (RFC 7541 §4.4). Returns whether the field was inserted.
    pub(crate) fn insert(&mut self, name: &[u8], value: &[u8], facts: FieldFacts) -> bool {
        self.revision = self.revision.wrapping_add(1);
        let text_len = name.len() + value.len();
        let entry_size = text_len + ENTRY_OVERHEAD_BYTES;
        self.evict_down_to(self.size_max.saturating_sub(entry_size));
        if entry_size > self.size_max {
            return false;
        }
        if self.bytes.len() + text_len > 2 * self.size_max {
            self.reclaim();
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        let (name_len, value_len) = (name.len() as u32, value.len() as u32);
        self.entries.push_back(EntryPosition { start, name_len, value_len, facts });
        self.size += entry_size;
        self.insertions = self.insertions.wrapping_add(1);
        true
    }

    /// Evicts the oldest entries until the others have at most `size` bytes.
    fn evict_down_to(&mut self, size: usize) {
        while self.size > size {
            let Some(oldest) = self.entries.pop_front() else { return };
            self.size -= (oldest.name_len + oldest.value_len) as usize + ENTRY_OVERHEAD_BYTES;
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Frees the memory that the entries do not need, for an idle connection.
    pub(crate) fn compact(&mut self) {
        self.reclaim();
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// Removes the bytes of evicted entries.
    fn reclaim(&mut self) {
        let first = self.entries.front().map_or(self.bytes.len() as u32, |entry| entry.start);
        self.bytes.drain(..first as usize);
        for entry in &mut self.entries {
            entry.start -= first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts many entries of different lengths and compares the table with a list.
    #[test]
    fn entries_equal_a_simple_list_and_memory_is_bounded() {
        const SIZE_MAX: usize = 500;
        let (mut table, mut list) = (DynamicTable::new(SIZE_MAX), Vec::<Vec<u8>>::new());
        for number in 0..5_000usize {
            let text = vec![number as u8; 1 + number * 7 % 120];
            assert!(table.insert(&text[..1], &text[1..], FieldFacts::default()));
            list.insert(0, text);
            while list.iter().map(|text| text.len() + ENTRY_OVERHEAD_BYTES).sum::<usize>() > SIZE_MAX {
                list.pop();
            }
            assert_eq!(table.entries.len(), list.len());
            assert!(list.iter().enumerate().all(|(index, text)| table.get(index).unwrap().text == text));
            assert!(table.get(list.len()).is_none() && table.get(usize::MAX - 1).is_none());
            assert!(table.bytes.len() <= 2 * SIZE_MAX);
        }
    }

    #[test]
    fn large_entry_empties_the_table() {
        let mut table = DynamicTable::new(40);
        assert!(table.insert(b"name", b"valu", FieldFacts::default()));
        assert_eq!(table.get(0).map(|entry| (entry.name(), entry.value())), Some((&b"name"[..], &b"valu"[..])));
        assert!(!table.insert(b"name", b"value", FieldFacts::default()));
        assert_eq!((table.entries.len(), table.size), (0, 0));
        assert!(table.insert(b"a", b"", FieldFacts::default()));
        table.set_size_max(32);
        assert_eq!((table.entries.len(), table.insertions()), (0, 2));
    }
}
