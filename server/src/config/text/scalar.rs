//! Parses one value: a word, string, number or keyword (KDL 2.0).

use super::{Scalar, number, string};
use crate::config::position::Span;
use crate::config::problem::Problem;

/// Most characters of a value that a message shows.
const SHOWN_MAX: usize = 60;

/// Parses a value whose end is known. Also returns a value that has a problem, if only its spelling is wrong, so that
/// further problems of its setting are found, too.
pub(super) fn read(part: &str, at: Span, problems: &mut Vec<Problem>) -> Option<Scalar> {
    if part.trim_start_matches('#').starts_with('"') {
        return string::read(part, at, problems).map(Scalar::Text);
    }
    let scalar = match part {
        "#true" => Some(Scalar::Flag(true)),
        "#false" => Some(Scalar::Flag(false)),
        "#null" => Some(Scalar::Null),
        "#inf" => Some(Scalar::Float(f64::INFINITY)),
        "#-inf" => Some(Scalar::Float(f64::NEG_INFINITY)),
        "#nan" => Some(Scalar::Float(f64::NAN)),
        // KDL reserves these words, because they look like keywords.
        "true" | "false" | "null" | "inf" | "-inf" | "nan" => None,
        _ if part.starts_with('#') => None,
        _ if starts_like_number(part) => number::read(part),
        word => Some(Scalar::Text(word.to_owned())),
    };
    if scalar.is_none() {
        problems.push(explain(part, at));
    }
    scalar.or_else(|| is_number_with_unit(part).then(|| Scalar::Text(part.to_owned())))
}

/// Whether a word is digits with letters after them, as in `10MiB`, for which only the quotes are missing.
fn is_number_with_unit(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < word.len() && !unit.is_empty() && unit.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Whether a word starts with a digit, possibly after a sign or a full stop.
fn starts_like_number(word: &str) -> bool {
    let unsigned = word.strip_prefix(['-', '+']).unwrap_or(word);
    unsigned.strip_prefix('.').unwrap_or(unsigned).starts_with(|c: char| c.is_ascii_digit())
}

/// Explains an invalid value.
fn explain(part: &str, at: Span) -> Problem {
    let mut shown: String = part.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if part.chars().nth(SHOWN_MAX).is_some() {
        shown.push_str("...");
    }
    if part.starts_with('#') {
        return Problem::new(at, format!("`{shown}` is not a keyword"))
            .suggest("keywords are #true, #false and #null; a comment begins with `//`");
    }
    if starts_like_number(part) {
        let problem = Problem::new(at, format!("`{shown}` starts like a number but is not one"));
        return problem.suggest(format!("put it in quotes: \"{shown}\""));
    }
    Problem::new(at, format!("`{shown}` without a `#`")).suggest(format!("write #{shown}, or \"{shown}\""))
}
