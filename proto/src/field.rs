//! Field names and values (RFC 9110 §5), known request fields, and the fields of a response.
//!
//! Invariant: no name and no value in [`Fields`] has a CR, LF or NUL. An application therefore
//! cannot inject a line into a head.

use crate::date::HttpDate;
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
/// These fields decide the framing and the persistence (RFC 9112 §6, §9).
fn is_reserved(name: &[u8]) -> bool {
    matches!(name, b"connection" | b"content-length" | b"keep-alive" | b"transfer-encoding" | b"upgrade")
}

/// Whether a value is a date as senders write it (RFC 9110 §5.6.7).
fn is_date(value: &[u8]) -> bool {
    value.len() == HttpDate::LEN && HttpDate::parse(value, HttpDate::from_unix(0)).is_some()
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

/// The fields of a response, in order, stored as the lines of the message.
///
/// The server writes Server and Date itself, unless the fields have their own. Each of the two is there once: an appended
/// one replaces the earlier one. [`Fields::remove`] of Server leaves it out of the response. Date cannot be left out
/// (RFC 9110 §6.6.1).
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Fields {
    lines: Vec<u8>,
    replaced: ReplacedFields,
}

/// Which of the fields that the server writes itself it does not write.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ReplacedFields {
    server: bool,
    date: bool,
}

impl Fields {
    /// Creates an empty list. Does not allocate.
    pub const fn new() -> Self {
        Self { lines: Vec::new(), replaced: ReplacedFields { server: false, date: false } }
    }

    /// Appends a field.
    ///
    /// # Errors
    /// If the name is not a token, the value has a control character or is that of Date and no date, or only the server
    /// sets this field. The list is then unchanged.
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
        } else if !is_field_value(value) || &self.lines[start..] == b"date" && !is_date(value) {
            Err(InvalidField::Value)
        } else {
            Ok(())
        };
        if result.is_err() {
            self.lines.truncate(start);
            return result;
        }
        if matches!(&self.lines[start..], b"server" | b"date") {
            self.lines.truncate(start);
            return self.replace_common(name, value);
        }
        self.lines.reserve(value.len() + ": \r\n".len());
        self.lines.extend_from_slice(b": ");
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(b"\r\n");
        result
    }

    /// Appends a field that the server otherwise writes itself. Its value is valid.
    #[cold]
    fn replace_common(&mut self, name: &[u8], value: &[u8]) -> Result<(), InvalidField> {
        let (name, is_replaced) = match name.len() {
            4 => ("date", self.replaced.date),
            _ => ("server", self.replaced.server),
        };
        if is_replaced {
            self.remove(name);
        }
        match name {
            "date" => self.replaced.date = true,
            _ => self.replaced.server = true,
        }
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            self.lines.extend_from_slice(part);
        }
        Ok(())
    }

    /// Whether the server writes no Server of its own: the fields have one, or it was removed.
    pub(crate) fn replaces_server(&self) -> bool {
        self.replaced.server
    }

    /// Whether the fields have a Date, so that the server writes none.
    pub(crate) fn replaces_date(&self) -> bool {
        self.replaced.date
    }

    /// Removes all fields and keeps the allocation.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.replaced = ReplacedFields::default();
    }

    /// Returns the capacity in bytes of lines.
    pub fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    /// Replaces all fields of a name by one field, which is appended.
    ///
    /// # Errors
    /// If the name is not a token, the value has a control character, or only the server sets
    /// this field. The list is then unchanged.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<(), InvalidField> {
        let mut added = Self::new();
        added.append(name, value)?;
        self.remove(name);
        self.lines.append(&mut added.lines);
        self.replaced.server |= added.replaced.server;
        self.replaced.date |= added.replaced.date;
        Ok(())
    }

    /// Removes all fields of a name. After the removal of Server, the response has none; after that of Date, the server
    /// writes it.
    pub fn remove(&mut self, name: &str) {
        match name.len() {
            4 if name.eq_ignore_ascii_case("date") => self.replaced.date = false,
            6 if name.eq_ignore_ascii_case("server") => self.replaced.server = true,
            _ => {}
        }
        if self.get(name).is_none() {
            return;
        }
        let mut remaining = Self::new();
        for (other, value) in self.iter().filter(|(other, _)| !other.eq_ignore_ascii_case(name)) {
            for part in [other.as_bytes(), b": ", value, b"\r\n"] {
                remaining.lines.extend_from_slice(part);
            }
        }
        self.lines = remaining.lines;
    }

    /// Returns the value of the first field of a name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns names, in lower case, and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        field_lines(&self.lines).filter_map(|(name, value)| Some((core::str::from_utf8(name).ok()?, value)))
    }

    /// Returns the lines of the message, each with its CRLF.
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
    fn server_and_date_are_written_once() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let mut fields = Fields::new();
        for value in ["", "yesterday", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 UTC"] {
            assert_eq!(fields.append("Date", value), Err(InvalidField::Value), "{value}");
        }
        assert!(!fields.replaces_date() && !fields.replaces_server());
        fields.append("Date", date).unwrap();
        fields.append("Server", "a").unwrap();
        fields.append("server", "b").unwrap();
        fields.append("date", date).unwrap();
        assert_eq!(fields.lines(), format!("server: b\r\ndate: {date}\r\n").as_bytes());
        assert!(fields.replaces_date() && fields.replaces_server());
        fields.remove("DATE");
        fields.remove("Server");
        assert!(fields.lines().is_empty());
        assert!(!fields.replaces_date() && fields.replaces_server());
        fields.clear();
        assert!(!fields.replaces_server());
        fields.set("server", "c").unwrap();
        assert!(fields.replaces_server());
    }

    #[test]
    fn a_replaced_server_field_outlives_changes_of_other_fields() {
        let mut fields = Fields::new();
        fields.append("a", "1").unwrap();
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
