//! What is wrong with a configuration: where, what, and what to write instead.

use super::place::{Position, Span, Texts};
use std::fmt;

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(super) at: Span,
    /// What is wrong, without a full stop.
    pub(super) what: String,
    /// What to write instead, or what was probably meant. May be empty.
    pub(super) instead: String,
    /// Another place that has to do with it, and what it is.
    pub(super) other: Option<(Span, &'static str)>,
}

impl Problem {
    pub(super) fn new(at: Span, what: impl Into<String>) -> Self {
        Self { at, what: what.into(), instead: String::new(), other: None }
    }

    /// A problem that the world has with what is written at a place.
    pub(crate) fn of_world(at: Span, what: String, instead: String) -> Self {
        Self { at, what, instead, other: None }
    }

    /// With what to write instead.
    pub(super) fn instead(mut self, text: impl Into<String>) -> Self {
        self.instead = text.into();
        self
    }

    /// With another place that it clashes with.
    pub(super) fn beside(mut self, other: Span, what: &'static str) -> Self {
        self.other = Some((other, what));
        self
    }
}

/// Why a configuration cannot be used, in the order of its texts.
#[derive(Debug)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    texts: Texts,
}

impl Problems {
    pub(crate) fn new(mut list: Vec<Problem>, texts: Texts) -> Self {
        list.sort_by_key(|problem| problem.at);
        // A file that is included in many places says what is wrong with it once.
        list.dedup_by(|later, first| later.at == first.at && later.what == first.what);
        Self { list, texts }
    }

    /// Each in one line, for a log.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.list.iter().map(|problem| {
            let Position { file, line, column, .. } = self.texts.position(problem.at);
            let mut text = format!("{}:{line}:{column}: {}", file.display(), problem.what);
            if !problem.instead.is_empty() {
                text.push_str(&format!(" ({})", problem.instead));
            }
            text
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.list.iter().take(PRINTED_MAX) {
            let position = self.texts.position(problem.at);
            let Position { file, line, column, .. } = position;
            writeln!(f, "{}:{line}:{column}: {}", file.display(), problem.what)?;
            write_excerpt(f, &position)?;
            if let Some((place, what)) = problem.other {
                let Position { file, line, column, .. } = self.texts.position(place);
                writeln!(f, "  {what}: {}:{line}:{column}", file.display())?;
            }
            if !problem.instead.is_empty() {
                writeln!(f, "  {}", problem.instead)?;
            }
        }
        match self.list.len().saturating_sub(PRINTED_MAX) {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

/// Most problems that are printed. Nobody reads so many.
const PRINTED_MAX: usize = 10_000;
/// Most characters of a line that are shown before and behind the beginning of the place.
const EXCERPT_CHARACTERS: usize = 90;

/// The line and a caret under it. A long line is shown around the place only, and what a
/// terminal would act on is shown as a full stop, so that the caret stays under its place.
fn write_excerpt(f: &mut fmt::Formatter<'_>, position: &Position<'_>) -> fmt::Result {
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
    writeln!(f, "  {:indent$} | {:before$}{:^<width$}", "", "", "", indent = number.len(), before = before.len())
}
