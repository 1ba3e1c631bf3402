//! Writes the head of a response (RFC 9112 §4, §6) and decides the framing of its content.

use crate::date::HttpDate;
use crate::field::{Fields, is_value_byte};
use crate::head::Version;
use crate::message::AnnouncedLength;
use crate::reject::Persistence;
use crate::status::StatusCode;

/// How the content of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFraming {
    /// The status code forbids content, and the head has no framing field.
    Absent,
    /// Content of this many bytes follows.
    Length(u64),
    /// Chunked content follows.
    Chunked,
    /// The content ends when the connection is closed: HTTP/1.0 and an unknown length.
    UntilClose,
}

impl ResponseFraming {
    /// Decides how the content of a response to a request of this version ends.
    pub fn new(length: AnnouncedLength, version: Version) -> Self {
        match (length, version) {
            (AnnouncedLength::Absent, _) => Self::Absent,
            (AnnouncedLength::Known(length), _) => Self::Length(length),
            (AnnouncedLength::Unknown, Version::Http11 | Version::Http2 | Version::Http3) => Self::Chunked,
            //= RFC 9112 §6.1: no Transfer-Encoding to HTTP/1.0
            (AnnouncedLength::Unknown, Version::Http10) => Self::UntilClose,
        }
    }
}

/// The parts of a response head.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: StatusCode,
    /// The version of the request: an HTTP/1.0 client needs `connection: keep-alive`.
    pub version: Version,
    /// How the content ends.
    pub framing: ResponseFraming,
    /// Whether the connection persists after the response.
    pub persistence: Persistence,
    /// Server and Date.
    pub common_fields: &'a CommonFields,
    /// The application's fields.
    pub fields: &'a Fields,
}

/// The lines at the start of all response heads: status line 200, Server and Date.
///
/// They change once a second, so the server formats them once a second and not for each response.
#[derive(Clone, Copy, Debug)]
pub struct CommonFields([u8; COMMON_FIELDS_LEN]);

/// The most frequent status line, which precedes the lines of all heads.
const OK_STATUS_LINE: &[u8; 17] = b"HTTP/1.1 200 OK\r\n";
const SERVER_LINE: &[u8; 18] = b"server: selvedge\r\n";
const DATE_NAME: &[u8; 6] = b"date: ";
const DATE_LINE_OFFSET: usize = OK_STATUS_LINE.len() + SERVER_LINE.len();
const DATE_OFFSET: usize = DATE_LINE_OFFSET + DATE_NAME.len();
const COMMON_FIELDS_LEN: usize = DATE_OFFSET + HttpDate::LEN + 2;

impl CommonFields {
    /// Formats the lines for a date (RFC 9110 §6.6.1).
    pub fn new(date: HttpDate) -> Self {
        let mut bytes = [b'\n'; COMMON_FIELDS_LEN];
        bytes[..OK_STATUS_LINE.len()].copy_from_slice(OK_STATUS_LINE);
        bytes[OK_STATUS_LINE.len()..DATE_LINE_OFFSET].copy_from_slice(SERVER_LINE);
        bytes[DATE_LINE_OFFSET..DATE_OFFSET].copy_from_slice(DATE_NAME);
        bytes[DATE_OFFSET..COMMON_FIELDS_LEN - 2].copy_from_slice(&date.format());
        bytes[COMMON_FIELDS_LEN - 2] = b'\r';
        Self(bytes)
    }

    /// Returns the lines of Server and Date that precede `fields`, each with its CRLF. Fields that replace Server have no
    /// line of it.
    pub fn lines_before(&self, fields: &Fields) -> &[u8] {
        if fields.replaces_server() { &self.0[DATE_LINE_OFFSET..] } else { &self.0[OK_STATUS_LINE.len()..] }
    }
}

/// The usual size of a head without the application's fields, in bytes.
const HEAD_BYTES_ESTIMATE: usize = 192;

impl ResponseHead<'_> {
    /// Appends the head, including the empty line, to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD_BYTES_ESTIMATE + self.fields.lines().len());
        if self.status == StatusCode::OK && !self.fields.replaces_server() {
            out.extend_from_slice(&self.common_fields.0);
        } else {
            write_status_line(self.status, out);
            out.extend_from_slice(self.common_fields.lines_before(self.fields));
        }
        out.extend_from_slice(self.fields.lines());
        let end: &[u8] = match (self.persistence, self.version) {
            (Persistence::KeepAlive, Version::Http10) => b"connection: keep-alive\r\n\r\n",
            (Persistence::KeepAlive, Version::Http11 | Version::Http2 | Version::Http3) => b"\r\n",
            (Persistence::Close, _) => b"connection: close\r\n\r\n",
        };
        match self.framing {
            ResponseFraming::Absent | ResponseFraming::UntilClose => {}
            ResponseFraming::Length(length) => {
                out.extend_from_slice(b"content-length: ");
                write_decimal(length, out);
                out.extend_from_slice(b"\r\n");
            }
            ResponseFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(end);
    }
}

/// Appends an interim response (RFC 9110 §15.2), such as 100 Continue.
pub fn write_interim(status: StatusCode, fields: &Fields, out: &mut Vec<u8>) {
    debug_assert!(status.is_interim());
    write_status_line(status, out);
    out.extend_from_slice(fields.lines());
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of 101 Switching Protocols (RFC 9110 §7.8).
///
/// The application chooses `protocol`. Bytes that are not allowed in a field value are omitted.
pub fn write_switching_protocols(protocol: &[u8], common_fields: &CommonFields, fields: &Fields, out: &mut Vec<u8>) {
    write_status_line(StatusCode::SWITCHING_PROTOCOLS, out);
    out.extend_from_slice(common_fields.lines_before(fields));
    out.extend_from_slice(fields.lines());
    out.extend_from_slice(b"connection: upgrade\r\nupgrade: ");
    out.extend(protocol.iter().filter(|&&b| is_value_byte(b)));
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends the size line of a chunk of `len` bytes. The caller appends the chunk and CRLF.
pub fn write_chunk_size(len: usize, out: &mut Vec<u8>) {
    debug_assert!(len > 0, "a chunk of size 0 ends the content");
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for digit in (0..digits).rev() {
        out.push(b"0123456789abcdef"[len >> (digit * 4) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailer section.
pub fn write_last_chunk(trailers: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers.lines());
    out.extend_from_slice(b"\r\n");
}

fn write_status_line(status: StatusCode, out: &mut Vec<u8>) {
    match status.status_line() {
        Some(line) => out.extend_from_slice(line),
        None => {
            out.extend_from_slice(b"HTTP/1.1 ");
            write_decimal(status.code().into(), out);
            out.extend_from_slice(b" \r\n");
        }
    }
}

/// Most decimal digits of a number of 64 bits.
pub const DECIMAL_DIGITS_MAX: usize = 20;

/// Appends a number in decimal digits.
pub fn write_decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(decimal(number, &mut [0; DECIMAL_DIGITS_MAX]));
}

/// Returns the decimal digits of a number, which are written into `digits`.
pub fn decimal(number: u64, digits: &mut [u8; DECIMAL_DIGITS_MAX]) -> &[u8] {
    let (mut at, mut rest) = (DECIMAL_DIGITS_MAX - 1, number);
    while rest > 9 {
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        at -= 1;
    }
    digits[at] = b'0' + rest as u8;
    &digits[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_written() {
        let mut fields = Fields::new();
        fields.append("x", "y").unwrap();
        let common_fields = CommonFields::new(HttpDate::from_unix(784_111_777));
        let mut out = Vec::new();
        ResponseHead {
            status: StatusCode::OK,
            version: Version::Http10,
            framing: ResponseFraming::Length(1_234_567_890),
            persistence: Persistence::KeepAlive,
            common_fields: &common_fields,
            fields: &fields,
        }
        .write(&mut out);
        let expected = "HTTP/1.1 200 OK\r\nserver: selvedge\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nx: y\r\n\
                        content-length: 1234567890\r\nconnection: keep-alive\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn chunk_sizes_and_numbers_are_written() {
        for (len, line) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (65_536, "10000\r\n")] {
            let mut out = Vec::new();
            write_chunk_size(len, &mut out);
            assert_eq!(out, line.as_bytes());
        }
        let mut out = Vec::new();
        write_last_chunk(&Fields::new(), &mut out);
        write_decimal(0, &mut out);
        write_decimal(u64::MAX, &mut out);
        assert_eq!(out, b"0\r\n\r\n018446744073709551615");
    }

    #[test]
    fn framing_depends_on_length_and_version() {
        let framing = ResponseFraming::new;
        assert_eq!(framing(AnnouncedLength::Absent, Version::Http11), ResponseFraming::Absent);
        assert_eq!(framing(AnnouncedLength::Known(5), Version::Http10), ResponseFraming::Length(5));
        assert_eq!(framing(AnnouncedLength::Unknown, Version::Http10), ResponseFraming::UntilClose);
        assert_eq!(framing(AnnouncedLength::Unknown, Version::Http11), ResponseFraming::Chunked);
    }
}
