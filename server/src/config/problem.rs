//! Problems of a configuration: position, message, and what to write instead.

use super::position::{Position, Span, Texts};
use super::requirement::MachineRequirement;
use serde_json::json;
use std::fmt;
use std::path::Path;

/// One problem.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(super) at: Span,
    /// The message, without a full stop.
    pub(super) message: String,
    /// What to write instead, or what was probably meant. May be empty.
    pub(super) suggestion: String,
    /// A related position and its description.
    pub(super) related: Option<(Span, &'static str)>,
    /// Lines that explain the problem. A log has none of them.
    pub(super) details: Vec<String>,
}

impl Problem {
    pub(super) fn new(at: Span, what: impl Into<String>) -> Self {
        Self { at, message: what.into(), suggestion: String::new(), related: None, details: Vec::new() }
    }

    /// Creates a problem that the machine has with a setting.
    pub(crate) fn with_suggestion(at: Span, message: String, suggestion: String) -> Self {
        Self { at, message, suggestion, related: None, details: Vec::new() }
    }

    /// Adds lines that explain the problem.
    #[cfg(feature = "program")]
    pub(crate) fn with_details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// Sets what to write instead.
    pub(super) fn suggest(mut self, text: impl Into<String>) -> Self {
        self.suggestion = text.into();
        self
    }

    /// Adds a related position.
    pub(super) fn see_also(mut self, other: Span, what: &'static str) -> Self {
        self.related = Some((other, what));
        self
    }
}

/// All problems of a configuration, in the order of its texts.
#[derive(Debug)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    texts: Texts,
    /// What the settings without problems require of the machine.
    requirements: Vec<MachineRequirement>,
}

impl Problems {
    pub(crate) fn new(mut list: Vec<Problem>, texts: Texts) -> Self {
        list.sort_by_key(|problem| problem.at);
        // A file that is included several times reports a problem once.
        list.dedup_by(|later, first| later.at == first.at && later.message == first.message);
        Self { list, texts, requirements: Vec::new() }
    }

    /// Adds what the settings without problems require of the machine.
    pub(super) fn with_requirements(self, requirements: Vec<MachineRequirement>) -> Self {
        Self { requirements, ..self }
    }

    /// Returns what the settings without problems require of the machine.
    pub(crate) fn requirements(&self) -> &[MachineRequirement] {
        &self.requirements
    }

    /// Adds problems.
    pub(crate) fn with(self, more: Vec<Problem>) -> Self {
        let list = self.list.into_iter().chain(more).collect();
        Self { requirements: self.requirements, ..Self::new(list, self.texts) }
    }

    /// Returns each problem as one line, for a log.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(|problem| {
            let Position { file, line, column, .. } = self.texts.position(problem.at);
            let mut text = format!("{}:{line}:{column}: {}", file.display(), problem.message);
            if !problem.suggestion.is_empty() {
                text.push_str(&format!(" ({})", problem.suggestion));
            }
            text
        })
    }

    /// Returns each problem as one line without its position, for a text that the user has not written. `origin` finds
    /// what the user has written, by the line of the text.
    #[cfg(feature = "program")]
    pub(crate) fn messages(&self, origin: impl Fn(&str) -> Option<&'static str>) -> impl Iterator<Item = String> {
        self.list.iter().map(move |problem| {
            let origin = match problem.at.start < problem.at.end {
                true => {
                    let Position { before, within, behind, .. } = self.texts.position(problem.at);
                    origin(&format!("{before}{within}{behind}"))
                }
                // It is about the whole text.
                false => None,
            };
            let origin = origin.map_or(String::new(), |origin| format!("{origin}: "));
            match problem.suggestion.as_str() {
                "" => format!("{origin}{}", problem.message),
                suggestion => format!("{origin}{}; {suggestion}", problem.message),
            }
        })
    }

    /// Returns the problems as a JSON list. Lines and columns start at 1; a column counts characters.
    pub(crate) fn json(&self) -> String {
        let place = |span: Span| {
            let Position { file, line, column, within, .. } = self.texts.position(span);
            let end = column + within.chars().count();
            json!({ "file": file.display().to_string(), "line": line, "column": column, "end_column": end })
        };
        let problems = self.list.iter().map(|problem| {
            let message = problem.message.strip_prefix(WARNING);
            let mut entry = place(problem.at);
            entry["severity"] = json!(if message.is_some() { "warning" } else { "error" });
            entry["message"] = json!(message.unwrap_or(&problem.message));
            entry["suggestion"] = json!(problem.suggestion);
            if !problem.details.is_empty() {
                entry["details"] = json!(problem.details);
            }
            if let Some((span, what)) = problem.related {
                entry["related"] = place(span);
                entry["related"]["message"] = json!(what);
            }
            entry
        });
        format!("{:#}\n", serde_json::Value::Array(problems.collect()))
    }

    /// Returns a problem without a position as a JSON list.
    pub(crate) fn plain_json(file: &Path, message: &str) -> String {
        let place = json!({ "file": file.display().to_string(), "line": 1, "column": 1, "end_column": 1 });
        let mut entry = place;
        entry["severity"] = json!("error");
        entry["message"] = json!(message);
        entry["suggestion"] = json!("");
        format!("{:#}\n", json!([entry]))
    }

    /// Returns the number of problems.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }
}

/// Codes of a terminal around the parts of a problem.
#[derive(Clone, Copy)]
struct Colours {
    place: &'static str,
    caret: &'static str,
    suggestion: &'static str,
    end: &'static str,
}

/// A text without colours.
const PLAIN: Colours = Colours { place: "", caret: "", suggestion: "", end: "" };
/// Bold places, red carets, green suggestions (ECMA-48 §8.3.117).
#[cfg(feature = "program")]
const COLOURED: Colours = Colours { place: "\x1b[1m", caret: "\x1b[1;31m", suggestion: "\x1b[32m", end: "\x1b[0m" };

/// Problems in the colours of a terminal.
#[cfg(feature = "program")]
pub(crate) struct ColouredProblems<'p>(pub(crate) &'p Problems);

#[cfg(feature = "program")]
impl fmt::Display for ColouredProblems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, COLOURED)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, PLAIN)
    }
}

impl Problems {
    fn write(&self, f: &mut fmt::Formatter<'_>, colours: Colours) -> fmt::Result {
        let Colours { place: bold, suggestion: green, end, .. } = colours;
        for problem in self.list.iter().take(PRINTED_MAX) {
            let position = self.texts.position(problem.at);
            let Position { file, line, column, .. } = position;
            writeln!(f, "{bold}{}:{line}:{column}:{end} {}", file.display(), problem.message)?;
            write_excerpt(f, &position, colours)?;
            if let Some((place, what)) = problem.related {
                let Position { file, line, column, .. } = self.texts.position(place);
                writeln!(f, "  {what}: {}:{line}:{column}", file.display())?;
            }
            if !problem.suggestion.is_empty() {
                writeln!(f, "  {green}{}{end}", problem.suggestion)?;
            }
            problem.details.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        match self.list.len().saturating_sub(PRINTED_MAX) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

/// The start of the message of a warning.
const WARNING: &str = "warning: ";
/// Most problems that are printed.
const PRINTED_MAX: usize = 10_000;
/// Most characters of a line that are shown on each side of the position.
const EXCERPT_CHARACTERS: usize = 90;

/// Writes the line and a caret below it. A long line is cut around the position. Control characters are shown as a
/// full stop, so that the caret stays in place.
fn write_excerpt(f: &mut fmt::Formatter<'_>, position: &Position<'_>, colours: Colours) -> fmt::Result {
    let Colours { caret: red, end, .. } = colours;
    let visible = |c: char| match c {
        '\t' => ' ',
        c if c.is_control() => '.',
        c => c,
    };
    let mut before: Vec<char> = position.before.chars().rev().take(EXCERPT_CHARACTERS).map(visible).collect();
    before.reverse();
    let rest = position.within.chars().chain(position.behind.chars());
    let shown: String = before.iter().copied().chain(rest.take(EXCERPT_CHARACTERS).map(visible)).collect();
    let number = position.line.to_string();
    let width = position.within.chars().take(EXCERPT_CHARACTERS).count().max(1);
    writeln!(f, "  {number} | {}", shown.trim_end())?;
    let (indent, before) = (number.len(), before.len());
    writeln!(f, "  {:indent$} | {:before$}{red}{:^<width$}{end}", "", "", "")
}
