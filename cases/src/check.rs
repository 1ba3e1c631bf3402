//! Compares what a server did with a row.

use crate::escape::word;
use crate::rows::Case;
use crate::verdict::Verdict;

/// Compares the lines of a server under test with the expected verdicts of a row.
///
/// # Errors
/// A text with the row, the expected verdicts and the lines.
pub fn check(case: &Case, got: &[String]) -> Result<(), String> {
    let read: Result<Vec<Verdict>, String> = got.iter().map(|line| Verdict::parse(line)).collect();
    let read = read.map_err(|error| format!("{case}: {error}"))?;
    let holds =
        read.len() == case.verdicts.len() && case.verdicts.iter().zip(&read).all(|(want, got)| want.matches(got));
    if holds { Ok(()) } else { Err(describe(case, got)) }
}

/// Describes a failed comparison. Truncates long texts.
fn describe(case: &Case, got: &[String]) -> String {
    const SHOWN_CHARS_MAX: usize = 600;
    let shown = |text: String| match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    };
    let mut out = format!("{case}\n  sent {}\n", shown(word(&case.raw)));
    for verdict in &case.verdicts {
        out.push_str(&format!("  want {}\n", shown(format!("{verdict:?}"))));
    }
    for line in got {
        out.push_str(&format!("  got  {}\n", shown(line.clone())));
    }
    out
}
