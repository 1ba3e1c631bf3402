//! Times in log lines: UTC, to the second, formatted once per second.

use super::line_batch::line_time;
use selvedge::proto::date::HttpDate;
use std::cell::Cell;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Days of the year before each month.
const DAYS_BEFORE: [u16; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Conversions of `strftime` that [`TimePattern`] supports.
const KNOWN: &[u8] = b"aAbBCdDeFHIjklmMpRsStTuwyYzZh%";

/// A time format: text, and `%` with a `strftime` letter.
#[derive(Clone, Debug)]
pub(super) struct TimePattern {
    pattern: Vec<u8>,
    /// The second for which `text` was formatted.
    unix_time: i64,
    text: Vec<u8>,
}

/// Why a pattern is invalid: the position, and the character there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PatternProblem {
    pub(super) at: usize,
    pub(super) found: Option<char>,
}

impl TimePattern {
    /// `[10/Oct/2000:13:55:36 +0000]`
    pub(super) fn access() -> Self {
        Self::of(b"[%d/%b/%Y:%T %z]".to_vec())
    }

    /// `2000-10-10T13:55:36`, which a fraction and `Z` follow.
    pub(super) fn rfc3339_seconds() -> Self {
        Self::of(b"%FT%T".to_vec())
    }

    /// Parses a pattern.
    pub(super) fn parse(pattern: &str) -> Result<Self, PatternProblem> {
        let mut chars = pattern.char_indices();
        while let Some((at, c)) = chars.next() {
            let found = match c {
                '%' => chars.next().map(|(_, c)| c),
                c if c.is_control() => return Err(PatternProblem { at, found: Some(c) }),
                _ => continue,
            };
            // `%n` is not supported: it would split a line.
            if !found.is_some_and(|c| u8::try_from(c).is_ok_and(|c| KNOWN.contains(&c))) {
                return Err(PatternProblem { at, found });
            }
        }
        Ok(Self::of(pattern.as_bytes().to_vec()))
    }

    fn of(pattern: Vec<u8>) -> Self {
        let mut pattern = Self { pattern, unix_time: 0, text: Vec::new() };
        pattern.text = pattern.render();
        pattern
    }

    /// Returns the formatted time.
    pub(super) fn at(&mut self, unix_time: i64) -> &[u8] {
        if unix_time != self.unix_time {
            self.unix_time = unix_time;
            self.text = self.render();
        }
        &self.text
    }

    fn render(&self) -> Vec<u8> {
        let date_time = DateTime::from_unix(self.unix_time);
        let mut out = Vec::new();
        let mut bytes = self.pattern.iter();
        while let Some(&byte) = bytes.next() {
            match (byte, bytes.as_slice().first()) {
                (b'%', Some(&letter)) => {
                    bytes.next();
                    date_time.write(letter, &mut out);
                }
                _ => out.push(byte),
            }
        }
        out
    }
}

/// Returns a time since 1970 with microseconds, as in RFC 3339.
pub(crate) fn utc_text(unix_micros: u64) -> String {
    let seconds = i64::try_from(unix_micros / 1_000_000).unwrap_or(i64::MAX);
    let mut pattern = TimePattern::rfc3339_seconds();
    let seconds = String::from_utf8_lossy(pattern.at(seconds)).into_owned();
    format!("{seconds}.{:06}Z", unix_micros % 1_000_000)
}

/// Converts times of the monotonic clock, which responses have, to times since 1970 and to those of lines.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    reading: Cell<Option<ClockReading>>,
}

/// Both clocks at one time.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    at: Instant,
    unix_time: Duration,
    line_time: u64,
}

/// How long both clocks are taken to run alike. The system's clock may be set.
const CLOCKS_ALIKE: Duration = Duration::from_millis(250);

impl WallClock {
    /// Returns the time since 1970 of an instant, and its time among lines.
    pub(super) fn times_of(&self, at: Instant) -> (Duration, u64) {
        let reading = self.reading.get().filter(|reading| at < reading.at + CLOCKS_ALIKE).unwrap_or_else(|| {
            let reading = ClockReading::now();
            self.reading.set(Some(reading));
            reading
        });
        match at.checked_duration_since(reading.at) {
            // Less than a second.
            Some(later) => (reading.unix_time + later, reading.line_time + u64::from(later.subsec_nanos())),
            None => (reading.unix_time.saturating_sub(reading.at.duration_since(at)), line_time(at)),
        }
    }
}

impl ClockReading {
    fn now() -> Self {
        let unix_time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Instant::now();
        Self { at, unix_time, line_time: line_time(at) }
    }
}

/// A second as calendar fields.
#[derive(Clone, Copy, Debug)]
struct DateTime {
    unix_time: i64,
    year: u16,
    /// From 0.
    month: usize,
    day: u16,
    hour: u16,
    minute: u16,
    second: u16,
    /// Days since Monday.
    weekday: usize,
}

impl DateTime {
    /// Converts by way of an IMF-fixdate, which has these fields.
    fn from_unix(unix_time: i64) -> Self {
        let date = HttpDate::from_unix(unix_time).format();
        let number = |range: std::ops::Range<usize>| {
            date[range].iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0'))
        };
        let position = |names: &[&str], short: &[u8]| {
            names.iter().position(|name| name.as_bytes().starts_with(short)).unwrap_or_default()
        };
        Self {
            unix_time,
            year: number(12..16),
            month: position(&MONTHS, &date[8..11]),
            day: number(5..7),
            hour: number(17..19),
            minute: number(20..22),
            second: number(23..25),
            weekday: position(&DAYS, &date[..3]),
        }
    }

    fn day_of_year(self) -> u16 {
        let is_leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        DAYS_BEFORE[self.month] + self.day + u16::from(is_leap && self.month > 1)
    }

    fn write(self, letter: u8, out: &mut Vec<u8>) {
        let Self { unix_time, year, day, hour, minute, second, .. } = self;
        let (month, weekday) = (MONTHS[self.month], DAYS[self.weekday]);
        let month_number = self.month + 1;
        let half_day = if hour.is_multiple_of(12) { 12 } else { hour % 12 };
        // Writing to memory cannot fail.
        let _ = match letter {
            b'a' => write!(out, "{}", &weekday[..3]),
            b'A' => write!(out, "{weekday}"),
            b'b' | b'h' => write!(out, "{}", &month[..3]),
            b'B' => write!(out, "{month}"),
            b'C' => write!(out, "{:02}", year / 100),
            b'd' => write!(out, "{day:02}"),
            b'D' => write!(out, "{month_number:02}/{day:02}/{:02}", year % 100),
            b'e' => write!(out, "{day:2}"),
            b'F' => write!(out, "{year:04}-{month_number:02}-{day:02}"),
            b'H' => write!(out, "{hour:02}"),
            b'I' => write!(out, "{half_day:02}"),
            b'j' => write!(out, "{:03}", self.day_of_year()),
            b'k' => write!(out, "{hour:2}"),
            b'l' => write!(out, "{half_day:2}"),
            b'm' => write!(out, "{month_number:02}"),
            b'M' => write!(out, "{minute:02}"),
            b'p' => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            b'R' => write!(out, "{hour:02}:{minute:02}"),
            b's' => write!(out, "{unix_time}"),
            b'S' => write!(out, "{second:02}"),
            b't' => write!(out, "\t"),
            b'T' => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            b'u' => write!(out, "{}", self.weekday + 1),
            b'w' => write!(out, "{}", (self.weekday + 1) % 7),
            b'y' => write!(out, "{:02}", year % 100),
            b'Y' => write!(out, "{year:04}"),
            b'z' => write!(out, "+0000"),
            b'Z' => write!(out, "UTC"),
            _ => write!(out, "%"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, expected) in [
            ("[%d/%b/%Y:%T %z]", "[10/Oct/2000:01:55:36 +0000]"),
            ("%FT%TZ", "2000-10-10T01:55:36Z"),
            ("%a %A %h %B %C %D %e", "Tue Tuesday Oct October 20 10/10/00 10"),
            ("%H %I %k|%l %m %M %p %R", "01 01  1| 1 10 55 AM 01:55"),
            ("%j %s %S %u %w %y %Z %% é", "284 971142936 36 2 2 00 UTC % é"),
            ("a%tb", "a\tb"),
        ] {
            let mut pattern = TimePattern::parse(pattern).unwrap();
            assert_eq!(String::from_utf8(pattern.at(971_142_936).to_vec()).unwrap(), expected);
        }
    }

    #[test]
    fn every_supported_conversion_is_accepted_and_writes_text() {
        for &letter in KNOWN {
            let mut pattern = TimePattern::parse(&format!("%{}", char::from(letter))).unwrap();
            let text = pattern.at(1_000_000_000).to_vec();
            assert!(!text.is_empty() && (text != b"%" || letter == b'%'), "{}", char::from(letter));
        }
    }

    #[test]
    fn problems_have_a_place() {
        for (pattern, at, found) in
            [("%Y-%Q", 3, Some('Q')), ("ab%", 2, None), ("%n", 0, Some('n')), ("a\n", 1, Some('\n'))]
        {
            assert_eq!(TimePattern::parse(pattern).unwrap_err(), PatternProblem { at, found });
        }
    }

    #[test]
    fn times_have_microseconds() {
        assert_eq!(utc_text(971_142_936_000_042), "2000-10-10T01:55:36.000042Z");
        assert_eq!(utc_text(0), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn the_text_follows_the_second() {
        let mut pattern = TimePattern::parse("%s %j").unwrap();
        assert_eq!(pattern.at(0), b"0 001");
        assert_eq!(pattern.at(951_868_799), b"951868799 060", "the last second of a leap day");
        assert_eq!(pattern.at(951_868_800), b"951868800 061");
        assert_eq!(pattern.at(0), b"0 001");
    }
}
