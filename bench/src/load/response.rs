//! Finds the end of a response: the part of HTTP that a client of known servers needs.
//!
//! Invariant: every received byte belongs to exactly one response. Framing that it does not implement (chunked
//! content, content that ends with the connection) is an error.

use memchr::{memchr, memmem};

/// The maximum length of a response head. The measured servers send 200 to 400 bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The progress after some bytes.
pub(crate) enum ParseProgress {
    /// The response is not complete; all bytes were consumed.
    More,
    /// The response ended after `consumed` bytes.
    Complete { consumed: usize, end: ResponseEnd },
    /// The bytes are not a response that this client can parse.
    Malformed,
}

/// The facts of a response that a client needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseEnd {
    pub(crate) status: u16,
    /// The length of its content.
    pub(crate) length: u64,
    /// Whether the server closes the connection.
    pub(crate) closes: bool,
}

/// Reads the responses of one connection.
#[derive(Default)]
pub(crate) struct ResponseReader {
    end: ResponseEnd,
    body_remaining: u64,
    /// The start of a head that was received in several pieces.
    partial_head: Vec<u8>,
}

impl ResponseReader {
    /// Returns the number of content bytes that are still expected.
    pub(crate) fn body_remaining(&self) -> u64 {
        self.body_remaining
    }

    /// Counts content bytes that were discarded in the kernel.
    pub(crate) fn skip(&mut self, count: u64) -> ParseProgress {
        self.body_remaining = self.body_remaining.saturating_sub(count);
        if self.body_remaining > 0 {
            ParseProgress::More
        } else {
            ParseProgress::Complete { consumed: 0, end: self.end }
        }
    }

    /// Consumes received bytes, up to the end of the response.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> ParseProgress {
        if self.body_remaining > 0 {
            return self.body(bytes, 0);
        }
        if self.partial_head.is_empty() {
            return match memmem::find(bytes, b"\r\n\r\n") {
                Some(end) => self.head(&bytes[..end + 2], bytes, end + 4),
                None => self.store_partial_head(bytes),
            };
        }
        let partial_head = self.partial_head.len();
        self.partial_head.extend_from_slice(bytes);
        let whole = std::mem::take(&mut self.partial_head);
        match memmem::find(&whole, b"\r\n\r\n") {
            Some(end) => self.head(&whole[..end + 2], bytes, end + 4 - partial_head),
            None => self.store_partial_head(&whole),
        }
    }

    fn store_partial_head(&mut self, bytes: &[u8]) -> ParseProgress {
        if bytes.len() > HEAD_BYTES_MAX {
            return ParseProgress::Malformed;
        }
        self.partial_head = bytes.to_vec();
        ParseProgress::More
    }

    fn head(&mut self, head: &[u8], bytes: &[u8], consumed: usize) -> ParseProgress {
        let Some(end) = parse_head(head) else { return ParseProgress::Malformed };
        (self.end, self.body_remaining) = (end, end.length);
        self.body(&bytes[consumed..], consumed)
    }

    fn body(&mut self, bytes: &[u8], before: usize) -> ParseProgress {
        let have = bytes.len() as u64;
        if have < self.body_remaining {
            self.body_remaining -= have;
            return ParseProgress::More;
        }
        let last = usize::try_from(self.body_remaining).expect("at most the length of the slice");
        self.body_remaining = 0;
        ParseProgress::Complete { consumed: before + last, end: self.end }
    }
}

/// Parses a head that includes the CRLF of its last line.
fn parse_head(head: &[u8]) -> Option<ResponseEnd> {
    let digits = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5))?;
    let status: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let mut end = ResponseEnd { status, length: 0, closes: head[7] == b'0' };
    let mut length = matches!(status, 204 | 304).then_some(0);
    let mut rest = head;
    while let Some(at) = memchr(b'\n', rest) {
        let line = &rest[..at];
        rest = &rest[at + 1..];
        if !matches!(line.first(), Some(b'c' | b'C')) {
            continue;
        }
        if let (None, Some(value)) = (length, field_value(line, b"content-length:")) {
            length = Some(std::str::from_utf8(value).ok()?.trim().parse().ok()?);
        } else if let Some(value) = field_value(line, b"connection:") {
            end.closes = value.trim_ascii().eq_ignore_ascii_case(b"close");
        }
    }
    length.map(|length| ResponseEnd { length, ..end })
}

fn field_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 304 Not Modified\r\nX: y\r\n\r\n";

    fn statuses(pieces: &[&[u8]]) -> Vec<u16> {
        let (mut reader, mut found) = (ResponseReader::default(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match reader.feed(rest) {
                    ParseProgress::More => break,
                    ParseProgress::Complete { consumed, end } => {
                        found.push(end.status);
                        rest = &rest[consumed..];
                    }
                    ParseProgress::Malformed => panic!("malformed"),
                }
            }
        }
        found
    }

    #[test]
    fn responses_are_delimited_at_every_split() {
        for split in 0..TWO.len() {
            assert_eq!(statuses(&[&TWO[..split], &TWO[split..]]), [200, 304], "split at {split}");
        }
        let bytes: Vec<&[u8]> = TWO.chunks(1).collect();
        assert_eq!(statuses(&bytes), [200, 304]);
    }

    #[test]
    fn a_response_without_content_length_is_malformed() {
        let mut reader = ResponseReader::default();
        assert!(matches!(
            reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            ParseProgress::Malformed
        ));
    }
}
