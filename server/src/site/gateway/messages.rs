//! What a script writes to its standard error, for the error log.

use selvedge::service::UpstreamRecord;

/// Most bytes of messages of one request. Further ones are counted.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// The messages of one request. They are logged with it at its end.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    record: UpstreamRecord,
}

impl Messages {
    pub(super) fn new(record: UpstreamRecord) -> Self {
        Self { record }
    }

    pub(super) fn record(&self) -> &UpstreamRecord {
        &self.record
    }

    /// Adds bytes of any length. Lines may be split between calls.
    pub(super) fn add(&self, bytes: &[u8]) {
        self.record.update(|facts| {
            let room = MESSAGE_BYTES_MAX.saturating_sub(facts.messages.len());
            let (kept, lost) = bytes.split_at(bytes.len().min(room));
            facts.messages.extend_from_slice(kept);
            facts.message_bytes_lost += lost.len() as u64;
        });
    }

    /// Adds a line of its own.
    pub(super) fn add_line(&self, line: &str) {
        self.add(format!("\n{line}\n").as_bytes());
    }

    /// Returns the lines that are not empty, and the number of bytes that were not kept.
    pub(super) fn lines(&self) -> Vec<String> {
        let facts = self.record.facts();
        let lines = facts.messages.split(|&b| b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let mut lines: Vec<String> = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        if facts.message_bytes_lost > 0 {
            lines.push(format!("{} more bytes of messages were not kept", facts.message_bytes_lost));
        }
        lines
    }

    /// Returns the last line that is not empty, at most 200 bytes of it.
    pub(super) fn last_line(&self) -> Option<String> {
        const LINE_BYTES_MAX: usize = 200;
        let facts = self.record.facts();
        let line = facts.messages.split(|&b| b == b'\n').rfind(|line| !line.trim_ascii().is_empty())?;
        let line = line.trim_ascii();
        Some(String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded() {
        let messages = Messages::new(UpstreamRecord::new("x".into()));
        messages.add(b"first\nsec");
        messages.add(b"ond\n\n");
        assert_eq!(messages.last_line().as_deref(), Some("second"));
        messages.add(&vec![b'y'; MESSAGE_BYTES_MAX]);
        let facts = messages.record().facts();
        assert_eq!((facts.messages.len(), facts.message_bytes_lost), (MESSAGE_BYTES_MAX, 14));
        let lines = messages.lines();
        assert_eq!((lines.len(), &*lines[0], &*lines[3]), (4, "first", "14 more bytes of messages were not kept"));
    }
}
