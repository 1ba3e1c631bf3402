//! Parses responses as a client does, independently of the code that writes them.

/// One response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParsedResponse {
    pub(super) status: u16,
    /// The field lines, without the status line.
    pub(super) fields: Vec<String>,
    pub(super) content: Vec<u8>,
    /// Whether its content is complete.
    pub(super) is_complete: bool,
}

impl ParsedResponse {
    /// Returns the value of a field that occurs at most once.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next();
        assert_eq!(values.next(), None, "{name} is repeated");
        value
    }

    /// Whether it has `Connection: close`.
    pub(super) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("tests send text")
    }
}

/// Parses all responses, in order. The last may be incomplete.
pub(super) fn read(mut bytes: &[u8]) -> Vec<ParsedResponse> {
    let mut responses = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).expect("a head is text");
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let line = lines.next().expect("a split has a first part");
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
        let mut response = ParsedResponse {
            status: status.parse().expect("a status is a number"),
            fields: lines.map(str::to_owned).collect(),
            content: Vec::new(),
            is_complete: true,
        };
        bytes = read_content(&mut response, bytes);
        responses.push(response);
    }
    assert!(responses.last().is_none_or(|last| last.is_complete) || bytes.is_empty());
    responses
}

/// Removes the content and returns the bytes after it.
fn read_content<'a>(response: &mut ParsedResponse, bytes: &'a [u8]) -> &'a [u8] {
    if matches!(response.status, 100..=199 | 204 | 304) {
        return bytes;
    }
    if response.field("transfer-encoding") == Some("chunked") {
        return read_chunks(response, bytes);
    }
    let Some(length) = response.field("content-length").map(|value| value.parse::<usize>().expect("a number")) else {
        response.content = bytes.to_vec();
        return &[];
    };
    response.is_complete = bytes.len() >= length;
    let (content, rest) = bytes.split_at(length.min(bytes.len()));
    response.content = content.to_vec();
    rest
}

fn read_chunks<'a>(response: &mut ParsedResponse, mut bytes: &'a [u8]) -> &'a [u8] {
    loop {
        let line_end = bytes.windows(2).position(|two| two == b"\r\n");
        let size = line_end.map(|end| std::str::from_utf8(&bytes[..end]).expect("a chunk size is text"));
        let Some((end, size)) = line_end.zip(size) else {
            response.is_complete = false;
            return &[];
        };
        let size = usize::from_str_radix(size, 16).expect("a chunk size is a number");
        bytes = &bytes[end + 2..];
        if bytes.len() < size + 2 {
            response.content.extend_from_slice(&bytes[..size.min(bytes.len())]);
            response.is_complete = false;
            return &[];
        }
        assert_eq!(&bytes[size..size + 2], b"\r\n", "a chunk ends");
        response.content.extend_from_slice(&bytes[..size]);
        bytes = &bytes[size + 2..];
        if size == 0 {
            return bytes;
        }
    }
}
