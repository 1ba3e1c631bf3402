//! Parses one value with the `kdl` crate.

use super::Scalar;
use crate::config::position::Span;
use crate::config::problem::Problem;
use ::kdl::{KdlDocument, KdlValue};

/// Parses a value of bounded length, whose strings were checked.
pub(super) fn read(part: &str, at: Span) -> Result<Scalar, Problem> {
    let document = match KdlDocument::parse_v2(&format!("node {part}")) {
        Ok(document) => document,
        Err(error) => {
            return Err(explain(part, at, error.diagnostics.first().and_then(|first| first.message.as_deref())));
        }
    };
    let entry = document.nodes().first().and_then(|node| node.entries().first());
    match entry.map(|entry| entry.value()) {
        Some(KdlValue::String(text)) => Ok(Scalar::Text(text.clone())),
        Some(KdlValue::Integer(number)) => Ok(Scalar::Integer(*number)),
        Some(KdlValue::Float(number)) => Ok(Scalar::Float(*number)),
        Some(KdlValue::Bool(flag)) => Ok(Scalar::Flag(*flag)),
        Some(KdlValue::Null) => Ok(Scalar::Null),
        None => Err(explain(part, at, None)),
    }
}

/// Explains an invalid value, with special texts for common mistakes.
fn explain(part: &str, at: Span, message: Option<&str>) -> Problem {
    let shown = part.escape_debug();
    if matches!(part, "true" | "false" | "null") {
        return Problem::new(at, format!("`{part}` without a `#`")).suggest(format!("write #{part}, or \"{part}\""));
    }
    if part.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        let problem = Problem::new(at, format!("`{shown}` starts like a number but is not one"));
        return problem.suggest(format!("put it in quotes: \"{shown}\""));
    }
    if part.starts_with('#') && !part.trim_start_matches('#').starts_with('"') {
        return Problem::new(at, format!("`{shown}` is not a keyword")).suggest("keywords are #true, #false and #null");
    }
    let what = match message {
        Some(message) => format!("`{shown}` is not a KDL value: {message}"),
        None => format!("`{shown}` is not a KDL value"),
    };
    Problem::new(at, what).suggest("put it in \"quotes\"")
}
