//! The error log: one line for each reason and second, with its count, so that a flood of
//! bad input is a line a second and not a flood of lines.

use super::format::escape;
use selvedge::proto::date::HttpDate;
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Something worth a line.
#[derive(Debug)]
pub(super) struct Event {
    /// How bad it is.
    pub(super) level: &'static str,
    /// What is counted together.
    pub(super) key: &'static str,
    /// What it is called in the log.
    pub(super) name: &'static str,
    /// The sentence, with the bound that was exceeded where there is one.
    pub(super) text: String,
    /// The other end of the connection, when there is one.
    pub(super) peer: Option<std::net::SocketAddr>,
    /// The request line, as far as it was read; any octets.
    pub(super) line: Vec<u8>,
    /// How many of them this stands for.
    pub(super) count: u64,
}

/// Reasons that are kept apart in one second. There are fewer reasons than this.
const REASONS_MAX: usize = 256;
const WINDOW: Duration = Duration::from_secs(1);
/// How much of a request line a log line shows.
const LINE_BYTES_MAX: usize = 200;

/// Events of the current second, by key.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    windows: HashMap<&'static str, Window>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    waiting: Option<Event>,
}

impl ErrorLog {
    /// Takes an event: the first of its name in a while becomes a line at once, later ones
    /// are counted until the second is over.
    pub(super) fn take(&mut self, event: Event, now: Instant, out: &mut Vec<u8>) {
        if self.windows.len() >= REASONS_MAX {
            self.flush(now + WINDOW, out);
        }
        match self.windows.get_mut(event.key) {
            None => {
                self.windows.insert(event.key, Window { began: now, waiting: None });
                append_line(&event, out);
            }
            Some(window) => match &mut window.waiting {
                Some(waiting) => waiting.count += event.count,
                none => *none = Some(event),
            },
        }
    }

    /// Writes the lines of the seconds that are over.
    pub(super) fn flush(&mut self, now: Instant, out: &mut Vec<u8>) {
        self.windows.retain(|_, window| {
            if now.duration_since(window.began) < WINDOW {
                return true;
            }
            window.began = now;
            let waiting = window.waiting.take();
            waiting.as_ref().inspect(|event| append_line(event, out));
            waiting.is_some()
        });
    }

    /// Whether something waits for its second to be over.
    pub(super) fn is_waiting(&self) -> bool {
        !self.windows.is_empty()
    }
}

fn append_line(event: &Event, out: &mut Vec<u8>) {
    let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = HttpDate::from_unix(i64::try_from(unix_time).unwrap_or(i64::MAX)).format_rfc3339();
    // Writing to memory cannot fail.
    let _ = write!(out, "{time} {} {}: ", event.level, event.name);
    escape(event.text.as_bytes(), out);
    if let Some(peer) = event.peer {
        let _ = write!(out, " peer={peer}");
    }
    if !event.line.is_empty() {
        out.extend_from_slice(b" request=\"");
        escape(&event.line[..event.line.len().min(LINE_BYTES_MAX)], out);
        out.push(b'"');
    }
    if event.count > 1 {
        let _ = write!(out, " count={}", event.count);
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second() {
        let event =
            || Event { level: "warn", key: "X", name: "X", text: "because".into(), peer: None, line: vec![], count: 1 };
        let (mut log, mut out, start) = (ErrorLog::default(), Vec::new(), Instant::now());
        for n in 0..1000 {
            log.take(event(), start + Duration::from_micros(n), &mut out);
        }
        assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1, "the first is said at once");
        log.flush(start + WINDOW, &mut out);
        let text = String::from_utf8(out.clone()).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.ends_with("warn X: because count=999\n"), "{text}");
        log.flush(start + WINDOW * 2, &mut out);
        assert!(!log.is_waiting());
    }
}
