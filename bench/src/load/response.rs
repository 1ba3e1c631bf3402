//! Finds where a response ends: enough of HTTP for a client that knows its servers.
//!
//! Invariant: every byte that comes in belongs to exactly one response. What it does not
//! understand (a chunked body, a body that ends with the connection) is an error, not a guess.

use memchr::{memchr, memmem};

/// The longest head that is waited for; the servers measured here send 200 to 400 bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What the bytes so far amount to.
pub(crate) enum Progress {
    /// The response is not over; all bytes were consumed.
    More,
    /// It ended after so many of the bytes.
    Ended { consumed: usize, end: End },
    /// These bytes are not a response that this client understands.
    Malformed,
}

/// What a response said, as far as a client cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) status: u16,
    /// How long its content was.
    pub(crate) length: u64,
    /// The server will end the connection.
    pub(crate) last: bool,
}

/// Reads the responses of one connection.
#[derive(Default)]
pub(crate) struct Reader {
    end: End,
    body_left: u64,
    /// The beginning of a head that came in pieces.
    held: Vec<u8>,
}

impl Reader {
    /// How much of a body is still to come.
    pub(crate) fn body_left(&self) -> u64 {
        self.body_left
    }

    /// Takes bytes of a body that were counted and not read.
    pub(crate) fn skip(&mut self, count: u64) -> Progress {
        self.body_left = self.body_left.saturating_sub(count);
        if self.body_left > 0 { Progress::More } else { Progress::Ended { consumed: 0, end: self.end } }
    }

    /// Takes the next bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Progress {
        if self.body_left > 0 {
            return self.body(bytes, 0);
        }
        if self.held.is_empty() {
            return match memmem::find(bytes, b"\r\n\r\n") {
                Some(end) => self.head(&bytes[..end + 2], bytes, end + 4),
                None => self.hold(bytes),
            };
        }
        let held = self.held.len();
        self.held.extend_from_slice(bytes);
        let whole = std::mem::take(&mut self.held);
        match memmem::find(&whole, b"\r\n\r\n") {
            Some(end) => self.head(&whole[..end + 2], bytes, end + 4 - held),
            None => self.hold(&whole),
        }
    }

    fn hold(&mut self, bytes: &[u8]) -> Progress {
        if bytes.len() > HEAD_BYTES_MAX {
            return Progress::Malformed;
        }
        self.held = bytes.to_vec();
        Progress::More
    }

    fn head(&mut self, head: &[u8], bytes: &[u8], consumed: usize) -> Progress {
        let Some(end) = end_of(head) else { return Progress::Malformed };
        (self.end, self.body_left) = (end, end.length);
        self.body(&bytes[consumed..], consumed)
    }

    fn body(&mut self, bytes: &[u8], before: usize) -> Progress {
        let have = bytes.len() as u64;
        if have < self.body_left {
            self.body_left -= have;
            return Progress::More;
        }
        let last = usize::try_from(self.body_left).expect("no more than the slice holds");
        self.body_left = 0;
        Progress::Ended { consumed: before + last, end: self.end }
    }
}

/// What a head says that ends with its last line's CRLF.
fn end_of(head: &[u8]) -> Option<End> {
    let digits = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5))?;
    let status: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let mut end = End { status, length: 0, last: head[7] == b'0' };
    let mut length = matches!(status, 204 | 304).then_some(0);
    let mut rest = head;
    while let Some(at) = memchr(b'\n', rest) {
        let line = &rest[..at];
        rest = &rest[at + 1..];
        if !matches!(line.first(), Some(b'c' | b'C')) {
            continue;
        }
        if let (None, Some(value)) = (length, value_of(line, b"content-length:")) {
            length = Some(std::str::from_utf8(value).ok()?.trim().parse().ok()?);
        } else if let Some(value) = value_of(line, b"connection:") {
            end.last = value.trim_ascii().eq_ignore_ascii_case(b"close");
        }
    }
    length.map(|length| End { length, ..end })
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcHTTP/1.1 304 Not Modified\r\nX: y\r\n\r\n";

    fn statuses(pieces: &[&[u8]]) -> Vec<u16> {
        let (mut reader, mut found) = (Reader::default(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                match reader.feed(rest) {
                    Progress::More => break,
                    Progress::Ended { consumed, end } => {
                        found.push(end.status);
                        rest = &rest[consumed..];
                    }
                    Progress::Malformed => panic!("malformed"),
                }
            }
        }
        found
    }

    #[test]
    fn responses_end_where_they_end_at_every_split() {
        for split in 0..TWO.len() {
            assert_eq!(statuses(&[&TWO[..split], &TWO[split..]]), [200, 304], "split at {split}");
        }
        let bytes: Vec<&[u8]> = TWO.chunks(1).collect();
        assert_eq!(statuses(&bytes), [200, 304]);
    }

    #[test]
    fn a_response_without_a_length_is_not_guessed() {
        let mut reader = Reader::default();
        assert!(matches!(reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Progress::Malformed));
    }
}
