//! The reasons why a block cannot be decoded.

use core::fmt;

/// The reason why a block is invalid. The tables of the two peers differ from then on, so the connection ends
/// with COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HpackError {
    /// The block ends within a field. RFC 7541 §6
    Truncated,
    /// An integer exceeds 2³¹ - 1 or has more than five continuation bytes. RFC 7541 §5.1
    IntegerTooLarge,
    /// An indexed field has the index 0. RFC 7541 §6.1
    IndexZero,
    /// An index is beyond the end of the dynamic table. RFC 7541 §2.3.3
    IndexOutOfRange,
    /// A Huffman-coded string contains EOS. RFC 7541 §5.2
    HuffmanEndOfString,
    /// The padding of a Huffman-coded string has more than seven bits or a bit that is 0. RFC 7541 §5.2
    HuffmanPaddingInvalid,
    /// A size update exceeds the size that was announced to the peer. RFC 7541 §6.3
    SizeUpdateTooLarge,
    /// A size update follows a field. RFC 7541 §4.2
    SizeUpdateMisplaced,
    /// A block begins with more than two size updates. RFC 7541 §4.2
    SizeUpdateRepeated,
    /// The peer acknowledged a smaller table, but the next block has no size update to it. RFC 7541 §4.2
    SizeUpdateMissing,
}

impl HpackError {
    /// Returns one sentence that states the reason, for the log. It never contains bytes of the peer.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Truncated => "a field block ends within a field",
            Self::IntegerTooLarge => "an integer of a field block is too large",
            Self::IndexZero => "a field block has the index 0",
            Self::IndexOutOfRange => "an index of a field block is beyond the dynamic table",
            Self::HuffmanEndOfString => "a Huffman-coded string contains the end-of-string symbol",
            Self::HuffmanPaddingInvalid => "the padding of a Huffman-coded string is invalid",
            Self::SizeUpdateTooLarge => "a dynamic table size update exceeds the announced size",
            Self::SizeUpdateMisplaced => "a dynamic table size update follows a field",
            Self::SizeUpdateRepeated => "a field block has more than two dynamic table size updates",
            Self::SizeUpdateMissing => "a field block lacks the required dynamic table size update",
        }
    }
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl core::error::Error for HpackError {}
