//! Reads what a server sends over HTTP/1.1, as far as it can be read: also invalid responses are to be reported.

/// The responses in some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedResponses {
    /// The statuses of final responses whose head is complete.
    pub(super) statuses: Vec<u16>,
    pub(super) rest: UnreadRest,
    /// Bytes of content of all responses, without framing.
    pub(super) content_bytes: u64,
}

/// What follows the complete responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum UnreadRest {
    /// Nothing.
    #[default]
    Nothing,
    /// A part of a response. It may be content that only the end of the connection delimits.
    Part,
    /// Frames of HTTP/2. A server of both versions may respond with GOAWAY to bytes of neither.
    Http2,
    /// Bytes that are no response.
    Invalid,
}

/// How the content of a response ends.
enum ContentEnd {
    Length(usize),
    Chunks,
    Connection,
}

impl ReceivedResponses {
    /// Reads responses to requests other than HEAD.
    pub(super) fn read(mut bytes: &[u8]) -> Self {
        let mut responses = Self::default();
        while !bytes.is_empty() && responses.rest == UnreadRest::Nothing {
            let Some(end) = find(bytes, b"\r\n\r\n") else {
                responses.rest = rest_without_head(bytes);
                break;
            };
            let Some((status, content)) = read_head(&bytes[..end]) else {
                responses.rest = UnreadRest::Invalid;
                break;
            };
            bytes = &bytes[end + 4..];
            if (100..200).contains(&status) && status != 101 {
                continue;
            }
            responses.statuses.push(status);
            bytes = responses.skip_content(content, bytes);
        }
        responses
    }

    /// Returns what follows the content.
    fn skip_content<'a>(&mut self, end: ContentEnd, bytes: &'a [u8]) -> &'a [u8] {
        match end {
            ContentEnd::Length(length) if length <= bytes.len() => {
                self.content_bytes += length as u64;
                &bytes[length..]
            }
            ContentEnd::Length(_) | ContentEnd::Connection => {
                self.content_bytes += bytes.len() as u64;
                self.rest = UnreadRest::Part;
                &[]
            }
            ContentEnd::Chunks => self.skip_chunks(bytes),
        }
    }

    fn skip_chunks<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        loop {
            let Some(line_end) = find(bytes, b"\r\n") else {
                self.rest = UnreadRest::Part;
                return &[];
            };
            let digits = bytes[..line_end].split(|byte| *byte == b';').next().unwrap_or_default();
            let size = str::from_utf8(digits).ok().and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok());
            let Some(size) = size else {
                self.rest = UnreadRest::Invalid;
                return &[];
            };
            let data = &bytes[line_end + 2..];
            if size == 0 {
                // Trailers end with an empty line.
                let end = if data.starts_with(b"\r\n") { Some(2) } else { find(data, b"\r\n\r\n").map(|end| end + 4) };
                return end.map_or_else(
                    || {
                        self.rest = UnreadRest::Part;
                        &[][..]
                    },
                    |end| &data[end..],
                );
            }
            self.content_bytes += size.min(data.len()) as u64;
            match size.checked_add(2).and_then(|end| data.get(end..)) {
                Some(rest) => bytes = rest,
                None => {
                    self.rest = UnreadRest::Part;
                    return &[];
                }
            }
        }
    }
}

/// Returns what bytes are that have no complete head.
fn rest_without_head(bytes: &[u8]) -> UnreadRest {
    /// Type, flags and stream of the frame SETTINGS, behind its length of three bytes.
    const SETTINGS: [u8; 6] = [4, 0, 0, 0, 0, 0];
    match bytes {
        _ if b"HTTP/".starts_with(&bytes[..bytes.len().min(5)]) => UnreadRest::Part,
        [0, _, _, frame @ ..] if frame.starts_with(&SETTINGS) => UnreadRest::Http2,
        _ => UnreadRest::Invalid,
    }
}

/// Returns the status of a head, and how its content ends.
fn read_head(head: &[u8]) -> Option<(u16, ContentEnd)> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let line = str::from_utf8(lines.next()?).ok()?;
    let status: u16 = line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let fields = lines.filter_map(|line| {
        let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
        Some((name.to_ascii_lowercase(), value[1..].trim_ascii()))
    });
    let mut content = ContentEnd::Connection;
    for (name, value) in fields {
        match (&*name, &content) {
            (b"transfer-encoding", _) => content = ContentEnd::Chunks,
            (b"content-length", ContentEnd::Connection) => {
                content = ContentEnd::Length(str::from_utf8(value).ok()?.parse().ok()?);
            }
            _ => {}
        }
    }
    Some((status, if matches!(status, 204 | 304) { ContentEnd::Length(0) } else { content }))
}

pub(super) fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<u16>, UnreadRest, u64) {
        let ReceivedResponses { statuses, rest, content_bytes } = ReceivedResponses::read(text.as_bytes());
        (statuses, rest, content_bytes)
    }

    #[test]
    fn responses_are_delimited_by_length_chunks_or_the_end() {
        let lengths = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 400 x\r\n\
                       content-length:0\r\n\r\n";
        assert_eq!(read(lengths), (vec![200, 400], UnreadRest::Nothing, 2));
        let chunks =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\n\r\nHTTP/1.1 304 x\r\n\r\n";
        assert_eq!(read(chunks), (vec![200, 304], UnreadRest::Nothing, 3));
        let trailers = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(read(trailers), (vec![200], UnreadRest::Nothing, 0));
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nrest"), (vec![200], UnreadRest::Part, 4));
    }

    #[test]
    fn parts_and_other_bytes_are_distinguished() {
        assert_eq!(read("HT").1, UnreadRest::Part);
        assert_eq!(read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh"), (vec![200], UnreadRest::Part, 1));
        assert_eq!(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab").1, UnreadRest::Part);
        assert_eq!(read("\x15\x03\x01").1, UnreadRest::Invalid);
        assert_eq!(read("\0\0\x06\x04\0\0\0\0\0 and more").1, UnreadRest::Http2);
        assert_eq!(read("HTTP/1.1 2x0 OK\r\n\r\n").1, UnreadRest::Invalid);
        assert_eq!(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n").1, UnreadRest::Invalid);
    }
}
