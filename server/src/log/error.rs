//! The error log: one line for each reason and second, with its count, so that a flood of
//! bad input is a line a second and not a flood of lines.

use super::escape::{escape, escape_json, escape_json_text};
use super::plan::{ErrorForm, Level};
use selvedge::proto::date::HttpDate;
use std::collections::HashMap;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Something worth a line.
#[derive(Debug)]
pub(super) struct Event {
    /// How bad it is.
    pub(super) level: Level,
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

impl Event {
    /// Something that happened to the program itself, once.
    pub(super) fn of_program(level: Level, name: &'static str, text: String) -> Self {
        Self { level, key: name, name, text, peer: None, line: Vec::new(), count: 1 }
    }
}

/// Reasons that are kept apart in one second. There are fewer reasons than this.
const REASONS_MAX: usize = 256;
const WINDOW: Duration = Duration::from_secs(1);
/// How much of a request line a log line shows.
const LINE_BYTES_MAX: usize = 200;

/// Events for which the way to the log has no room: many connections may end at one moment. They are
/// counted together as the log would do it, so none is lost, and there are no more than reasons.
#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<HashMap<&'static str, Event>>);

impl Crowd {
    pub(super) fn push(&self, event: Event) {
        self.events().entry(event.key).and_modify(|waiting| waiting.count += event.count).or_insert(event);
    }

    pub(super) fn take(&self) -> impl Iterator<Item = Event> {
        std::mem::take(&mut *self.events()).into_values()
    }

    /// Nothing that is done with the lock held takes long, or can leave the events in disorder.
    fn events(&self) -> MutexGuard<'_, HashMap<&'static str, Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines, those that are equally bad and follow each other together.
#[derive(Debug, Default)]
pub(super) struct Lines {
    groups: Vec<(Level, Vec<u8>)>,
}

impl Lines {
    pub(super) fn push(&mut self, event: &Event, form: ErrorForm) {
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let time = HttpDate::from_unix(i64::try_from(unix_time).unwrap_or(i64::MAX)).format_rfc3339();
        let out = match self.groups.last() {
            Some((level, _)) if *level == event.level => &mut self.groups.last_mut().expect("there is one").1,
            _ => &mut self.groups.push_mut((event.level, Vec::new())).1,
        };
        match form {
            ErrorForm::Text => append_text(event, &time, out),
            ErrorForm::Json => append_json(event, &time, out),
        }
    }

    /// Takes the groups out, in order.
    pub(super) fn take(&mut self) -> Vec<(Level, Vec<u8>)> {
        std::mem::take(&mut self.groups)
    }
}

/// Events of the current second, by key.
#[derive(Debug)]
pub(super) struct ErrorLog {
    form: ErrorForm,
    windows: HashMap<&'static str, Window>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    waiting: Option<Event>,
}

impl ErrorLog {
    pub(super) fn new(form: ErrorForm) -> Self {
        Self { form, windows: HashMap::new() }
    }

    pub(super) fn form(&self) -> ErrorForm {
        self.form
    }

    /// Takes an event: the first of its name in a while becomes a line at once, later ones
    /// are counted until the second is over.
    pub(super) fn take(&mut self, event: Event, now: Instant, out: &mut Lines) {
        if self.windows.len() >= REASONS_MAX {
            self.flush(now + WINDOW, out);
        }
        match self.windows.get_mut(event.key) {
            None => {
                self.windows.insert(event.key, Window { began: now, waiting: None });
                out.push(&event, self.form);
            }
            Some(window) => match &mut window.waiting {
                Some(waiting) => waiting.count += event.count,
                none => *none = Some(event),
            },
        }
    }

    /// Writes the lines of the seconds that are over.
    pub(super) fn flush(&mut self, now: Instant, out: &mut Lines) {
        self.windows.retain(|_, window| {
            if now.duration_since(window.began) < WINDOW {
                return true;
            }
            window.began = now;
            let waiting = window.waiting.take();
            waiting.as_ref().inspect(|event| out.push(event, self.form));
            waiting.is_some()
        });
    }

    /// Whether something waits for its second to be over.
    pub(super) fn is_waiting(&self) -> bool {
        !self.windows.is_empty()
    }
}

fn append_text(event: &Event, time: &str, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "{time} {} {}: ", event.level.name(), event.name);
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

fn append_json(event: &Event, time: &str, out: &mut Vec<u8>) {
    let (level, name) = (event.level.name(), event.name);
    let _ = write!(out, r#"{{"time":"{time}","level":"{level}","name":"{name}","text":""#);
    escape_json_text(&event.text, out);
    out.push(b'"');
    if let Some(peer) = event.peer {
        let _ = write!(out, r#","peer":"{peer}""#);
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

    fn text(lines: &mut Lines) -> String {
        String::from_utf8(lines.take().into_iter().flat_map(|(_, bytes)| bytes).collect()).unwrap()
    }

    #[test]
    fn a_flood_is_one_line_a_second() {
        let event = || Event::of_program(Level::Warn, "X", "because".into());
        let (mut log, mut out, start) = (ErrorLog::new(ErrorForm::Text), Lines::default(), Instant::now());
        for n in 0..1000 {
            log.take(event(), start + Duration::from_micros(n), &mut out);
        }
        assert_eq!(text(&mut out).lines().count(), 1, "the first is said at once");
        log.flush(start + WINDOW, &mut out);
        let second = text(&mut out);
        assert_eq!(second.lines().count(), 1);
        assert!(second.ends_with("warn X: because count=999\n"), "{second}");
        log.flush(start + WINDOW * 2, &mut out);
        assert!(!log.is_waiting());
    }

    #[test]
    fn any_octets_are_one_valid_line() {
        let octets: Vec<u8> = (0..=255).rev().collect();
        for window in octets.windows(40) {
            let event = Event {
                peer: Some("[::1]:80".parse().unwrap()),
                line: window.to_vec(),
                count: 7,
                ..Event::of_program(Level::Error, "X", String::from_utf8_lossy(window).into_owned())
            };
            let mut lines = Lines::default();
            lines.push(&event, ErrorForm::Json);
            let json = text(&mut lines);
            let read: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(read["text"], *event.text);
            assert_eq!((&read["count"], &read["peer"]), (&7.into(), &"[::1]:80".into()));
            lines.push(&event, ErrorForm::Text);
            for line in [json, text(&mut lines)] {
                assert!(line.strip_suffix('\n').unwrap().bytes().all(|b| (0x20..0x7f).contains(&b)), "{line}");
            }
        }
    }

    #[test]
    fn lines_that_are_equally_bad_stay_together() {
        let mut lines = Lines::default();
        for level in [Level::Warn, Level::Warn, Level::Error, Level::Warn] {
            lines.push(&Event::of_program(level, "X", String::new()), ErrorForm::Text);
        }
        let groups = lines.take();
        assert_eq!(
            groups.iter().map(|(level, _)| *level).collect::<Vec<_>>(),
            [Level::Warn, Level::Error, Level::Warn]
        );
        assert_eq!(groups[0].1.iter().filter(|&&b| b == b'\n').count(), 2);
    }
}
