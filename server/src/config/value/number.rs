//! Numbers: counts, sizes, times, status codes. Sizes and times always have a unit.

use super::{Value, ValueError, ValueKind};
use crate::config::text::Scalar;
use std::time::Duration;

/// Units of sizes in bytes, largest first; the preferred spelling precedes its equals.
const SIZES: [(&str, u64); 14] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("G", 1 << 30),
    ("g", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("M", 1 << 20),
    ("m", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("K", 1 << 10),
    ("k", 1 << 10),
    ("kB", 1_000),
];

/// Units of times in milliseconds.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Words of other servers for statuses.
const STATUS_WORDS: [(&str, u16); 11] = [
    ("permanent", 301),
    ("moved", 301),
    ("redirect", 302),
    ("temporary", 302),
    ("temp", 302),
    ("found", 302),
    ("seeother", 303),
    ("see-other", 303),
    ("forbidden", 403),
    ("not-found", 404),
    ("gone", 410),
];

/// Units of times that are longer than a day in other servers, in days.
const DAYS: [(&str, i128); 3] = [("w", 7), ("M", 30), ("y", 365)];

pub(super) fn read_count(scalar: &Scalar, min: u64, max: u64) -> Result<Value, ValueError> {
    let range = format!("allowed: {}", ValueKind::Count { min, max }.range());
    let number = match scalar {
        Scalar::Integer(number) => *number,
        Scalar::Text(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return Err(ValueError::new(format!("`{text}` is not a whole number"), range)),
        },
        _ => return Err(ValueError::new("this is not a whole number", range)),
    };
    in_range(number, min, max)
        .map(Value::Number)
        .ok_or_else(|| out_of_range(&number.to_string(), ValueKind::Count { min, max }))
}

pub(super) fn read_size(scalar: &Scalar, min: u64, max: u64) -> Result<Value, ValueError> {
    let kind = ValueKind::Size { min, max };
    let text = match scalar {
        Scalar::Text(text) => text,
        Scalar::Integer(0) if min == 0 => return Ok(Value::Number(0)),
        Scalar::Integer(number) => return Err(missing_unit(*number, "a size", &["KiB", "B"])),
        _ => return Err(ValueError::new("this is not a size", "write a number and a unit, as in \"10MiB\"")),
    };
    let (number, unit) = split_number(text)?;
    let factor = match SIZES.iter().find(|(name, _)| *name == unit) {
        Some(&(_, factor)) => factor,
        None if unit == "B" => 1,
        None if unit.is_empty() => return Err(missing_unit(number, "a size", &["KiB", "B"])),
        None => {
            return Err(ValueError::new(
                format!("`{unit}` is not a unit of size"),
                "use B, KiB, MiB, GiB, TiB (k, M, G), or kB, MB, GB, TB for powers of 1,000",
            ));
        }
    };
    let size = number.saturating_mul(i128::from(factor));
    in_range(size, min, max).map(Value::Number).ok_or_else(|| out_of_range(text, kind))
}

pub(super) fn read_time(scalar: &Scalar, min: Duration, max: Duration) -> Result<Value, ValueError> {
    let kind = ValueKind::Time { min, max };
    let text = match scalar {
        Scalar::Text(text) => text,
        Scalar::Integer(0) if min.is_zero() => return Ok(Value::Time(Duration::ZERO)),
        Scalar::Integer(number) => return Err(missing_unit(*number, "a time", &["s", "ms"])),
        _ => return Err(ValueError::new("this is not a time", "write a number and a unit, as in \"30s\"")),
    };
    let (number, unit) = split_number(text)?;
    let factor = match TIMES.iter().find(|(name, _)| *name == unit) {
        Some(&(_, factor)) => factor,
        None if unit == "min" => 60_000,
        None if unit.is_empty() => return Err(missing_unit(number, "a time", &["s", "ms"])),
        None => {
            let units = "use ms, s, m, h or d";
            let instead = match DAYS.iter().find(|(name, _)| *name == unit) {
                Some((_, days)) => format!("{units}: \"{}d\"", number.saturating_mul(*days)),
                None => units.to_owned(),
            };
            return Err(ValueError::new(format!("`{unit}` is not a unit of time"), instead));
        }
    };
    let milliseconds = u64::try_from(number.saturating_mul(i128::from(factor))).map(Duration::from_millis);
    match milliseconds {
        Ok(time) if (min..=max).contains(&time) => Ok(Value::Time(time)),
        _ => Err(out_of_range(text, kind)),
    }
}

pub(super) fn read_ratio(scalar: &Scalar) -> Result<Value, ValueError> {
    let instead = "write a number from 0 to 1, as in 0.01";
    let ratio = match scalar {
        Scalar::Integer(0) => Some(0.0),
        Scalar::Integer(1) => Some(1.0),
        Scalar::Float(ratio) => Some(*ratio),
        Scalar::Text(text) => match text.strip_suffix('%').map(|percents| percents.trim().parse::<f64>()) {
            Some(Ok(percents)) => {
                let instead = format!("write {}", percents / 100.0);
                return Err(ValueError::new(format!("`{text}` is not a ratio"), instead));
            }
            _ => text.parse().ok(),
        },
        _ => None,
    };
    match ratio.filter(|ratio| (0.0..=1.0).contains(ratio)) {
        Some(ratio) => Ok(Value::Ratio(ratio)),
        None => Err(ValueError::new("this is not a ratio", instead)),
    }
}

pub(super) fn read_status(
    scalar: &Scalar,
    is_allowed: &dyn Fn(u16) -> bool,
    kind: ValueKind,
) -> Result<Value, ValueError> {
    let named = match scalar {
        Scalar::Text(text) => STATUS_WORDS.iter().find(|(word, status)| *word == text && is_allowed(*status)),
        _ => None,
    };
    if let Some((word, status)) = named {
        return Err(ValueError::new(format!("`{word}` is not a status"), format!("write {status}")));
    }
    let status = match scalar {
        Scalar::Integer(number) => u16::try_from(*number).ok(),
        Scalar::Text(text) => text.parse().ok(),
        _ => None,
    };
    match status {
        Some(status) if is_allowed(status) => Ok(Value::Number(u64::from(status))),
        _ => Err(ValueError::new("this status is not allowed here", format!("allowed: {}", kind.range()))),
    }
}

/// Reads a status or a range of them, such as `200-399`.
pub(super) fn read_statuses(scalar: &Scalar) -> Result<Value, ValueError> {
    let (first, last) = match scalar {
        Scalar::Integer(number) => (u16::try_from(*number).ok(), u16::try_from(*number).ok()),
        Scalar::Text(text) => match text.split_once('-') {
            Some((first, last)) => (first.trim().parse().ok(), last.trim().parse().ok()),
            None => match text.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok()) {
                Some(digit) => (digit.checked_mul(100), digit.checked_mul(100).map(|first| first.saturating_add(99))),
                None => (text.parse().ok(), text.parse().ok()),
            },
        },
        _ => (None, None),
    };
    match (first, last) {
        (Some(first), Some(last)) if (200..=599).contains(&first) && (first..=599).contains(&last) => {
            Ok(Value::Statuses(first, last))
        }
        _ => Err(ValueError::new(
            "this is not a final status or a range of them",
            "write, for example, 200 or \"200-399\"",
        )),
    }
}

pub(super) fn read_file_mode(text: &str) -> Result<Value, ValueError> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    match u64::from_str_radix(text, 8) {
        Ok(mode) if is_octal && mode <= 0o777 => Ok(Value::Number(mode)),
        _ => Err(ValueError::new(format!("`{text}` is not a file mode"), "write it in octal, as in \"0660\"")),
    }
}

/// Splits a text into its leading number and the rest.
fn split_number(text: &str) -> Result<(i128, &str), ValueError> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    match number.parse() {
        Ok(number) => Ok((number, unit)),
        Err(_) => Err(ValueError::new(
            format!("`{text}` does not start with a whole number"),
            "write a number and a unit, as in \"10MiB\" or \"30s\"",
        )),
    }
}

fn in_range(number: i128, min: u64, max: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (min..=max).contains(number))
}

fn out_of_range(written: &str, kind: ValueKind) -> ValueError {
    ValueError::new(format!("{written} is out of range"), format!("allowed: {}", kind.range()))
}

fn missing_unit(number: i128, what: &str, units: &[&str]) -> ValueError {
    let examples: Vec<_> = units.iter().map(|unit| format!("\"{number}{unit}\"")).collect();
    ValueError::new(format!("{what} without a unit"), format!("write {}", examples.join(" or ")))
}

/// Formats a size with the largest unit that divides it.
pub(crate) fn write_size(bytes: u64) -> String {
    let binary = SIZES.iter().filter(|(name, _)| name.ends_with("iB"));
    match binary.into_iter().find(|&&(_, factor)| bytes >= factor && bytes.is_multiple_of(factor)) {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// Formats a time with the largest unit that divides it.
pub(crate) fn write_time(time: Duration) -> String {
    let milliseconds = time.as_millis();
    match TIMES
        .iter()
        .find(|&&(_, factor)| milliseconds >= u128::from(factor) && milliseconds.is_multiple_of(u128::from(factor)))
    {
        Some(&(name, factor)) => format!("{}{name}", milliseconds / u128::from(factor)),
        None => format!("{milliseconds}ms"),
    }
}
