//! The decoded fields of one section, in one buffer, within limits.

use super::class::{FieldClass, FieldFacts, ValueGrammar};
use core::fmt;

/// Bytes that each field adds to the size of a section, besides its name and value (RFC 9113 §10.5.1).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// Limits of one field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionLimits {
    /// Most fields, each crumb of a cookie and each pseudo-field included. Default 100.
    pub fields_max: usize,
    /// Largest section, in bytes: the sum of name, value and 32 for each field (SETTINGS_MAX_FIELD_SECTION_SIZE
    /// of RFC 9114 §4.2.2, SETTINGS_MAX_HEADER_LIST_SIZE of RFC 9113 §6.5.2). Default 16,384. At most
    /// 2³¹, since positions in a section have 32 bits.
    pub section_bytes_max: usize,
}

impl Default for SectionLimits {
    fn default() -> Self {
        Self { fields_max: 100, section_bytes_max: 16_384 }
    }
}

/// The limit that a section exceeds. The request gets 431 (RFC 6585 §5), or 414 for its path (RFC 9110 §15.5.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionLimit {
    /// [`SectionLimits::fields_max`]
    Fields,
    /// [`SectionLimits::section_bytes_max`]
    Bytes,
    /// [`SectionLimits::section_bytes_max`], by `:path`
    Path,
}

impl fmt::Display for SectionLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fields => "the section has too many fields",
            Self::Bytes => "the section is too large",
            Self::Path => "the path is too long",
        })
    }
}

/// One field of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionField<'a> {
    /// The class of the name.
    pub class: FieldClass,
    /// The name as received.
    pub name: &'a [u8],
    /// The value as received.
    pub value: &'a [u8],
    /// Whether the value is valid.
    pub grammar: ValueGrammar,
}

/// A field of a static table.
#[derive(Debug)]
pub(crate) struct StaticField {
    /// Name and value.
    pub(crate) text: &'static [u8],
    pub(crate) name_len: usize,
    pub(crate) class: FieldClass,
}

impl StaticField {
    pub(crate) const fn name(&self) -> &'static [u8] {
        self.text.split_at(self.name_len).0
    }

    pub(crate) const fn value(&self) -> &'static [u8] {
        self.text.split_at(self.name_len).1
    }
}

/// Where one field is. Its value follows its name.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// In a static table.
    Static(&'static StaticField),
    /// In the buffer, from `start` on.
    Buffer { start: u32, name_len: u32, value_len: u32, facts: FieldFacts },
}

/// The fields of one section, in the order of the section. The buffers are reused from section to section.
#[derive(Debug)]
pub struct DecodedFields {
    bytes: Vec<u8>,
    positions: Vec<Position>,
    limits: SectionLimits,
    /// Fields that the limits still permit; 0 if a limit is exceeded.
    fields_left: usize,
    /// Bytes that the limits still permit.
    bytes_left: usize,
    exceeded: Option<SectionLimit>,
}

impl Default for DecodedFields {
    fn default() -> Self {
        Self::new()
    }
}

impl DecodedFields {
    /// Creates an empty section. Does not allocate.
    pub const fn new() -> Self {
        let limits = SectionLimits { fields_max: 0, section_bytes_max: 0 };
        Self { bytes: Vec::new(), positions: Vec::new(), limits, fields_left: 0, bytes_left: 0, exceeded: None }
    }

    /// Returns the fields in order.
    pub fn iter(&self) -> impl Iterator<Item = SectionField<'_>> + Clone {
        self.positions.iter().map(|position| match *position {
            Position::Static(field) => SectionField {
                class: field.class,
                name: field.name(),
                value: field.value(),
                grammar: ValueGrammar::Valid,
            },
            Position::Buffer { start, name_len, value_len, facts } => {
                let (start, len) = (start as usize, (name_len + value_len) as usize);
                let (name, value) = self.bytes[start..start + len].split_at(name_len as usize);
                SectionField { class: facts.class, name, value, grammar: facts.value }
            }
        })
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether no field is stored.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// Returns the size of the stored fields in bytes: name, value and 32 for each.
    pub fn section_bytes(&self) -> usize {
        self.limits.section_bytes_max - self.bytes_left
    }

    /// Returns the limit that the section exceeds. The fields before it are stored.
    pub fn exceeded(&self) -> Option<SectionLimit> {
        self.exceeded
    }

    /// Removes all fields and begins a section with these limits.
    pub(crate) fn begin(&mut self, limits: &SectionLimits) {
        self.bytes.clear();
        self.positions.clear();
        self.limits = *limits;
        (self.fields_left, self.bytes_left) = (limits.fields_max, limits.section_bytes_max);
        self.exceeded = None;
    }

    /// Returns the limits of the current section.
    pub(crate) fn limits(&self) -> &SectionLimits {
        &self.limits
    }

    /// Returns the capacity of the buffer of names and values, in bytes.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Reduces the capacity to the limit of the section, if it is more than twice as much: a Huffman-coded string
    /// needs up to six times its length while it is decoded.
    #[inline]
    pub(crate) fn bound_capacity(&mut self) {
        if self.bytes.capacity() / 2 > self.limits.section_bytes_max {
            self.bytes.shrink_to(self.limits.section_bytes_max);
        }
    }

    /// Frees the buffers.
    pub(crate) fn release(&mut self) {
        *self = Self::new();
    }

    /// Whether one more field of `len` bytes (name and value) is within the limits. Records an exceeded limit.
    #[inline]
    fn permits(&mut self, len: usize, class: FieldClass) -> bool {
        let size = len + FIELD_OVERHEAD_BYTES;
        if self.fields_left == 0 || size > self.bytes_left {
            self.record_exceeded(class);
            return false;
        }
        self.fields_left -= 1;
        self.bytes_left -= size;
        true
    }

    #[cold]
    fn record_exceeded(&mut self, class: FieldClass) {
        let limit = match class {
            _ if self.fields_left == 0 => SectionLimit::Fields,
            FieldClass::Path => SectionLimit::Path,
            _ => SectionLimit::Bytes,
        };
        self.exceeded.get_or_insert(limit);
        self.fields_left = 0;
    }

    /// Stores a field of a static table, if the limits permit it.
    #[inline]
    pub(crate) fn push_static(&mut self, field: &'static StaticField) {
        if self.permits(field.text.len(), field.class) {
            self.positions.push(Position::Static(field));
        }
    }

    /// Stores a field whose name and value follow each other in `text`, if the limits permit it. Copies nothing
    /// beyond a limit.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8], name_len: usize, facts: FieldFacts) {
        if self.permits(text.len(), facts.class) {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(text);
            let value_len = (text.len() - name_len) as u32;
            self.positions.push(Position::Buffer { start, name_len: name_len as u32, value_len, facts });
        }
    }

    /// Returns the buffer, to whose end a codec appends the name and the value of the next field. The codec then
    /// calls [`DecodedFields::commit`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Stores the appended field, which begins at `start`, or removes its bytes if a limit is exceeded.
    pub(crate) fn commit(&mut self, start: usize, name_len: usize, facts: FieldFacts) {
        let len = self.bytes.len() - start;
        if self.permits(len, facts.class) {
            let (start, value_len) = (start as u32, (len - name_len) as u32);
            self.positions.push(Position::Buffer { start, name_len: name_len as u32, value_len, facts });
        } else {
            self.bytes.truncate(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact_and_nothing_is_stored_beyond_them() {
        let limits = SectionLimits { fields_max: 2, section_bytes_max: 2 * (3 + FIELD_OVERHEAD_BYTES) };
        let mut fields = DecodedFields::new();
        fields.begin(&limits);
        fields.push(b"a12", 1, FieldFacts::default());
        fields.push(b"b34", 1, FieldFacts::default());
        assert_eq!((fields.exceeded(), fields.section_bytes()), (None, 70));
        fields.push(b"c", 1, FieldFacts::default());
        assert_eq!((fields.exceeded(), fields.len(), fields.buffer().len()), (Some(SectionLimit::Fields), 2, 6));
        fields.begin(&SectionLimits { section_bytes_max: 69, ..limits });
        fields.push(b"a12", 1, FieldFacts::default());
        fields.buffer().extend_from_slice(b"b34");
        fields.commit(3, 1, FieldFacts::default());
        assert_eq!((fields.exceeded(), fields.len(), fields.buffer().len()), (Some(SectionLimit::Bytes), 1, 3));
        assert_eq!(fields.iter().next().map(|f| (f.name, f.value)), Some((&b"a"[..], &b"12"[..])));
    }
}
