//! HTTP dates (RFC 9110 §5.6.7): formats IMF-fixdate and parses all three formats.

/// A time in whole seconds since 1970-01-01 00:00:00 UTC. May be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HttpDate(i64);

const DAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
const DAY_SECONDS: i64 = 86_400;

impl HttpDate {
    /// Length of an IMF-fixdate in bytes.
    pub const LEN: usize = 29;

    /// Creates the date of a Unix time in seconds.
    pub const fn from_unix(seconds: i64) -> Self {
        Self(seconds)
    }

    /// Returns the Unix time in seconds.
    pub const fn unix(self) -> i64 {
        self.0
    }

    /// Formats as IMF-fixdate, for example `Sun, 06 Nov 1994 08:49:37 GMT`.
    ///
    /// The format has four digits for the year, so a date outside of the years 0 to 9999 is clamped.
    pub fn format(self) -> [u8; Self::LEN] {
        const FIRST: i64 = -62_167_219_200; // 0000-01-01 00:00:00
        const LAST: i64 = 253_402_300_799; // 9999-12-31 23:59:59
        let time = self.0.clamp(FIRST, LAST);
        let days = time.div_euclid(DAY_SECONDS);
        let (year, month, day) = civil_from_days(days);
        let second = time.rem_euclid(DAY_SECONDS);
        let mut out = *b"Sun, 00 Jan 0000 00:00:00 GMT";
        out[..3].copy_from_slice(DAYS[(days + 4).rem_euclid(7) as usize]);
        out[8..11].copy_from_slice(MONTHS[month as usize - 1]);
        let mut write_two_digits =
            |at: usize, n: i64| out[at..at + 2].copy_from_slice(&[b'0' + (n / 10) as u8, b'0' + (n % 10) as u8]);
        write_two_digits(5, day);
        write_two_digits(12, year / 100);
        write_two_digits(14, year % 100);
        write_two_digits(17, second / 3600);
        write_two_digits(20, second / 60 % 60);
        write_two_digits(23, second % 60);
        out
    }

    /// Formats as RFC 3339, for example `1994-11-06T08:49:37Z`. Clamps to the years 0 to 9999.
    pub fn format_rfc3339(self) -> String {
        let date = self.format();
        let month = MONTHS.iter().position(|name| **name == date[8..11]).unwrap_or(0) + 1;
        let text = |range: core::ops::Range<usize>| core::str::from_utf8(&date[range]).unwrap_or_default();
        format!("{}-{month:02}-{}T{}Z", text(12..16), text(5..7), text(17..25))
    }

    /// Parses any of the three formats. `now` decides the century of a two-digit year.
    ///
    /// Returns `None` if the syntax is invalid or the date does not exist. The name of the weekday
    /// must be valid, but need not fit the date.
    pub fn parse(text: &[u8], now: Self) -> Option<Self> {
        match text {
            [_, _, _, b',', ..] => Self::parse_imf(text),
            _ if text.contains(&b',') => Self::parse_rfc850(text, now),
            _ => Self::parse_asctime(text),
        }
    }

    /// Parses IMF-fixdate: `Sun, 06 Nov 1994 08:49:37 GMT`.
    fn parse_imf(text: &[u8]) -> Option<Self> {
        let text: &[u8; Self::LEN] = text.try_into().ok()?;
        let fixed = DAYS.iter().any(|day| text.starts_with(*day)) && &text[3..5] == b", ";
        let spaced = text[7] == b' ' && text[11] == b' ' && text[16] == b' ' && text[25..] == *b" GMT";
        if !fixed || !spaced {
            return None;
        }
        Self::from_parts(
            parse_digits(&text[12..16])?,
            parse_month(&text[8..11])?,
            parse_digits(&text[5..7])?,
            parse_time(&text[17..25])?,
        )
    }

    /// Parses the format of RFC 850: `Sunday, 06-Nov-94 08:49:37 GMT`.
    fn parse_rfc850(text: &[u8], now: Self) -> Option<Self> {
        const LONG: [&[u8]; 7] = [b"Sunday", b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday"];
        let comma = text.iter().position(|&b| b == b',')?;
        let rest: &[u8; 23] = text[comma + 1..].try_into().ok()?;
        let spaced =
            rest[0] == b' ' && rest[3] == b'-' && rest[7] == b'-' && rest[10] == b' ' && rest[19..] == *b" GMT";
        if !LONG.contains(&&text[..comma]) || !spaced {
            return None;
        }
        //= RFC 9110 §5.6.7: more than 50 years in the future means the past with those digits
        let (year_now, _, _) = civil_from_days(now.0.div_euclid(DAY_SECONDS));
        let year = year_now - year_now % 100 + parse_digits(&rest[8..10])?;
        let year = if year > year_now + 50 { year - 100 } else { year };
        Self::from_parts(year, parse_month(&rest[4..7])?, parse_digits(&rest[1..3])?, parse_time(&rest[11..19])?)
    }

    /// Parses the format of `asctime`: `Sun Nov  6 08:49:37 1994`.
    fn parse_asctime(text: &[u8]) -> Option<Self> {
        let text: &[u8; 24] = text.try_into().ok()?;
        let fixed = DAYS.iter().any(|day| text.starts_with(*day)) && text[3] == b' ';
        if !fixed || text[7] != b' ' || text[10] != b' ' || text[19] != b' ' {
            return None;
        }
        let day = if text[8] == b' ' { &text[9..10] } else { &text[8..10] };
        Self::from_parts(
            parse_digits(&text[20..])?,
            parse_month(&text[4..7])?,
            parse_digits(day)?,
            parse_time(&text[11..19])?,
        )
    }

    fn from_parts(year: i64, month: i64, day: i64, second_of_day: i64) -> Option<Self> {
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days_in_month = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if day < 1 || day > days_in_month {
            return None;
        }
        Some(Self(days_from_civil(year, month, day) * DAY_SECONDS + second_of_day))
    }
}

fn parse_digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |n, b| b.is_ascii_digit().then(|| n * 10 + i64::from(b - b'0')))
}

fn parse_month(text: &[u8]) -> Option<i64> {
    MONTHS.iter().position(|name| *name == text).map(|index| index as i64 + 1)
}

/// Parses `08:49:37` into seconds since midnight. A leap second counts as the second before it.
fn parse_time(text: &[u8]) -> Option<i64> {
    let (hour, minute, second) = (parse_digits(&text[..2])?, parse_digits(&text[3..5])?, parse_digits(&text[6..8])?);
    let valid = text[2] == b':' && text[5] == b':' && hour < 24 && minute < 60 && second <= 60;
    valid.then_some(hour * 3600 + minute * 60 + second.min(59))
}

// The two conversions count years from March, so that the leap day is the last day of a year. They
// count in cycles of 400 years, which all have an equal number of days.
const CYCLE_DAYS: i64 = 146_097;
const EPOCH_OFFSET: i64 = 719_468;

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let year_of_cycle = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    year.div_euclid(400) * CYCLE_DAYS + day_of_cycle - EPOCH_OFFSET
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + EPOCH_OFFSET;
    let day_of_cycle = shifted.rem_euclid(CYCLE_DAYS);
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    let year = shifted.div_euclid(CYCLE_DAYS) * 400 + year_of_cycle + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: HttpDate = HttpDate::from_unix(1_790_000_000); // September 2026
    const EXAMPLE: HttpDate = HttpDate::from_unix(784_111_777);

    fn parse(text: &str) -> Option<i64> {
        HttpDate::parse(text.as_bytes(), NOW).map(HttpDate::unix)
    }

    #[test]
    fn three_formats_are_parsed() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text), Some(EXAMPLE.unix()), "{text}");
        }
        assert_eq!(parse("Mon, 01 Jan 1900 00:00:00 GMT"), Some(-2_208_988_800));
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse("Sat, 29 Feb 2020 23:59:60 GMT"), Some(1_583_020_799));
    }

    #[test]
    fn rfc3339_is_formatted() {
        assert_eq!(EXAMPLE.format_rfc3339(), "1994-11-06T08:49:37Z");
    }

    #[test]
    fn two_digit_years_are_at_most_fifty_years_ahead() {
        assert_eq!(parse("Wednesday, 01-Jan-20 00:00:00 GMT"), Some(1_577_836_800));
        assert_eq!(parse("Wednesday, 01-Jan-76 00:00:00 GMT"), Some(3_345_062_400)); // 2076
        assert_eq!(parse("Wednesday, 01-Jan-77 00:00:00 GMT"), Some(220_924_800)); // 1977
    }

    #[test]
    fn invalid_dates_are_refused() {
        for text in [
            "",
            "yesterday",
            "Wed, 01 Foo 2020 00:00:00 GMT",
            "2020-01-02T00:00:00Z",
            "Thu, 02 Jan 2020 00:00:00",
            "Sun, 30 Feb 2020 00:00:00 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "sun, 06 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Someday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 19x4",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            ",",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn formatted_dates_parse_to_the_original(seconds in -62_167_219_200i64..253_402_300_799) {
            let date = HttpDate::from_unix(seconds);
            prop_assert_eq!(HttpDate::parse(&date.format(), NOW), Some(date));
        }

        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = HttpDate::parse(&bytes, NOW);
        }
    }
}
