//! The head of a response as bytes (RFC 9112 §4, §6), and how its content will end.

use crate::date::HttpDate;
use crate::field::{Fields, is_value_octet};
use crate::head::Version;
use crate::method::Method;
use crate::reject::Afterwards;
use crate::status::Status;

/// How the content of a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFraming {
    /// There is none, and the head says nothing of it.
    Absent,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
    /// It ends with the connection: HTTP/1.0 and an unknown length.
    UntilClose,
}

/// Decides how the content ends; `length` is the content's length where it is known.
///
/// A response to HEAD gets what the one to GET would get, and then no content follows.
pub fn content_framing(status: Status, version: Version, length: Option<u64>) -> ContentFraming {
    match (length, version) {
        _ if status.forbids_content() => ContentFraming::Absent,
        (Some(length), _) => ContentFraming::Length(length),
        (None, Version::Http11) => ContentFraming::Chunked,
        //= RFC 9112 §6.1: no Transfer-Encoding to HTTP/1.0
        (None, Version::Http10) => ContentFraming::UntilClose,
    }
}

/// Whether content follows the head.
pub fn has_content(framing: ContentFraming, method: Method) -> bool {
    method != Method::Head && !matches!(framing, ContentFraming::Absent | ContentFraming::Length(0))
}

/// What stands in a response head.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status.
    pub status: Status,
    /// The version of the request, since HTTP/1.0 has to be told that a connection lives on.
    pub version: Version,
    /// How the content ends.
    pub framing: ContentFraming,
    /// What becomes of the connection.
    pub afterwards: Afterwards,
    /// Server and Date.
    pub dated: &'a DatedLines,
    /// The application's fields.
    pub fields: &'a Fields,
}

/// The lines that every head of a second begins with: made once a second, not once an answer.
#[derive(Clone, Copy, Debug)]
pub struct DatedLines([u8; DATED_BYTES]);

/// The status line that most heads have, before the lines that all have.
const OK_LINE: &[u8; 17] = b"HTTP/1.1 200 OK\r\n";
const BEFORE_DATE: &[u8; 24] = b"server: selvedge\r\ndate: ";
const DATE_AT: usize = OK_LINE.len() + BEFORE_DATE.len();
const DATED_BYTES: usize = DATE_AT + HttpDate::LEN + 2;

impl DatedLines {
    /// With this Date (RFC 9110 §6.6.1).
    pub fn new(date: HttpDate) -> Self {
        let mut bytes = [b'\n'; DATED_BYTES];
        bytes[..OK_LINE.len()].copy_from_slice(OK_LINE);
        bytes[OK_LINE.len()..DATE_AT].copy_from_slice(BEFORE_DATE);
        bytes[DATE_AT..DATED_BYTES - 2].copy_from_slice(&date.format());
        bytes[DATED_BYTES - 2] = b'\r';
        Self(bytes)
    }
}

/// What a head needs beside its own fields, as a rule.
const HEAD_BYTES_USUAL: usize = 192;

impl ResponseHead<'_> {
    /// Appends the head, with its empty line.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(HEAD_BYTES_USUAL + self.fields.lines().len());
        if self.status == Status::OK {
            out.extend_from_slice(&self.dated.0);
        } else {
            write_status_line(self.status, out);
            out.extend_from_slice(&self.dated.0[OK_LINE.len()..]);
        }
        out.extend_from_slice(self.fields.lines());
        let end: &[u8] = match (self.afterwards, self.version) {
            (Afterwards::KeepOpen, Version::Http11) => b"\r\n",
            (Afterwards::KeepOpen, Version::Http10) => b"connection: keep-alive\r\n\r\n",
            (Afterwards::Close, _) => b"connection: close\r\n\r\n",
        };
        match self.framing {
            ContentFraming::Absent | ContentFraming::UntilClose => {}
            ContentFraming::Length(length) => {
                out.extend_from_slice(b"content-length: ");
                write_decimal(length, out);
                out.extend_from_slice(b"\r\n");
            }
            ContentFraming::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        out.extend_from_slice(end);
    }
}

/// Appends an interim response (RFC 9110 §15.2), as for 100 Continue.
pub fn write_interim(status: Status, fields: &Fields, out: &mut Vec<u8>) {
    debug_assert!(status.is_interim());
    write_status_line(status, out);
    out.extend_from_slice(fields.lines());
    out.extend_from_slice(b"\r\n");
}

/// Appends the head that ends HTTP on a connection (RFC 9110 §7.8). The protocol is one that the
/// application names; octets that no field value has are left out.
pub fn write_switch(protocol: &[u8], dated: &DatedLines, fields: &Fields, out: &mut Vec<u8>) {
    write_status_line(Status::SWITCHING_PROTOCOLS, out);
    out.extend_from_slice(&dated.0[OK_LINE.len()..]);
    out.extend_from_slice(fields.lines());
    out.extend_from_slice(b"connection: upgrade\r\nupgrade: ");
    out.extend(protocol.iter().filter(|&&b| is_value_octet(b)));
    out.extend_from_slice(b"\r\n\r\n");
}

/// Appends the line that precedes a chunk of `len` bytes; after the chunk comes CRLF.
pub fn write_chunk_size(len: usize, out: &mut Vec<u8>) {
    debug_assert!(len > 0, "an empty chunk would end the content");
    let digits = (usize::BITS - len.leading_zeros()).div_ceil(4);
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[len >> (place * 4) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends what ends chunked content.
pub fn write_last_chunk(trailers: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    out.extend_from_slice(trailers.lines());
    out.extend_from_slice(b"\r\n");
}

fn write_status_line(status: Status, out: &mut Vec<u8>) {
    match status.line() {
        Some(line) => out.extend_from_slice(line),
        None => {
            out.extend_from_slice(b"HTTP/1.1 ");
            write_decimal(status.code().into(), out);
            out.extend_from_slice(b" \r\n");
        }
    }
}

/// Appends a number in decimal digits.
pub fn write_decimal(number: u64, out: &mut Vec<u8>) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [0; DIGITS_MAX];
    let (mut at, mut rest) = (DIGITS_MAX - 1, number);
    while rest > 9 {
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        at -= 1;
    }
    digits[at] = b'0' + rest as u8;
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads() {
        let mut fields = Fields::new();
        fields.append("x", "y").unwrap();
        let dated = DatedLines::new(HttpDate::from_unix(784_111_777));
        let mut out = Vec::new();
        ResponseHead {
            status: Status::OK,
            version: Version::Http10,
            framing: ContentFraming::Length(1_234_567_890),
            afterwards: Afterwards::KeepOpen,
            dated: &dated,
            fields: &fields,
        }
        .write(&mut out);
        let expected = "HTTP/1.1 200 OK\r\nserver: selvedge\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nx: y\r\n\
                        content-length: 1234567890\r\nconnection: keep-alive\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn chunks() {
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
    fn framing_of_content() {
        assert_eq!(content_framing(Status::NO_CONTENT, Version::Http11, Some(0)), ContentFraming::Absent);
        assert_eq!(content_framing(Status::OK, Version::Http10, None), ContentFraming::UntilClose);
        assert!(!has_content(ContentFraming::Length(5), Method::Head));
        assert!(!has_content(ContentFraming::Length(0), Method::Get));
    }
}
