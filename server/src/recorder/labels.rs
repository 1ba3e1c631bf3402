//! Texts that records name by number: sites, routes, upstreams and reasons. Each is stored once.
//!
//! A text is its length in bytes and then its bytes, eight in a number. Its number is its place, from 1.

use super::layout::{HEADER_LABELS, LABEL_NUMBERS, LABELS};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Longest text in bytes. Longer ones are cut.
const LABEL_BYTES_MAX: usize = 255;
/// Between the name of a route and its first pattern. No pattern has it.
const PATTERN_MARK: char = '\n';

/// The numbers of known texts.
#[derive(Debug, Default)]
pub(super) struct LabelWriter(Mutex<HashMap<Box<str>, u32>>);

impl LabelWriter {
    /// Returns the number of a text, and stores a new one. An empty text, and one for which the memory does not suffice,
    /// has the number 0.
    pub(super) fn number_of(&self, text: &str, memory: &[AtomicU64]) -> u32 {
        let text = &text[..text.floor_char_boundary(LABEL_BYTES_MAX)];
        if text.is_empty() {
            return 0;
        }
        // A panic while the lock is held leaves a complete table.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = known.get(text) {
            return *number;
        }
        let used = memory[HEADER_LABELS].load(Ordering::Relaxed) as usize;
        let end = used + 1 + text.len().div_ceil(8);
        if end > LABEL_NUMBERS {
            return 0;
        }
        memory[LABELS + used].store(text.len() as u64, Ordering::Relaxed);
        for (place, piece) in (LABELS + used + 1..).zip(text.as_bytes().chunks(8)) {
            memory[place].store(to_number(piece), Ordering::Relaxed);
        }
        memory[HEADER_LABELS].store(end as u64, Ordering::Release);
        let number = u32::try_from(used + 1).expect("the memory for texts has fewer numbers");
        known.insert(text.into(), number);
        number
    }
}

/// Returns the text of a route: its name, and its first pattern if that is another text.
pub(super) fn route_label<'n>(name: &'n str, pattern: &str) -> Cow<'n, str> {
    if name == pattern { Cow::Borrowed(name) } else { Cow::Owned(format!("{name}{PATTERN_MARK}{pattern}")) }
}

/// Returns the name and the first pattern of a route from its text.
pub(super) fn name_and_pattern(label: &str) -> (&str, &str) {
    label.rsplit_once(PATTERN_MARK).unwrap_or((label, label))
}

/// Returns the text with a number; an empty one if no text has it.
pub(super) fn text_of(number: u32, memory: &[AtomicU64]) -> String {
    let used = (memory[HEADER_LABELS].load(Ordering::Acquire) as usize).min(LABEL_NUMBERS);
    let Some(at) = (number as usize).checked_sub(1).filter(|at| *at < used) else { return String::new() };
    let length = (memory[LABELS + at].load(Ordering::Relaxed) as usize).min(LABEL_BYTES_MAX);
    let end = at + 1 + length.div_ceil(8);
    let numbers = &memory[LABELS + at + 1..LABELS + end.min(LABEL_NUMBERS)];
    from_numbers(numbers.iter().map(|number| number.load(Ordering::Relaxed)), length)
}

/// Puts at most eight bytes into a number.
pub(super) fn to_number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    let length = bytes.len().min(all.len());
    all[..length].copy_from_slice(&bytes[..length]);
    u64::from_le_bytes(all)
}

/// Returns the text of `length` bytes in numbers. Invalid bytes are replaced.
pub(super) fn from_numbers(numbers: impl Iterator<Item = u64>, length: usize) -> String {
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).take(length).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::layout::words_for;

    #[test]
    fn a_text_is_stored_once_and_the_memory_is_bounded() {
        let memory: Vec<AtomicU64> = (0..words_for(0)).map(|_| AtomicU64::new(0)).collect();
        let labels = LabelWriter::default();
        let texts = ["example.com", "/api/*", "12345678", "größe"];
        let numbers = texts.map(|text| labels.number_of(text, &memory));
        assert_eq!(numbers.map(|number| text_of(number, &memory)), texts);
        assert_eq!(texts.map(|text| labels.number_of(text, &memory)), numbers);
        assert_eq!((labels.number_of("", &memory), text_of(0, &memory)), (0, String::new()));
        assert_eq!(text_of(u32::MAX, &memory), "");
        let long = "ü".repeat(200);
        assert_eq!(text_of(labels.number_of(&long, &memory), &memory), "ü".repeat(127));
        let full = (0..100_000).map(|text| labels.number_of(&text.to_string(), &memory)).position(|number| number == 0);
        assert!(full.is_some_and(|at| at > 60_000), "{full:?}");
        assert_eq!(text_of(numbers[0], &memory), texts[0]);
    }
}
