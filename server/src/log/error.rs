//! The error log: at most one line per second for each reason, with its count, so that a flood of bad requests does
//! not flood the log.

use super::config::{ErrorFormat, Level};
use super::escape::{escape, escape_json, escape_json_text};
use selvedge::proto::date::HttpDate;
use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An event for the error log.
#[derive(Debug)]
pub(super) struct LogEvent {
    /// Severity.
    pub(super) level: Level,
    /// Events with one key are counted together.
    pub(super) key: &'static str,
    /// Name in the log.
    pub(super) name: &'static str,
    /// Message, with the exceeded limit if any.
    pub(super) text: String,
    /// Peer of the connection, if any.
    pub(super) peer: Option<SocketAddr>,
    /// Client of the request, if a trusted proxy forwarded it.
    pub(super) client: Option<IpAddr>,
    /// Request line as far as it was read; arbitrary bytes.
    pub(super) line: Vec<u8>,
    /// Number of events that this one stands for.
    pub(super) count: u64,
}

impl LogEvent {
    /// Creates an event of the program itself.
    pub(super) fn from_program(level: Level, name: &'static str, text: String) -> Self {
        Self { level, key: name, name, text, peer: None, client: None, line: Vec::new(), count: 1 }
    }
}

/// Key of events that are lines of their own, since each has another text. Their sender bounds their number.
pub(super) const SEPARATE_LINES: &str = "";

/// Reasons that are counted separately within one second. The program has fewer.
const REASONS_MAX: usize = 256;
const WINDOW: Duration = Duration::from_secs(1);
/// Bytes of a request line that a log line shows.
const LINE_BYTES_MAX: usize = 200;

/// Events that found the queue full, for example when many connections end at once. They are counted by key, so none
/// is lost and their number is bounded by the number of reasons.
#[derive(Debug, Default)]
pub(super) struct OverflowEvents(Mutex<HashMap<&'static str, LogEvent>>);

impl OverflowEvents {
    pub(super) fn push(&self, event: LogEvent) {
        self.events().entry(event.key).and_modify(|waiting| waiting.count += event.count).or_insert(event);
    }

    pub(super) fn take(&self) -> impl Iterator<Item = LogEvent> {
        std::mem::take(&mut *self.events()).into_values()
    }

    /// A panic while the lock is held leaves the map consistent.
    fn events(&self) -> MutexGuard<'_, HashMap<&'static str, LogEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines grouped by severity, in order.
#[derive(Debug, Default)]
pub(super) struct LeveledLines {
    groups: Vec<(Level, Vec<u8>)>,
}

impl LeveledLines {
    pub(super) fn push(&mut self, event: &LogEvent, format: ErrorFormat) {
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = HttpDate::from_unix(i64::try_from(unix_time.as_secs()).unwrap_or(i64::MAX)).format_rfc3339();
        let time = format!("{}.{:03}Z", seconds.trim_end_matches('Z'), unix_time.subsec_millis());
        let out = match self.groups.last() {
            Some((level, _)) if *level == event.level => &mut self.groups.last_mut().expect("a group exists").1,
            _ => &mut self.groups.push_mut((event.level, Vec::new())).1,
        };
        match format {
            ErrorFormat::Text => append_text(event, &time, out),
            ErrorFormat::Json => append_json(event, &time, out),
        }
    }

    /// Takes the groups in order.
    pub(super) fn take(&mut self) -> Vec<(Level, Vec<u8>)> {
        std::mem::take(&mut self.groups)
    }
}

/// Events of the current second, by key.
#[derive(Debug)]
pub(super) struct ErrorLog {
    format: ErrorFormat,
    windows: HashMap<&'static str, Window>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    waiting: Option<LogEvent>,
}

impl ErrorLog {
    pub(super) fn new(format: ErrorFormat) -> Self {
        Self { format, windows: HashMap::new() }
    }

    /// Takes an event: the first of its key becomes a line at once, later ones are counted until the second is over.
    pub(super) fn add(&mut self, event: LogEvent, now: Instant, out: &mut LeveledLines) {
        if event.key == SEPARATE_LINES {
            out.push(&event, self.format);
            return;
        }
        if self.windows.len() >= REASONS_MAX {
            self.flush(now + WINDOW, out);
        }
        match self.windows.get_mut(event.key) {
            None => {
                self.windows.insert(event.key, Window { began: now, waiting: None });
                out.push(&event, self.format);
            }
            Some(window) => match &mut window.waiting {
                Some(waiting) => waiting.count += event.count,
                none => *none = Some(event),
            },
        }
    }

    /// Writes the lines of the seconds that are over.
    pub(super) fn flush(&mut self, now: Instant, out: &mut LeveledLines) {
        self.windows.retain(|_, window| {
            if now.duration_since(window.began) < WINDOW {
                return true;
            }
            window.began = now;
            let waiting = window.waiting.take();
            waiting.as_ref().inspect(|event| out.push(event, self.format));
            waiting.is_some()
        });
    }

    /// Whether counted events wait for the end of their second.
    pub(super) fn is_waiting(&self) -> bool {
        !self.windows.is_empty()
    }
}

/// Returns the address of a client without the form that IPv4 addresses have at a socket for IPv6.
pub(crate) fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

fn append_text(event: &LogEvent, time: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{time} {} {}: ", event.level.name(), event.name);
    escape(event.text.as_bytes(), out);
    if let Some(peer) = event.peer {
        let _ = write!(out, " peer={}", canonical(peer));
    }
    if let Some(client) = event.client {
        let _ = write!(out, " client={}", client.to_canonical());
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

fn append_json(event: &LogEvent, time: &str, out: &mut Vec<u8>) {
    let (level, name) = (event.level.name(), event.name);
    let _ = write!(out, r#"{{"time":"{time}","level":"{level}","name":"{name}","text":""#);
    escape_json_text(&event.text, out);
    out.push(b'"');
    if let Some(peer) = event.peer {
        let _ = write!(out, r#","peer":"{}""#, canonical(peer));
    }
    if let Some(client) = event.client {
        let _ = write!(out, r#","client":"{}""#, client.to_canonical());
    }
    if !event.line.is_empty() {
        out.extend_from_slice(br#","request":""#);
        escape_json(&event.line[..event.line.len().min(LINE_BYTES_MAX)], out);
        out.push(b'"');
    }
    let _ = writeln!(out, r#","count":{}}}"#, event.count);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &mut LeveledLines) -> String {
        String::from_utf8(lines.take().into_iter().flat_map(|(_, bytes)| bytes).collect()).unwrap()
    }

    #[test]
    fn a_flood_is_one_line_a_second() {
        let event = || LogEvent::from_program(Level::Warn, "X", "because".into());
        let (mut log, mut out, start) = (ErrorLog::new(ErrorFormat::Text), LeveledLines::default(), Instant::now());
        for n in 0..1000 {
            log.add(event(), start + Duration::from_micros(n), &mut out);
        }
        assert_eq!(text(&mut out).lines().count(), 1, "the first is written at once");
        log.flush(start + WINDOW, &mut out);
        let second = text(&mut out);
        assert_eq!(second.lines().count(), 1);
        assert!(second.ends_with("warn X: because count=999\n"), "{second}");
        log.flush(start + WINDOW * 2, &mut out);
        assert!(!log.is_waiting());
    }

    #[test]
    fn separate_lines_are_not_counted_together() {
        let event = |text: &str| LogEvent {
            key: SEPARATE_LINES,
            ..LogEvent::from_program(Level::Error, "Script", text.to_owned())
        };
        let (mut log, mut out, start) = (ErrorLog::new(ErrorFormat::Text), LeveledLines::default(), Instant::now());
        log.add(event("one"), start, &mut out);
        log.add(event("two"), start, &mut out);
        let lines = text(&mut out);
        assert!(lines.contains("Script: one\n") && lines.contains("Script: two\n"), "{lines}");
        assert!(!log.is_waiting());
    }

    #[test]
    fn a_client_of_ipv4_has_one_address_at_every_socket() {
        for peer in ["192.0.2.1:80", "[::ffff:192.0.2.1]:80"] {
            let peer: SocketAddr = peer.parse().unwrap();
            let event = LogEvent {
                peer: Some(peer),
                client: Some(peer.ip()),
                ..LogEvent::from_program(Level::Error, "X", String::new())
            };
            for (format, expected) in [
                (ErrorFormat::Text, "peer=192.0.2.1:80 client=192.0.2.1\n"),
                (ErrorFormat::Json, "\"peer\":\"192.0.2.1:80\",\"client\":\"192.0.2.1\""),
            ] {
                let mut lines = LeveledLines::default();
                lines.push(&event, format);
                let line = text(&mut lines);
                assert!(line.contains(expected) && !line.contains("ffff"), "{line}");
            }
        }
    }

    #[test]
    fn any_bytes_are_one_valid_line() {
        let bytes: Vec<u8> = (0..=255).rev().collect();
        for window in bytes.windows(40) {
            let event = LogEvent {
                peer: Some("[::1]:80".parse().unwrap()),
                line: window.to_vec(),
                count: 7,
                ..LogEvent::from_program(Level::Error, "X", String::from_utf8_lossy(window).into_owned())
            };
            let mut lines = LeveledLines::default();
            lines.push(&event, ErrorFormat::Json);
            let json = text(&mut lines);
            let read: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(read["text"], *event.text);
            assert_eq!((&read["count"], &read["peer"]), (&7.into(), &"[::1]:80".into()));
            lines.push(&event, ErrorFormat::Text);
            for line in [json, text(&mut lines)] {
                assert!(line.strip_suffix('\n').unwrap().bytes().all(|b| (0x20..0x7f).contains(&b)), "{line}");
            }
        }
    }

    #[test]
    fn lines_that_are_equally_bad_stay_together() {
        let mut lines = LeveledLines::default();
        for level in [Level::Warn, Level::Warn, Level::Error, Level::Warn] {
            lines.push(&LogEvent::from_program(level, "X", String::new()), ErrorFormat::Text);
        }
        let groups = lines.take();
        assert_eq!(
            groups.iter().map(|(level, _)| *level).collect::<Vec<_>>(),
            [Level::Warn, Level::Error, Level::Warn]
        );
        assert_eq!(groups[0].1.iter().filter(|&&b| b == b'\n').count(), 2);
    }
}
