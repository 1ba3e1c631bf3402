//! Encodes field blocks (RFC 7541 §6).
//!
//! A field of a kind that repeats in most responses is inserted into the dynamic table at once, every other field
//! when it occurs for the second time. Credentials are never inserted (RFC 7541 §7.1.3).

use super::INITIAL_TABLE_BYTES;
use super::dynamic_table::{DynamicTable, ENTRY_OVERHEAD_BYTES};
use super::huffman::{encode_huffman, huffman_len};
use super::indexing::{Indexing, Representation};
use super::integer::encode_integer;
use super::static_table::{STATIC_ENTRIES, find_static_name, find_static_value};
use crate::field::{Fields, field_lines};
use crate::field_section::{FieldFacts, is_sent_in_streams};
use crate::http1::write::CommonFields;
use crate::status::StatusCode;

/// Sets of the index of a dynamic table.
const SETS: usize = 32;

/// Slots of each set. All sets have as many slots as a table of 4,096 bytes has entries at most.
const WAYS: usize = 4;

/// Longest lines whose encoding is kept, in bytes.
const REPEATED_LINES_MAX: usize = 1_024;

/// Most lines whose encoding is kept: those that all responses have, and those of three files or of three kinds of
/// responses.
const REPEATED_MAX: usize = 4;

/// Number of fields of which the encoder knows that they occurred. A power of two.
const SEEN: usize = 64;

/// Most bytes of the buffers of an encoder, without its dynamic table: the index of the table, the lines of the last
/// responses, and their encoding. A vector may have twice the capacity that it needs.
pub const ENCODER_BUFFER_BYTES_MAX: usize = SETS * WAYS * size_of::<IndexSlot>()
    + REPEATED_MAX * (size_of::<RepeatedLines>() + 2 * (2 * REPEATED_LINES_MAX + ENCODED_EXCESS_BYTES));

/// Bytes by which an encoding may be longer than its lines: a line has four bytes besides its name and value, a literal
/// of 127 or more bytes up to seven.
const ENCODED_EXCESS_BYTES: usize = 3 * (REPEATED_LINES_MAX / 127);

/// A slot of the index: some bits of the hash of a field or of a name, and the number of the insertion that had it.
#[derive(Clone, Copy, Debug, Default)]
struct IndexSlot {
    tag: u32,
    insertion: u32,
}

/// The encoder of one connection.
#[derive(Debug)]
pub struct Encoder {
    table: DynamicTable,
    /// Limit of the table size that this endpoint sets.
    table_bytes_max: usize,
    /// Smallest table size since the last block, if the size changed.
    pending_size_min: Option<usize>,
    /// Finds entries of the table. Empty until the first insertion. In each set, the newest slot is the first. A slot
    /// may be stale or belong to another field, so the entry is compared.
    index: Vec<[IndexSlot; WAYS]>,
    /// For some bits of a hash of name and value: other bits of the last field that had it.
    seen: [u16; SEEN],
    /// Number of fields that occurred for the first time, modulo 2³².
    first_occurrences: u32,
    /// The lines of the last responses, at most [`REPEATED_MAX`].
    repeated: Vec<RepeatedLines>,
    /// The place of `repeated` that is replaced next.
    oldest_repeated: usize,
}

/// Lines of a response and their encoding, if it is still right.
#[derive(Debug, Default)]
struct RepeatedLines {
    lines: Vec<u8>,
    encoded: Vec<u8>,
    /// The revision of the table to which the encoding belongs.
    revision: u32,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// Creates an encoder with an empty dynamic table of 4,096 bytes. Does not allocate.
    pub fn new() -> Self {
        Self::with_table_bytes_max(INITIAL_TABLE_BYTES)
    }

    /// Creates an encoder whose dynamic table has at most `table_bytes_max` bytes, whatever the peer permits. Does
    /// not allocate.
    pub fn with_table_bytes_max(table_bytes_max: usize) -> Self {
        let size_max = table_bytes_max.min(INITIAL_TABLE_BYTES);
        Self {
            table: DynamicTable::new(size_max),
            table_bytes_max,
            pending_size_min: (size_max < INITIAL_TABLE_BYTES).then_some(size_max),
            index: Vec::new(),
            seen: [0; SEEN],
            first_occurrences: 0,
            repeated: Vec::new(),
            oldest_repeated: 0,
        }
    }

    /// Frees all buffers, for an idle connection. The dynamic table is emptied: the next block begins with the size updates
    /// that empty the table of the peer, too.
    pub fn release_buffers(&mut self) {
        let (size_max, has_entries) = (self.table.size_max(), self.table.get(0).is_some());
        self.table.set_size_max(0);
        self.table.set_size_max(size_max);
        if has_entries {
            self.pending_size_min = Some(0);
        }
        self.repeated = Vec::new();
        self.oldest_repeated = 0;
        self.index = Vec::new();
    }

    /// Records the hashes of an entry.
    fn index_hashes(&mut self, hashes: [Option<u64>; 2], insertion: u32) {
        for hash in hashes.into_iter().flatten() {
            let (set, tag) = set_and_tag(hash);
            let slots = &mut self.index[set];
            let replaced = slots.iter().position(|slot| slot.tag == tag).unwrap_or(WAYS - 1);
            slots.copy_within(..replaced, 1);
            slots[0] = IndexSlot { tag, insertion };
        }
    }

    /// Changes the size of the dynamic table to the peer's SETTINGS_HEADER_TABLE_SIZE, in bytes, or to the limit of
    /// this endpoint, if that is less. The next block begins with the size updates.
    pub fn set_peer_table_bytes(&mut self, table_bytes: u32) {
        let size_max = (table_bytes as usize).min(self.table_bytes_max);
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

    /// Returns the index of the newest entry that has this hash, if `matches` accepts name and value.
    fn find(&self, hash: u64, matches: impl Fn(&[u8], &[u8]) -> bool) -> Option<usize> {
        let (set, tag) = set_and_tag(hash);
        let slot = self.index.get(set)?.iter().find(|slot| slot.tag == tag)?;
        let index = self.table.insertions().wrapping_sub(slot.insertion) as usize;
        let entry = self.table.get(index)?;
        matches(entry.name(), entry.value()).then_some(STATIC_ENTRIES + 1 + index)
    }

    /// Inserts a field. The hashes are those of the field and, unless the static table has it, of its name.
    fn insert(&mut self, name: &[u8], value: &[u8], hashes: [Option<u64>; 2]) {
        if self.table.insert(name, value, FieldFacts::default()) {
            if self.index.is_empty() {
                self.index = vec![[IndexSlot::default(); WAYS]; SETS];
            }
            self.index_hashes(hashes, self.table.insertions());
        }
    }

    /// Returns two numbers that change if a field would be encoded in another way.
    fn changes(&self) -> (u32, u32) {
        (self.table.revision(), self.first_occurrences)
    }

    /// Keeps lines with their encoding, which is right for the table as it is.
    fn keep_repeated(&mut self, lines: &[u8], encoded: &[u8]) {
        let is_known = |kept: &RepeatedLines| kept.lines == lines;
        let place = self.repeated.iter().position(is_known).unwrap_or_else(|| {
            if self.repeated.len() < REPEATED_MAX {
                self.repeated.push(RepeatedLines::default());
                return self.repeated.len() - 1;
            }
            self.oldest_repeated = (self.oldest_repeated + 1) % REPEATED_MAX;
            self.oldest_repeated
        });
        let kept = &mut self.repeated[place];
        for (buffer, bytes) in [(&mut kept.lines, lines), (&mut kept.encoded, encoded)] {
            buffer.clear();
            buffer.extend_from_slice(bytes);
        }
        kept.revision = self.table.revision();
    }

    /// Whether the field of this hash occurred before, as far as is known. Records it.
    fn replace_seen(&mut self, hash: u64) -> bool {
        let fingerprint = (hash >> 40) as u16 | 1;
        let is_seen = core::mem::replace(&mut self.seen[(hash >> 58) as usize % SEEN], fingerprint) == fingerprint;
        self.first_occurrences = self.first_occurrences.wrapping_add(u32::from(!is_seen));
        is_seen
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

    /// Appends the fields of a response in order, except those that [`is_sent_in_streams`] excludes.
    ///
    /// Lines that one of the last responses had, if they are at most 1,024 bytes long, are not encoded again unless
    /// the dynamic table has changed.
    pub fn fields(&mut self, fields: &Fields) {
        self.lines(fields.lines());
    }

    /// Appends the fields that the server itself adds to a response with `others`.
    ///
    /// They change once a second, and are encoded once until then.
    pub fn common_fields(&mut self, fields: &CommonFields, others: &Fields) {
        self.lines(fields.lines_before(others));
    }

    fn lines(&mut self, lines: &[u8]) {
        let revision = self.encoder.table.revision();
        let repeated = self.encoder.repeated.iter().find(|kept| kept.revision == revision && kept.lines == lines);
        if let Some(kept) = repeated {
            return self.out.extend_from_slice(&kept.encoded);
        }
        let (start, before) = (self.out.len(), self.encoder.changes());
        for (name, value) in field_lines(lines).filter(|(name, _)| is_sent_in_streams(name)) {
            self.field(name, value);
        }
        if before == self.encoder.changes() && lines.len() <= REPEATED_LINES_MAX {
            self.encoder.keep_repeated(lines, &self.out[start..]);
        }
    }

    /// Appends a field. The name is in lower case; a pseudo-field precedes all other fields.
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        let static_name = find_static_name(name);
        if let Some(index) = static_name.and_then(|first| find_static_value(first, value)) {
            return Representation::INDEXED.encode(index, self.out);
        }
        let indexing = Indexing::of_field(name, static_name, value);
        if indexing == Indexing::Never {
            return self.literal(Representation::NEVER_INDEXED, static_name, name, value);
        }
        let name_hash = static_name.is_none().then(|| hash_of(HASH_START, name));
        let hash = hash_of(name_hash.or(static_name.map(|index| index as u64)).unwrap_or_default(), value);
        if let Some(index) = self.encoder.find(hash, |n, v| n == name && v == value) {
            return Representation::INDEXED.encode(index, self.out);
        }
        let is_seen = self.encoder.replace_seen(hash);
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        // A large entry would evict most others.
        let fits = size <= self.encoder.table.size_max() / 2;
        let name_index = static_name.or_else(|| self.encoder.find(name_hash?, |n, _| n == name));
        if fits && (is_seen || indexing == Indexing::Insert) {
            self.literal(Representation::INSERTED, name_index, name, value);
            self.encoder.insert(name, value, [Some(hash), name_hash]);
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
#[inline]
fn hash_of(start: u64, bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
    let hash = mix(start, bytes.len() as u64);
    let Some(last) = bytes.last_chunk::<8>() else {
        return mix(mix(hash, bytes.iter().fold(0, |word, &b| word << 8 | u64::from(b))), 0);
    };
    // The last eight bytes may overlap the eight before them.
    let (words, _) = bytes.as_chunks::<8>();
    let hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    mix(mix(hash, u64::from_le_bytes(*last)), 0)
}

/// Returns the set of a hash, and bits that do not depend on the set.
const fn set_and_tag(hash: u64) -> (usize, u32) {
    ((hash >> 59) as usize % SETS, (hash >> 27) as u32)
}
