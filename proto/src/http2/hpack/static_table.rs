//! The static table (RFC 7541 Appendix A), and a perfect hash table of its names.

use crate::field_section::{FieldClass, StaticField};

/// Number of entries. Their indices begin with 1.
pub(crate) const STATIC_ENTRIES: usize = 61;

macro_rules! static_table {
    ($($name:literal, $value:literal, $class:ident;)+) => {
        /// The entry of index 1 is the first.
        static ENTRIES: [StaticField; STATIC_ENTRIES] = [$(StaticField {
            text: concat!($name, $value).as_bytes(),
            name_len: $name.len(),
            class: FieldClass::$class,
        },)+];

        /// The names of the entries.
        pub(crate) const NAMES: [&[u8]; STATIC_ENTRIES] = [$($name.as_bytes(),)+];
    };
}

static_table! {
    ":authority", "", Authority;
    ":method", "GET", Method;
    ":method", "POST", Method;
    ":path", "/", Path;
    ":path", "/index.html", Path;
    ":scheme", "http", Scheme;
    ":scheme", "https", Scheme;
    ":status", "200", Status;
    ":status", "204", Status;
    ":status", "206", Status;
    ":status", "304", Status;
    ":status", "400", Status;
    ":status", "404", Status;
    ":status", "500", Status;
    "accept-charset", "", Regular;
    "accept-encoding", "gzip, deflate", Regular;
    "accept-language", "", Regular;
    "accept-ranges", "", Regular;
    "accept", "", Regular;
    "access-control-allow-origin", "", Regular;
    "age", "", Regular;
    "allow", "", Regular;
    "authorization", "", Regular;
    "cache-control", "", Regular;
    "content-disposition", "", Regular;
    "content-encoding", "", Regular;
    "content-language", "", Regular;
    "content-length", "", ContentLength;
    "content-location", "", Regular;
    "content-range", "", Regular;
    "content-type", "", Regular;
    "cookie", "", Cookie;
    "date", "", Regular;
    "etag", "", Regular;
    "expect", "", Regular;
    "expires", "", Regular;
    "from", "", Regular;
    "host", "", Host;
    "if-match", "", Regular;
    "if-modified-since", "", Regular;
    "if-none-match", "", Regular;
    "if-range", "", Regular;
    "if-unmodified-since", "", Regular;
    "last-modified", "", Regular;
    "link", "", Regular;
    "location", "", Regular;
    "max-forwards", "", Regular;
    "proxy-authenticate", "", Regular;
    "proxy-authorization", "", Regular;
    "range", "", Regular;
    "referer", "", Regular;
    "refresh", "", Regular;
    "retry-after", "", Regular;
    "server", "", Regular;
    "set-cookie", "", Regular;
    "strict-transport-security", "", Regular;
    "transfer-encoding", "", ConnectionSpecific;
    "user-agent", "", Regular;
    "vary", "", Regular;
    "via", "", Regular;
    "www-authenticate", "", Regular;
}

/// Returns the entry of an index from 1 to 61.
#[inline]
pub(crate) fn static_entry(index: usize) -> Option<&'static StaticField> {
    ENTRIES.get(index.wrapping_sub(1))
}

/// For each entry, the number of entries from it on that have its name.
static NAME_COUNT: [u8; STATIC_ENTRIES] = {
    let (mut counts, mut entry) = ([1u8; STATIC_ENTRIES], STATIC_ENTRIES - 1);
    while entry > 0 {
        entry -= 1;
        if is_equal(NAMES[entry], NAMES[entry + 1]) {
            counts[entry] = counts[entry + 1] + 1;
        }
    }
    counts
};

/// Slots of the hash table: a power of two.
const SLOTS: usize = 128;

/// The index of the first entry of the name in each slot; 0 if the slot is empty. Made by the compiler, which
/// refuses two names in one slot.
static SLOT_INDEX: [u8; SLOTS] = {
    let (mut slots, mut entry) = ([0u8; SLOTS], 0);
    while entry < STATIC_ENTRIES {
        let slot = slot_of(NAMES[entry]);
        if slots[slot] == 0 {
            slots[slot] = entry as u8 + 1;
        } else {
            let first = NAMES[slots[slot] as usize - 1];
            assert!(is_equal(first, NAMES[entry]), "each slot has one name");
        }
        entry += 1;
    }
    slots
};

const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    a.len() == b.len() && index == a.len()
}

/// Returns the slot of a name, which depends on its length and three of its bytes. The name is not empty.
const fn slot_of(name: &[u8]) -> usize {
    let (first, middle, last) = (name[0] as usize, name[name.len() / 2] as usize, name[name.len() - 1] as usize);
    (name.len() * MULTIPLIERS[0] + first * MULTIPLIERS[1] + middle * MULTIPLIERS[2] + last * MULTIPLIERS[3]) % SLOTS
}

/// Factors for which all names have different slots.
const MULTIPLIERS: [usize; 4] = [63, 63, 41, 12];

/// Returns the index of the first entry of a name, which is in lower case.
pub(crate) fn find_static_name(name: &[u8]) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let index = usize::from(SLOT_INDEX[slot_of(name)]);
    let entry = ENTRIES.get(index.wrapping_sub(1))?;
    (entry.name() == name).then_some(index)
}

/// Returns the index of the entry with this value among the entries of one name, the first of which is `first`.
pub(crate) fn find_static_value(first: usize, value: &[u8]) -> Option<usize> {
    let count = usize::from(NAME_COUNT[first - 1]);
    (first..first + count).find(|index| ENTRIES[index - 1].value() == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_and_has_its_class() {
        for (number, entry) in ENTRIES.iter().enumerate() {
            let first = find_static_name(entry.name()).unwrap();
            assert!(first <= number + 1);
            assert_eq!(find_static_value(first, entry.value()), Some(number + 1));
            assert_eq!(entry.class, FieldClass::of_name(entry.name()));
        }
        assert_eq!((find_static_name(b""), find_static_name(b"x-y")), (None, None));
        assert_eq!((find_static_value(8, b"201"), find_static_value(61, b"x")), (None, None));
    }
}
