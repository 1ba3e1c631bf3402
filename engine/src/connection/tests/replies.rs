//! Reads answers as a client does, with a few lines of its own, so that what writes them
//! is not also what judges them.

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The field lines, without the line of the status.
    pub(super) fields: Vec<String>,
    pub(super) content: Vec<u8>,
    /// Whether its content has come to its end.
    pub(super) is_complete: bool,
}

impl Reply {
    /// The value of a field, which stands in an answer once at the most.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next();
        assert_eq!(values.next(), None, "{name} is repeated");
        value
    }

    /// Whether it says that the connection ends.
    pub(super) fn closes(&self) -> bool {
        self.field("connection") == Some("close")
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("tests send text")
    }
}

/// All answers in the bytes, in order. The last may be incomplete.
pub(super) fn read(mut bytes: &[u8]) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = std::str::from_utf8(&bytes[..end]).expect("a head is text");
        bytes = &bytes[end + 4..];
        let mut lines = head.split("\r\n");
        let line = lines.next().expect("a split has a first part");
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).expect("a status line");
        let mut reply = Reply {
            status: status.parse().expect("a status is a number"),
            fields: lines.map(str::to_owned).collect(),
            content: Vec::new(),
            is_complete: true,
        };
        bytes = read_content(&mut reply, bytes);
        replies.push(reply);
    }
    assert!(replies.last().is_none_or(|last| last.is_complete) || bytes.is_empty());
    replies
}

/// Takes the content off the bytes; what is behind it.
fn read_content<'a>(reply: &mut Reply, bytes: &'a [u8]) -> &'a [u8] {
    if matches!(reply.status, 100..=199 | 204 | 304) {
        return bytes;
    }
    if reply.field("transfer-encoding") == Some("chunked") {
        return read_chunks(reply, bytes);
    }
    let Some(length) = reply.field("content-length").map(|value| value.parse::<usize>().expect("a number")) else {
        reply.content = bytes.to_vec();
        return &[];
    };
    reply.is_complete = bytes.len() >= length;
    let (content, rest) = bytes.split_at(length.min(bytes.len()));
    reply.content = content.to_vec();
    rest
}

fn read_chunks<'a>(reply: &mut Reply, mut bytes: &'a [u8]) -> &'a [u8] {
    loop {
        let line_end = bytes.windows(2).position(|two| two == b"\r\n");
        let size = line_end.map(|end| std::str::from_utf8(&bytes[..end]).expect("a chunk size is text"));
        let Some((end, size)) = line_end.zip(size) else {
            reply.is_complete = false;
            return &[];
        };
        let size = usize::from_str_radix(size, 16).expect("a chunk size is a number");
        bytes = &bytes[end + 2..];
        if bytes.len() < size + 2 {
            reply.content.extend_from_slice(&bytes[..size.min(bytes.len())]);
            reply.is_complete = false;
            return &[];
        }
        assert_eq!(&bytes[size..size + 2], b"\r\n", "a chunk ends");
        reply.content.extend_from_slice(&bytes[..size]);
        bytes = &bytes[size + 2..];
        if size == 0 {
            return bytes;
        }
    }
}
