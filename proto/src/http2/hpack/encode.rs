//! Encodes field blocks (RFC 7541 §6).
//!
//! A field of a kind that repeats in most responses is inserted into the dynamic table at once, every other field
//! when it occurs for the second time. Credentials are never inserted (RFC 7541 §7.1.3).

use super::INITIAL_TABLE_BYTES;
use super::dynamic_table::{DynamicTable, ENTRY_OVERHEAD_BYTES};
use super::huffman::{encode_huffman, huffman_len};
use super::integer::encode_integer;
use super::static_table::{NAMES, STATIC_ENTRIES, find_static_name, find_static_value};
use crate::field_section::FieldClass;
use crate::status::StatusCode;

/// Most bytes of the dynamic table of an encoder, even if the peer permits more. Default of RFC 9113 §6.5.2.
pub const ENCODER_TABLE_BYTES_MAX: usize = INITIAL_TABLE_BYTES;

/// A cookie that is shorter than this, in bytes, is never indexed: its value could be found by guesses
/// (RFC 7541 §7.1.3).
const COOKIE_BYTES_MIN: usize = 20;

/// Index of `cookie` in the static table.
const COOKIE_INDEX: usize = 32;

/// Slots of the index of a dynamic table. Twice as many as a table of 4,096 bytes usually has entries.
const SLOTS: usize = 128;

/// Number of fields of which the encoder knows that they occurred. A power of two.
const SEEN: usize = 64;

/// When a field is inserted into the dynamic table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Indexing {
    /// At its first occurrence.
    Insert,
    /// At its second occurrence.
    InsertIfSeen,
    /// Never, nor by a recipient that forwards the field.
    Never,
}

impl Indexing {
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
struct Representation {
    flags: u8,
    prefix_bits: u32,
}

impl Representation {
    /// A field of a table. RFC 7541 §6.1
    const INDEXED: Self = Self { flags: 0x80, prefix_bits: 7 };
    /// A literal that is inserted. RFC 7541 §6.2.1
    const INSERTED: Self = Self { flags: 0x40, prefix_bits: 6 };
    /// A change of the table's size. RFC 7541 §6.3
    const SIZE_UPDATE: Self = Self { flags: 0x20, prefix_bits: 5 };
    /// A literal that no recipient inserts. RFC 7541 §6.2.3
    const NEVER_INDEXED: Self = Self { flags: 0x10, prefix_bits: 4 };
    /// A literal that is not inserted. RFC 7541 §6.2.2
    const NOT_INSERTED: Self = Self { flags: 0, prefix_bits: 4 };

    fn encode(self, index: usize, out: &mut Vec<u8>) {
        encode_integer(index, self.prefix_bits, self.flags, out);
    }
}

/// The encoder of one connection.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Smallest table size since the last block, if the peer changed the size.
    pending_size_min: Option<usize>,
    /// For a hash of name and value, and for a hash of a name: the number of the insertion that had it last. Empty
    /// until the first insertion. A slot may be stale or belong to another field, so the entry is compared.
    slots: Vec<u32>,
    /// For some bits of a hash of name and value: other bits of the last field that had it.
    seen: [u16; SEEN],
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Creates an encoder with an empty dynamic table of 4,096 bytes. Does not allocate.
    pub fn new() -> Self {
        let table = DynamicTable::new(ENCODER_TABLE_BYTES_MAX);
        Self { table, pending_size_min: None, slots: Vec::new(), seen: [0; SEEN] }
    }

    /// Changes the size of the dynamic table to the peer's SETTINGS_HEADER_TABLE_SIZE, in bytes, or
    /// [`ENCODER_TABLE_BYTES_MAX`], if that is less. The next block begins with the size updates.
    pub fn set_peer_table_bytes(&mut self, table_bytes: u32) {
        let size_max = (table_bytes as usize).min(ENCODER_TABLE_BYTES_MAX);
        if size_max != self.table.size_max() {
            self.pending_size_min = Some(self.pending_size_min.unwrap_or(size_max).min(size_max));
            self.table.set_size_max(size_max);
        }
    }

    /// Begins a block at the end of `out`.
    ///
    /// The blocks must be sent in the order in which they begin, each completely.
    pub fn begin_block<'a>(&'a mut self, out: &'a mut Vec<u8>) -> BlockEncoder<'a> {
        //= RFC 7541 §4.2: the smallest size in between MUST be signaled, then the final size
        if let Some(size_min) = self.pending_size_min.take() {
            let size_max = self.table.size_max();
            if size_min < size_max {
                Representation::SIZE_UPDATE.encode(size_min, out);
            }
            Representation::SIZE_UPDATE.encode(size_max, out);
        }
        BlockEncoder { encoder: self, out }
    }

    /// Returns the index of the entry that the slot of `hash` has, if `matches` accepts name and value.
    fn find(&self, hash: u64, matches: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let insertion = *self.slots.get(slot_of(hash))?;
        let index = self.table.insertions().wrapping_sub(insertion) as usize;
        let entry = self.table.get(index)?;
        matches(entry.name(), entry.value()).then_some(STATIC_ENTRIES + 1 + index)
    }

    /// Inserts a field. The hashes are those of the field and of its name.
    fn insert(&mut self, name: &[u8], value: &[u8], hashes: [u64; 2]) {
        if self.table.insert(name, value, FieldClass::Regular) {
            if self.slots.is_empty() {
                self.slots = vec![0; SLOTS];
            }
            for hash in hashes {
                self.slots[slot_of(hash)] = self.table.insertions();
            }
        }
    }

    /// Whether the field of this hash occurred before, as far as is known. Records it.
    fn replace_seen(&mut self, hash: u64) -> bool {
        let fingerprint = (hash >> 40) as u16 | 1;
        core::mem::replace(&mut self.seen[(hash >> 58) as usize % SEEN], fingerprint) == fingerprint
    }
}

/// A block that is being encoded.
#[derive(Debug)]
pub struct BlockEncoder<'a> {
    encoder: &'a mut Encoder,
    out: &'a mut Vec<u8>,
}

impl BlockEncoder<'_> {
    /// Appends `:status`. One byte for 200, 204, 206, 304, 400, 404 and 500.
    pub fn status(&mut self, status: StatusCode) {
        let index = match status.code() {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            code => {
                let digits = [code / 100, code / 10 % 10, code % 10].map(|digit| b'0' + digit as u8);
                return self.field(b":status", &digits);
            }
        };
        Representation::INDEXED.encode(index, self.out);
    }

    /// Appends a field. The name is in lower case; a pseudo-field precedes all other fields.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let static_name = find_static_name(name);
        if let Some(index) = static_name.and_then(|first| find_static_value(first, value)) {
            return Representation::INDEXED.encode(index, self.out);
        }
        let indexing = match static_name {
            Some(COOKIE_INDEX) if value.len() < COOKIE_BYTES_MIN => Indexing::Never,
            Some(index) => STATIC_INDEXING[index - 1],
            None => Indexing::of_name(name),
        };
        let name_hash = hash_of(HASH_START, name);
        if indexing == Indexing::Never {
            return self.literal(Representation::NEVER_INDEXED, static_name, name, value);
        }
        let hash = hash_of(name_hash, value);
        if let Some(index) = self.encoder.find(hash, |n, v| n == name && v == value) {
            return Representation::INDEXED.encode(index, self.out);
        }
        let is_seen = self.encoder.replace_seen(hash);
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        // A large entry would evict most others.
        let fits = size <= self.encoder.table.size_max() / 2;
        let name_index = static_name.or_else(|| self.encoder.find(name_hash, |n, _| n == name));
        if fits && (is_seen || indexing == Indexing::Insert) {
            self.literal(Representation::INSERTED, name_index, name, value);
            self.encoder.insert(name, value, [hash, name_hash]);
        } else {
            self.literal(Representation::NOT_INSERTED, name_index, name, value);
        }
    }

    /// Appends a literal field with the index of its name, or with the name.
    fn literal(&mut self, representation: Representation, name_index: Option<usize>, name: &[u8], value: &[u8]) {
        representation.encode(name_index.unwrap_or(0), self.out);
        if name_index.is_none() {
            encode_string(name, self.out);
        }
        encode_string(value, self.out);
    }
}

/// Appends a string, Huffman-coded if that is shorter (RFC 7541 §5.2).
fn encode_string(text: &[u8], out: &mut Vec<u8>) {
    let huffman_bytes = huffman_len(text);
    if huffman_bytes < text.len() {
        encode_integer(huffman_bytes, 7, 0x80, out);
        encode_huffman(text, out);
    } else {
        encode_integer(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}

/// The hash of no bytes.
const HASH_START: u64 = 0x51_7c_c1_b7_27_22_0a_95;

/// Continues a hash with bytes, eight at a time. The high bits are the best.
///
/// A collision costs a second literal, nothing else, so the hash need not resist chosen values.
fn hash_of(start: u64, bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(start, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(bytes.len() as u64, |word, &b| word << 8 | u64::from(b));
    mix(mix(hash, last), 0)
}

/// Returns the slot of a hash.
const fn slot_of(hash: u64) -> usize {
    (hash >> 57) as usize % SLOTS
}
