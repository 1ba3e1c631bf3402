//! Reads one value by the `kdl` crate.

use super::Scalar;
use crate::config::place::Span;
use crate::config::problem::Problem;
use ::kdl::{KdlDocument, KdlValue};

/// Reads a value, which is bounded in length and whose strings were looked through.
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

/// What is wrong with a value, in the words of an operator where the mistake is a usual one.
fn explain(part: &str, at: Span, message: Option<&str>) -> Problem {
    let shown = part.escape_debug();
    if matches!(part, "true" | "false" | "null") {
        return Problem::new(at, format!("`{part}` without a `#`")).instead(format!("write #{part}, or \"{part}\""));
    }
    if part.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.')) {
        let problem = Problem::new(at, format!("`{shown}` begins as a number and is none"));
        return problem.instead(format!("put it in quotes: \"{shown}\""));
    }
    if part.starts_with('#') && !part.trim_start_matches('#').starts_with('"') {
        return Problem::new(at, format!("`{shown}` is no keyword")).instead("known are #true, #false and #null");
    }
    let what = match message {
        Some(message) => format!("`{shown}` is no KDL value: {message}"),
        None => format!("`{shown}` is no KDL value"),
    };
    Problem::new(at, what).instead("put it in \"quotes\"")
}
