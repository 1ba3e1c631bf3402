//! Numbers: counts, sizes, times, statuses. Sizes and times have units, always.

use super::{Kind, Value, Wrong};
use crate::config::text::Scalar;
use std::time::Duration;

/// Units of sizes, and how many bytes each is. The larger ones come first, and those
/// that sizes are written in before the others of the same size.
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

/// Units of times, and how many milliseconds each is.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

pub(super) fn read_count(scalar: &Scalar, min: u64, max: u64) -> Result<Value, Wrong> {
    let range = format!("it may be {}", Kind::Count { min, max }.range());
    let number = match scalar {
        Scalar::Integer(number) => *number,
        Scalar::Text(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return Err(Wrong::new(format!("`{text}` is no whole number"), range)),
        },
        _ => return Err(Wrong::new("this is no whole number", range)),
    };
    in_range(number, min, max)
        .map(Value::Number)
        .ok_or_else(|| out_of_range(&number.to_string(), Kind::Count { min, max }))
}

pub(super) fn read_size(scalar: &Scalar, min: u64, max: u64) -> Result<Value, Wrong> {
    let kind = Kind::Size { min, max };
    let text = match scalar {
        Scalar::Text(text) => text,
        Scalar::Integer(0) if min == 0 => return Ok(Value::Number(0)),
        Scalar::Integer(number) => return Err(unit_forgotten(*number, "a size", &["KiB", "B"])),
        _ => return Err(Wrong::new("this is no size", "write a number and a unit, as in \"10MiB\"")),
    };
    let (number, unit) = divide(text)?;
    let factor = match SIZES.iter().find(|(name, _)| *name == unit) {
        Some(&(_, factor)) => factor,
        None if unit == "B" => 1,
        None if unit.is_empty() => return Err(unit_forgotten(number, "a size", &["KiB", "B"])),
        None => {
            return Err(Wrong::new(
                format!("`{unit}` is no unit of sizes"),
                "units are B, KiB, MiB, GiB, TiB (k, M, G), and kB, MB, GB, TB for thousands",
            ));
        }
    };
    let size = number.saturating_mul(i128::from(factor));
    in_range(size, min, max).map(Value::Number).ok_or_else(|| out_of_range(text, kind))
}

pub(super) fn read_time(scalar: &Scalar, min: Duration, max: Duration) -> Result<Value, Wrong> {
    let kind = Kind::Time { min, max };
    let text = match scalar {
        Scalar::Text(text) => text,
        Scalar::Integer(0) if min.is_zero() => return Ok(Value::Time(Duration::ZERO)),
        Scalar::Integer(number) => return Err(unit_forgotten(*number, "a time", &["s", "ms"])),
        _ => return Err(Wrong::new("this is no time", "write a number and a unit, as in \"30s\"")),
    };
    let (number, unit) = divide(text)?;
    let factor = match TIMES.iter().find(|(name, _)| *name == unit) {
        Some(&(_, factor)) => factor,
        None if unit == "min" => 60_000,
        None if unit.is_empty() => return Err(unit_forgotten(number, "a time", &["s", "ms"])),
        None => return Err(Wrong::new(format!("`{unit}` is no unit of times"), "units are ms, s, m, h and d")),
    };
    let milliseconds = u64::try_from(number.saturating_mul(i128::from(factor))).map(Duration::from_millis);
    match milliseconds {
        Ok(time) if (min..=max).contains(&time) => Ok(Value::Time(time)),
        _ => Err(out_of_range(text, kind)),
    }
}

pub(super) fn read_status(scalar: &Scalar, is_allowed: &dyn Fn(u16) -> bool, kind: Kind) -> Result<Value, Wrong> {
    let status = match scalar {
        Scalar::Integer(number) => u16::try_from(*number).ok(),
        Scalar::Text(text) => text.parse().ok(),
        _ => None,
    };
    match status {
        Some(status) if is_allowed(status) => Ok(Value::Number(u64::from(status))),
        _ => Err(Wrong::new("this is no status that may stand here", format!("it may be {}", kind.range()))),
    }
}

pub(super) fn read_file_mode(text: &str) -> Result<Value, Wrong> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0'..=b'7'));
    match u64::from_str_radix(text, 8) {
        Ok(mode) if is_octal && mode <= 0o777 => Ok(Value::Number(mode)),
        _ => Err(Wrong::new(format!("`{text}` is no file mode"), "write it in octal, as in \"0660\"")),
    }
}

/// The number that a text begins with, and what stands behind it.
fn divide(text: &str) -> Result<(i128, &str), Wrong> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    match number.parse() {
        Ok(number) => Ok((number, unit)),
        Err(_) => Err(Wrong::new(
            format!("`{text}` does not begin with a whole number"),
            "write a number and a unit, as in \"10MiB\" or \"30s\"",
        )),
    }
}

fn in_range(number: i128, min: u64, max: u64) -> Option<u64> {
    u64::try_from(number).ok().filter(|number| (min..=max).contains(number))
}

fn out_of_range(written: &str, kind: Kind) -> Wrong {
    Wrong::new(format!("{written} is out of range"), format!("it may be {}", kind.range()))
}

fn unit_forgotten(number: i128, what: &str, units: &[&str]) -> Wrong {
    let examples: Vec<_> = units.iter().map(|unit| format!("\"{number}{unit}\"")).collect();
    Wrong::new(format!("{what} without a unit"), format!("write {}", examples.join(" or ")))
}

/// A size with the largest unit that leaves no remainder.
pub(crate) fn write_size(bytes: u64) -> String {
    let binary = SIZES.iter().filter(|(name, _)| name.ends_with("iB"));
    match binary.into_iter().find(|&&(_, factor)| bytes >= factor && bytes.is_multiple_of(factor)) {
        Some((name, factor)) => format!("{}{name}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// A time with the largest unit that leaves no remainder.
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
