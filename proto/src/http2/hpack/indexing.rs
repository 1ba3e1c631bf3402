//! Decides which fields an encoder inserts, and writes the first byte of each representation (RFC 7541 §6, §7.1.3).

use super::integer::encode_integer;
use super::static_table::{NAMES, STATIC_ENTRIES};

/// A cookie that is shorter than this, in bytes, is never indexed: its value could be found by guesses
/// (RFC 7541 §7.1.3).
const COOKIE_BYTES_MIN: usize = 20;

/// Index of `cookie` in the static table.
const COOKIE_INDEX: usize = 32;

/// When a field is inserted into the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexing {
    /// At its first occurrence.
    Insert,
    /// At its second occurrence.
    InsertIfSeen,
    /// Never, nor by a recipient that forwards the field.
    Never,
}

impl Indexing {
    /// Returns the rule of a field.
    pub(super) fn of_field(name: &[u8], static_name: Option<usize>, value: &[u8]) -> Self {
        match static_name {
            Some(COOKIE_INDEX) if value.len() < COOKIE_BYTES_MIN => Self::Never,
            Some(index) => STATIC_INDEXING[index - 1],
            None => Self::of_name(name),
        }
    }

    const fn of_name(name: &[u8]) -> Self {
        match name {
            b"authorization" | b"proxy-authorization" | b"set-cookie" => Self::Never,
            b":authority" | b":method" | b":scheme" | b":status" => Self::Insert,
            b"accept" | b"accept-encoding" | b"accept-language" | b"cookie" | b"user-agent" => Self::Insert,
            b"accept-ranges" | b"alt-svc" | b"cache-control" | b"content-encoding" | b"content-type" => Self::Insert,
            b"access-control-allow-origin" | b"date" | b"server" | b"strict-transport-security" => Self::Insert,
            b"content-security-policy" | b"permissions-policy" | b"referrer-policy" | b"vary" => Self::Insert,
            b"x-content-type-options" | b"x-frame-options" => Self::Insert,
            _ => Self::InsertIfSeen,
        }
    }
}

/// The rule of each name of the static table.
static STATIC_INDEXING: [Indexing; STATIC_ENTRIES] = {
    let (mut table, mut entry) = ([Indexing::InsertIfSeen; STATIC_ENTRIES], 0);
    while entry < STATIC_ENTRIES {
        table[entry] = Indexing::of_name(NAMES[entry]);
        entry += 1;
    }
    table
};

/// The first byte of a representation without its index, and the length of the index in that byte, in bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Representation {
    flags: u8,
    prefix_bits: u32,
}

impl Representation {
    /// A field of a table. RFC 7541 §6.1
    pub(super) const INDEXED: Self = Self { flags: 0x80, prefix_bits: 7 };
    /// A literal that is inserted. RFC 7541 §6.2.1
    pub(super) const INSERTED: Self = Self { flags: 0x40, prefix_bits: 6 };
    /// A change of the table's size. RFC 7541 §6.3
    pub(super) const SIZE_UPDATE: Self = Self { flags: 0x20, prefix_bits: 5 };
    /// A literal that no recipient inserts. RFC 7541 §6.2.3
    pub(super) const NEVER_INDEXED: Self = Self { flags: 0x10, prefix_bits: 4 };
    /// A literal that is not inserted. RFC 7541 §6.2.2
    pub(super) const NOT_INSERTED: Self = Self { flags: 0, prefix_bits: 4 };

    pub(super) fn encode(self, index: usize, out: &mut Vec<u8>) {
        encode_integer(index, self.prefix_bits, self.flags, out);
    }
}
