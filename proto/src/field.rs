//! Field names and values (RFC 9110 §5), known request fields, and the fields of a response.
//!
//! Invariant: no name and no value in [`Fields`] has a CR, LF or NUL. An application therefore
//! cannot inject a line into a head.

use crate::swar;
use core::fmt;

/// Whether a byte may occur in a token (RFC 9110 §5.6.2).
pub(crate) const IS_TOKEN_BYTE: [bool; 256] = {
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

/// Each token byte in lower case, and 0 for every other byte.
const LOWER_CASE_TOKEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if IS_TOKEN_BYTE[byte] {
            table[byte] = (byte as u8).to_ascii_lowercase();
        }
        byte += 1;
    }
    table
};

/// Whether the bytes are a token (RFC 9110 §5.6.2).
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| IS_TOKEN_BYTE[usize::from(b)])
}

/// Whether the bytes are a token without upper-case letters, as HTTP/2 and HTTP/3 require of a field name
/// (RFC 9113 §8.2.1).
pub(crate) fn is_lower_case_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&b| b != 0 && LOWER_CASE_TOKEN[usize::from(b)] == b)
}

/// Whether a byte may occur in a field value: visible ASCII, space, tab and obs-text (RFC 9110 §5.5).
pub(crate) const fn is_value_byte(b: u8) -> bool {
    (b >= 0x20 && b != 0x7f) || b == b'\t'
}

/// Whether the bytes are a valid field value.
///
/// Nearly no value has a byte below a space, so the check for one reads eight bytes at a time.
pub(crate) fn is_field_value(bytes: &[u8]) -> bool {
    let control = swar::find(bytes, 0, |word| swar::below(word, 0x20) | swar::equal_to(word, 0x7f));
    bytes[control.min(bytes.len())..].iter().all(|&b| is_value_byte(b))
}

/// Removes optional white space (OWS) at both ends (RFC 9110 §5.6.3).
pub fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Returns the members of a comma-separated list, trimmed and without empty ones (RFC 9110 §5.6.1).
///
/// Only for lists whose members have no quoted strings.
pub fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(trim).filter(|member| !member.is_empty())
}

macro_rules! known_fields {
    ($($name:ident = $text:literal;)+) => {
        /// The request fields that the server reads. A head records their positions, so that
        /// no later stage searches for them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum KnownField { $(#[doc = $text] $name,)+ }

        impl KnownField {
            /// The number of known fields.
            pub const COUNT: usize = [$(Self::$name,)+].len();

            /// Returns the name in lower case.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

known_fields! {
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

impl KnownField {
    /// Returns the bit of this field in a set of known fields.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns the known field of a name, which must be a token and is compared without case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        // At most two fields have names of one length, so one or two comparisons decide.
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
        if is_token_equal(name, first.name().as_bytes()) {
            return Some(first);
        }
        match second {
            Some(second) if is_token_equal(name, second.name().as_bytes()) => Some(second),
            _ => None,
        }
    }
}

/// Whether a token equals a lower-case name of equal length, compared without case.
///
/// Setting the case bit turns only upper-case letters into lower-case letters, and no other token
/// byte into a letter or a hyphen. So eight bytes are compared at once.
fn is_token_equal(token: &[u8], lower: &[u8]) -> bool {
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

/// Whether only the server may write fields of this lower-case name.
///
/// These fields decide the framing and the persistence, or identify the server (RFC 9112 §6, §9;
/// RFC 9110 §6.6.1).
fn is_reserved(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"content-length" | b"date" | b"keep-alive" | b"server" | b"transfer-encoding" | b"upgrade"
    )
}

/// Appends a name in lower case. Returns whether it is a token; a byte that is not part of a token becomes NUL.
pub(crate) fn append_name(name: &[u8], out: &mut Vec<u8>) -> bool {
    let mut is_token = !name.is_empty();
    out.extend(name.iter().map(|&byte| {
        let lower = LOWER_CASE_TOKEN[usize::from(byte)];
        is_token &= lower != 0;
        lower
    }));
    is_token
}

/// The reason why a field cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidField {
    /// The name is not a token.
    Name,
    /// The value has a byte that is not allowed, such as CR, LF or NUL.
    Value,
    /// Only the server sets this field.
    Reserved,
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the field name is not a token",
            Self::Value => "the field value has a character that is not allowed",
            Self::Reserved => "this field is set by the server and cannot be changed",
        })
    }
}

impl core::error::Error for InvalidField {}

/// Returns the names and the values of lines as [`Fields`] stores them: `name: value`, each with its CRLF.
///
/// [`Fields::append`] refuses CR and LF in names and values, and colons in names. So a line ends at its first CR, and its
/// name at the first colon.
pub(crate) fn field_lines(mut lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    core::iter::from_fn(move || {
        let end = swar::find(lines, 0, |word| swar::equal_to(word, b'\r'));
        let (line, rest) = lines.split_at_checked(end)?;
        lines = rest.strip_prefix(b"\r\n")?;
        let colon = line.iter().position(|&b| b == b':')?;
        Some((&line[..colon], line.get(colon + 2..)?))
    })
}

/// The first byte of the lines of [`Fields`] that replace the `Server` field of the server. No line begins with it.
const REPLACES_SERVER: u8 = 0;

/// The fields of a response, in order, stored as the lines of the message.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    lines: Vec<u8>,
}

impl Fields {
    /// Creates an empty list. Does not allocate.
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Appends a field.
    ///
    /// # Errors
    /// If the name is not a token, the value has a control character, or only the server sets
    /// this field. The list is then unchanged.
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        self.append_bytes(name.as_bytes(), value.as_ref())
    }

    /// Appends a field whose name is not known to be text, such as a received one.
    ///
    /// # Errors
    /// Those of [`Fields::append`].
    pub fn append_bytes(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        let value = trim(value);
        let start = self.lines.len();
        let result = if !append_name(name, &mut self.lines) {
            Err(InvalidField::Name)
        } else if is_reserved(&self.lines[start..]) {
            Err(InvalidField::Reserved)
        } else if !is_field_value(value) {
            Err(InvalidField::Value)
        } else {
            Ok(())
        };
        if result.is_err() {
            self.lines.truncate(start);
            return result;
        }
        self.lines.reserve(value.len() + ": \r\n".len());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
        result
    }

    /// Removes all fields and keeps the allocation.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the capacity in bytes of lines.
    pub fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    /// Replaces all fields of a name by one field, which is appended. `Server` replaces the field of the server.
    ///
    /// # Errors
    /// If the name is not a token, the value has a control character, or only the server sets
    /// this field. The list is then unchanged.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let mut added = Self::new();
        if name.eq_ignore_ascii_case("server") {
            // Any other name of this length, which is then replaced.
            added.append("xerver", value)?;
            added.lines[0] = b's';
        } else {
            added.append(name, value)?;
        }
        self.remove(name);
        self.lines.append(&mut added.lines);
        Ok(())
    }

    /// Removes all fields of a name. `Server` removes the field of the server, too.
    pub fn remove(&mut self, name: &str) {
        let replaces_server = self.replaces_server() || name.eq_ignore_ascii_case("server");
        if self.get(name).is_none() && replaces_server == self.replaces_server() {
            return;
        }
        let mut remaining = Self::new();
        if replaces_server {
            remaining.lines.push(REPLACES_SERVER);
        }
        for (other, value) in self.iter().filter(|(other, _)| !other.eq_ignore_ascii_case(name)) {
            for part in [other.as_bytes(), b": ", value, b"\r\n"] {
                remaining.lines.extend_from_slice(part);
            }
        }
        *self = remaining;
    }

    /// Whether the `Server` field of the server is not sent, because these fields replace or remove it.
    pub fn replaces_server(&self) -> bool {
        self.lines.first() == Some(&REPLACES_SERVER)
    }

    /// Returns the value of the first field of a name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns names, in lower case, and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        field_lines(self.lines()).filter_map(|(name, value)| Some((core::str::from_utf8(name).ok()?, value)))
    }

    /// Returns the lines of the message, each with its CRLF.
    pub fn lines(&self) -> &[u8] {
        if self.replaces_server() { &self.lines[1..] } else { &self.lines }
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
    fn fields_with_line_ends_are_refused() {
        let mut fields = Fields::new();
        assert_eq!(fields.append("x", "a\r\ninjected: yes"), Err(InvalidField::Value));
        assert_eq!(fields.append("x", "a\0b"), Err(InvalidField::Value));
        assert_eq!(fields.append("x\r\ny", "a"), Err(InvalidField::Name));
        assert_eq!(fields.append("", "a"), Err(InvalidField::Name));
        assert_eq!(fields.append("Content-Length", "1"), Err(InvalidField::Reserved));
        assert_eq!(fields.append("Content-Length\r", "1"), Err(InvalidField::Name));
        assert_eq!(fields.append("x", "\n".repeat(1 << 20)), Err(InvalidField::Value));
        assert!(fields.lines().is_empty());
        assert!(fields.capacity() < 1 << 10, "a refused field allocates nothing");
    }

    #[test]
    fn set_replaces_and_keeps_the_order() {
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
    fn the_field_of_the_server_is_replaced_or_removed() {
        let mut fields = Fields::new();
        fields.append("a", "1").unwrap();
        assert_eq!(fields.append("Server", "x"), Err(InvalidField::Reserved), "it would be sent twice");
        assert!(!fields.replaces_server());
        fields.remove("SERVER");
        assert!(fields.replaces_server());
        assert_eq!(fields.lines(), b"a: 1\r\n");
        fields.set("Server", "one").unwrap();
        fields.set("server", "two").unwrap();
        fields.remove("a");
        assert_eq!((fields.lines(), fields.replaces_server()), (&b"server: two\r\n"[..], true));
        assert_eq!(fields.set("server", "a\r\nb: c"), Err(InvalidField::Value));
        assert_eq!(fields.get("server"), Some(&b"two"[..]));
        fields.clear();
        assert!(!fields.replaces_server());
    }

    #[test]
    fn known_fields_are_recognized_in_any_case() {
        for name in ["Host", "RANGE", "if-None-Match", "Transfer-Encoding", "User-Agent", "If-Unmodified-Since"] {
            let field = KnownField::from_name(name.as_bytes()).unwrap();
            assert!(field.name().eq_ignore_ascii_case(name));
        }
        assert_eq!(KnownField::from_name(b"hosx"), None);
    }
}
