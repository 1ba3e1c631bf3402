//! Field names and values (RFC 9110 §5), known names, and the list of fields
//! that a response carries.
//!
//! Invariant: no byte string that leaves [`Fields`] has a CR, LF or NUL in a name or a
//! value, so nothing that an application computes can add a line to a head.

use crate::swar;
use core::fmt;

/// Octets of a token (RFC 9110 §5.6.2).
pub(crate) const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        table[byte] = b.is_ascii_alphanumeric()
            || matches!(b, b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+')
            || matches!(b, b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~');
        byte += 1;
    }
    table
};

/// The octets of a token in lower case, and 0 for every other octet.
const LOWER_TOKEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if TOKEN[byte] {
            table[byte] = (byte as u8).to_ascii_lowercase();
        }
        byte += 1;
    }
    table
};

/// Whether the bytes are one token.
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| TOKEN[usize::from(b)])
}

/// Octets of a field value: visible ASCII, space, tab and obs-text (RFC 9110 §5.5).
pub(crate) const fn is_value_octet(b: u8) -> bool {
    (b >= 0x20 && b != 0x7f) || b == b'\t'
}

/// Whether the bytes may stand as a field value. Nearly all have nothing below a space, which is
/// seen eight octets at a time.
fn is_value(bytes: &[u8]) -> bool {
    let odd = swar::find(bytes, 0, |word| swar::below(word, 0x20) | swar::equal(word, 0x7f));
    bytes[odd.min(bytes.len())..].iter().all(|&b| is_value_octet(b))
}

/// Without the optional white space around it (RFC 9110 §5.6.3).
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// The members of a comma-separated list, trimmed, empty ones left out (RFC 9110 §5.6.1).
/// For lists whose members have no quoted strings.
pub fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|member| !member.is_empty())
}

macro_rules! known {
    ($($name:ident = $text:literal;)+) => {
        /// The request fields that the server itself reads. A head records where each
        /// stands, so that no later stage searches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Known { $(#[doc = $text] $name,)+ }

        impl Known {
            /// How many there are.
            pub const COUNT: usize = [$(Self::$name,)+].len();

            /// The lower-case name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

known! {
    Host = "host";
    Range = "range";
    Accept = "accept";
    Expect = "expect";
    Upgrade = "upgrade";
    Referer = "referer";
    IfMatch = "if-match";
    IfRange = "if-range";
    Connection = "connection";
    UserAgent = "user-agent";
    IfNoneMatch = "if-none-match";
    ContentLength = "content-length";
    AcceptEncoding = "accept-encoding";
    TransferEncoding = "transfer-encoding";
    IfModifiedSince = "if-modified-since";
    IfUnmodifiedSince = "if-unmodified-since";
}

impl Known {
    /// Its bit in a set of known fields.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The known field of a name, which is a token, in any case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        // The length leaves at most two candidates, so one or two comparisons decide.
        let (first, second) = match name.len() {
            4 => (Self::Host, None),
            5 => (Self::Range, None),
            6 => (Self::Accept, Some(Self::Expect)),
            7 => (Self::Upgrade, Some(Self::Referer)),
            8 => (Self::IfMatch, Some(Self::IfRange)),
            10 => (Self::Connection, Some(Self::UserAgent)),
            13 => (Self::IfNoneMatch, None),
            14 => (Self::ContentLength, None),
            15 => (Self::AcceptEncoding, None),
            17 => (Self::TransferEncoding, Some(Self::IfModifiedSince)),
            19 => (Self::IfUnmodifiedSince, None),
            _ => return None,
        };
        if is_same_token(name, first.name().as_bytes()) {
            return Some(first);
        }
        match second {
            Some(other) if is_same_token(name, other.name().as_bytes()) => Some(other),
            _ => None,
        }
    }
}

/// Whether a token is a lower-case name of the same length, in any case.
///
/// Setting the bit that tells lower case from upper changes no token octet into a letter or
/// hyphen but an upper-case letter, so whole words can be compared.
fn is_same_token(token: &[u8], lower: &[u8]) -> bool {
    const CASE: u8 = 0x20;
    debug_assert_eq!(token.len(), lower.len());
    let (words, rest) = token.as_chunks::<8>();
    let (lower_words, lower_rest) = lower.as_chunks::<8>();
    let words_match = words
        .iter()
        .zip(lower_words)
        .all(|(a, b)| u64::from_ne_bytes(*a) | u64::from_ne_bytes([CASE; 8]) == u64::from_ne_bytes(*b));
    words_match && rest.iter().zip(lower_rest).all(|(a, b)| a | CASE == *b)
}

/// Whether only the engine writes fields of this lower-case name, because they are the framing and
/// the fate of the connection (RFC 9112 §6, §9; RFC 9110 §6.6.1).
fn is_engine_only(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"content-length" | b"date" | b"keep-alive" | b"server" | b"transfer-encoding" | b"upgrade"
    )
}

/// Why a field cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidField {
    /// The name is no token.
    Name,
    /// The value has an octet that no field value may have, such as CR, LF or NUL.
    Value,
    /// The engine alone writes this field.
    EngineOnly,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the field name is no token",
            Self::Value => "the field value has an octet that is not allowed",
            Self::EngineOnly => "this field is written by the engine alone",
        })
    }
}

impl core::error::Error for InvalidField {}

/// The fields of a response, in order, kept as the lines that go on the wire.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    lines: Vec<u8>,
}

impl Fields {
    /// No fields. Does not allocate.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Adds a field after the others.
    ///
    /// # Errors
    /// When the name is no token, the value has a control octet, or the engine alone
    /// writes this field.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let value = trim(value.as_ref());
        let at = self.lines.len();
        let mut is_name = !name.is_empty();
        self.lines.extend(name.bytes().map(|octet| {
            let lower = LOWER_TOKEN[usize::from(octet)];
            is_name &= lower != 0;
            lower
        }));
        let judged = if !is_name {
            Err(InvalidField::Name)
        } else if is_engine_only(&self.lines[at..]) {
            Err(InvalidField::EngineOnly)
        } else if !is_value(value) {
            Err(InvalidField::Value)
        } else {
            Ok(())
        };
        if judged.is_err() {
            self.lines.truncate(at);
            return judged;
        }
        self.lines.reserve(value.len() + ": \r\n".len());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
        judged
    }

    /// Takes every field out, and keeps their room.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Bytes of lines that there is room for.
    pub fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    /// Adds a field in place of every earlier one of that name.
    ///
    /// # Errors
    /// As [`Fields::append`]; then nothing has changed.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let mut added = Self::new();
        added.append(name, value)?;
        self.remove(name);
        self.lines.append(&mut added.lines);
        Ok(())
    }

    /// Takes every field of that name out.
    pub fn remove(&mut self, name: &str) {
        if self.get(name).is_none() {
            return;
        }
        let mut kept = Self::new();
        for (other, value) in self.iter().filter(|(other, _)| !other.eq_ignore_ascii_case(name)) {
            for part in [other.as_bytes(), b": ", value, b"\r\n"] {
                kept.lines.extend_from_slice(part);
            }
        }
        *self = kept;
    }

    /// The value of the first field of that name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Names, in lower case, and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // `append` let no CR into a name or a value and no colon into a name, so the lines
        // divide as they were written.
        self.lines.split(|&b| b == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&b| b == b':')?;
            Some((core::str::from_utf8(&line[..colon]).ok()?, trim(&line[colon + 1..])))
        })
    }

    /// The lines as they go on the wire, each with its CRLF.
    pub fn lines(&self) -> &[u8] {
        &self.lines
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, value.escape_ascii().to_string()))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_carries_a_line_end() {
        let mut fields = Fields::new();
        assert_eq!(fields.append("x", "a\r\ninjected: yes"), Err(InvalidField::Value));
        assert_eq!(fields.append("x", "a\0b"), Err(InvalidField::Value));
        assert_eq!(fields.append("x\r\ny", "a"), Err(InvalidField::Name));
        assert_eq!(fields.append("", "a"), Err(InvalidField::Name));
        assert_eq!(fields.append("Content-Length", "1"), Err(InvalidField::EngineOnly));
        assert_eq!(fields.append("Content-Length\r", "1"), Err(InvalidField::Name));
        assert_eq!(fields.append("x", "\n".repeat(1 << 20)), Err(InvalidField::Value));
        assert!(fields.lines().is_empty());
        assert!(fields.capacity() < 1 << 10, "what is refused takes no room");
    }

    #[test]
    fn set_replaces_and_order_stays() {
        let mut fields = Fields::new();
        fields.append("A", "1").unwrap();
        fields.append("b", " two\t").unwrap();
        fields.append("a", "3").unwrap();
        fields.set("a", "4").unwrap();
        assert_eq!(fields.lines(), b"b: two\r\na: 4\r\n");
        assert_eq!(fields.get("B"), Some(&b"two"[..]));
        fields.remove("b");
        assert_eq!(fields.iter().collect::<Vec<_>>(), [("a", &b"4"[..])]);
    }

    #[test]
    fn every_known_name_is_recognised_in_any_case() {
        for name in ["Host", "RANGE", "if-None-Match", "Transfer-Encoding", "User-Agent", "If-Unmodified-Since"] {
            let known = Known::from_name(name.as_bytes()).unwrap();
            assert!(known.name().eq_ignore_ascii_case(name));
        }
        assert_eq!(Known::from_name(b"hosx"), None);
    }
}
