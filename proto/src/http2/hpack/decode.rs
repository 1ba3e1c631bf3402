//! Decodes field blocks (RFC 7541 §3, §6).
//!
//! Invariant: the dynamic table changes as the block demands, even if a limit is exceeded, so it stays equal to
//! the peer's table.

use super::INITIAL_TABLE_BYTES;
use super::dynamic_table::{DynamicTable, TableEntry};
use super::error::HpackError;
use super::huffman::decode_huffman;
use super::integer::decode_integer;
use super::static_table::{STATIC_ENTRIES, static_entry};
use crate::field_section::{DecodedFields, FieldClass, FieldFacts, SectionLimit, SectionLimits};

/// Longest block that is compared with the previous one, in bytes. A request of a browser whose fields are all in
/// the tables has fewer than 100.
pub const REPEATED_BLOCK_BYTES_MAX: usize = 512;

/// Most size updates at the start of a block: to the smallest size in between, then to the last (RFC 7541 §4.2).
const SIZE_UPDATES_MAX: usize = 2;

/// The result of decoding a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeOutcome {
    /// [`Decoder::fields`] has the fields of the block.
    Fields,
    /// The block has the bytes and the meaning of the previous block, so [`Decoder::fields`] still has its fields.
    /// Everything that was derived from them is still right.
    Repeated,
    /// The section exceeds a limit. [`Decoder::fields`] has the fields before it. The connection can continue.
    LimitExceeded(SectionLimit),
}

/// What a literal field does with the dynamic table (RFC 7541 §6.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum LiteralIndexing {
    Insert,
    Skip,
}

/// The decoder of one connection.
#[derive(Debug)]
pub struct Decoder {
    table: DynamicTable,
    /// The size that the peer may choose.
    table_bytes_max: usize,
    /// Whether the table is larger than the peer has acknowledged, so that the next block must reduce it.
    needs_size_update: bool,
    fields: DecodedFields,
    /// The block that `fields` has, if decoding it again yields equal fields and no change; else empty.
    repeatable_block: Vec<u8>,
}

impl Decoder {
    /// Creates a decoder whose dynamic table has at most `table_bytes_max` bytes. Does not allocate.
    ///
    /// The table begins with 4,096 bytes or `table_bytes_max`, if that is less. Before the peer has acknowledged
    /// another SETTINGS_HEADER_TABLE_SIZE, the limit is [`INITIAL_TABLE_BYTES`].
    pub fn new(table_bytes_max: usize) -> Self {
        Self {
            table: DynamicTable::new(table_bytes_max.min(INITIAL_TABLE_BYTES)),
            table_bytes_max,
            needs_size_update: false,
            fields: DecodedFields::new(),
            repeatable_block: Vec::new(),
        }
    }

    /// Changes the limit of the dynamic table, in bytes. Called when the peer acknowledges the
    /// SETTINGS_HEADER_TABLE_SIZE with this value.
    ///
    /// If the table is larger, the next block must begin with a size update.
    pub fn set_table_bytes_max(&mut self, table_bytes_max: usize) {
        self.table_bytes_max = table_bytes_max;
        self.needs_size_update = self.table.size_max() > table_bytes_max;
    }

    /// Returns the fields of the last block. After an error they have no meaning.
    pub fn fields(&self) -> &DecodedFields {
        &self.fields
    }

    /// Frees the buffers of the last block, for an idle connection. Keeps the entries of the dynamic table.
    pub fn release_buffers(&mut self) {
        self.table.compact();
        self.fields.release();
        self.repeatable_block = Vec::new();
    }

    /// Decodes a complete block: the fragments of HEADERS and CONTINUATION, without padding.
    ///
    /// Fields beyond a limit are decoded for the dynamic table and not stored. A field that the tables have is
    /// checked against the limits before it is copied. Memory is bounded by twice the limits. During the call, the
    /// field that is being decoded adds up to 1.6 times the length of the block and the size of the table.
    ///
    /// # Errors
    /// The first reason in the order of the block. The connection must then end with COMPRESSION_ERROR.
    pub fn decode_block(&mut self, block: &[u8], limits: &SectionLimits) -> Result<DecodeOutcome, HpackError> {
        let is_repeated = !block.is_empty() && self.repeatable_block == block && self.fields.limits() == limits;
        if is_repeated && !self.needs_size_update {
            return Ok(DecodeOutcome::Repeated);
        }
        self.repeatable_block.clear();
        self.fields.begin(limits);
        let revision = self.table.revision();
        let mut rest = self.decode_size_updates(block)?;
        while let Some((&first, after)) = rest.split_first() {
            rest = self.decode_field(first, after)?;
        }
        self.fields.bound_capacity();
        if let Some(limit) = self.fields.exceeded() {
            return Ok(DecodeOutcome::LimitExceeded(limit));
        }
        if revision == self.table.revision() && block.len() <= REPEATED_BLOCK_BYTES_MAX {
            self.repeatable_block.extend_from_slice(block);
        }
        Ok(DecodeOutcome::Fields)
    }

    /// Decodes the size updates at the start of a block (RFC 7541 §4.2, §6.3). Returns the bytes after them.
    #[inline]
    fn decode_size_updates<'a>(&mut self, block: &'a [u8]) -> Result<&'a [u8], HpackError> {
        let mut rest = block;
        let mut updates = 0;
        while let Some((&first @ 0x20..=0x3f, after)) = rest.split_first() {
            if updates == SIZE_UPDATES_MAX {
                return Err(HpackError::SizeUpdateRepeated);
            }
            updates += 1;
            rest = self.decode_size_update(first, after)?;
        }
        //= RFC 7541 §4.2: after a reduction, an update MUST occur at the start of the first block
        if self.needs_size_update { Err(HpackError::SizeUpdateMissing) } else { Ok(rest) }
    }

    #[cold]
    fn decode_size_update<'a>(&mut self, first: u8, rest: &'a [u8]) -> Result<&'a [u8], HpackError> {
        let (size_max, rest) = decode_integer(first, 5, rest)?;
        if size_max > self.table_bytes_max {
            return Err(HpackError::SizeUpdateTooLarge);
        }
        self.table.set_size_max(size_max);
        self.needs_size_update = false;
        Ok(rest)
    }

    /// Decodes the field that begins with `first` and continues in `rest`. Returns the bytes after it.
    #[inline]
    fn decode_field<'a>(&mut self, first: u8, rest: &'a [u8]) -> Result<&'a [u8], HpackError> {
        match first {
            0x80.. => {
                let (index, rest) = decode_integer(first, 7, rest)?;
                if let Some(field) = static_entry(index) {
                    self.fields.push_static(field);
                } else {
                    let entry = dynamic_entry(&self.table, index)?;
                    self.fields.push(entry.text, entry.name_len, entry.facts);
                }
                Ok(rest)
            }
            0x40.. => {
                let (name_index, rest) = decode_integer(first, 6, rest)?;
                self.decode_literal(name_index, LiteralIndexing::Insert, rest)
            }
            0x20.. => Err(HpackError::SizeUpdateMisplaced),
            _ => {
                let (name_index, rest) = decode_integer(first, 4, rest)?;
                self.decode_literal(name_index, LiteralIndexing::Skip, rest)
            }
        }
    }

    /// Decodes a literal field. `name_index` is the index of its name, or 0 if the name follows.
    fn decode_literal<'a>(
        &mut self,
        name_index: usize,
        indexing: LiteralIndexing,
        mut rest: &'a [u8],
    ) -> Result<&'a [u8], HpackError> {
        let buffer = self.fields.buffer();
        let start = buffer.len();
        let (name_len, class) = if name_index == 0 {
            rest = decode_string(rest, buffer)?;
            (buffer.len() - start, FieldClass::of_name(&buffer[start..]))
        } else if let Some(field) = static_entry(name_index) {
            buffer.extend_from_slice(field.name());
            (field.name_len, field.class)
        } else {
            let entry = dynamic_entry(&self.table, name_index)?;
            buffer.extend_from_slice(entry.name());
            (entry.name_len, entry.facts.class)
        };
        rest = decode_string(rest, buffer)?;
        let (name, value) = buffer[start..].split_at(name_len);
        let facts = FieldFacts::new(class, value);
        if indexing == LiteralIndexing::Insert {
            self.table.insert(name, value, facts);
        }
        self.fields.commit(start, name_len, facts);
        Ok(rest)
    }
}

/// Returns the entry of an index that the static table does not have (RFC 7541 §2.3.3).
#[inline]
fn dynamic_entry(table: &DynamicTable, index: usize) -> Result<TableEntry<'_>, HpackError> {
    let index = index.checked_sub(STATIC_ENTRIES + 1).ok_or(HpackError::IndexZero)?;
    table.get(index).ok_or(HpackError::IndexOutOfRange)
}

/// Decodes a string to the end of `out` (RFC 7541 §5.2). Returns the bytes after it.
fn decode_string<'a>(rest: &'a [u8], out: &mut Vec<u8>) -> Result<&'a [u8], HpackError> {
    const HUFFMAN: u8 = 0x80;
    let (&first, rest) = rest.split_first().ok_or(HpackError::Truncated)?;
    let (len, rest) = decode_integer(first, 7, rest)?;
    let (encoded, rest) = rest.split_at_checked(len).ok_or(HpackError::Truncated)?;
    if first & HUFFMAN == 0 {
        out.extend_from_slice(encoded);
    } else {
        decode_huffman(encoded, out)?;
    }
    Ok(rest)
}
