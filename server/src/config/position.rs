//! Positions in the texts of a configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A range of a text, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// Index among the [`Texts`].
    pub(super) file: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A position for people.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    pub(crate) file: &'a Path,
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
    /// Text before the range on its line.
    pub(crate) before: &'a str,
    /// Text of the range on its line.
    pub(crate) within: &'a str,
    /// Text after the range on its line.
    pub(crate) behind: &'a str,
}

/// A file that was read.
#[derive(Debug)]
struct Text {
    path: PathBuf,
    text: Arc<str>,
    /// Start of each line, so that many positions stay cheap.
    line_starts: Vec<u32>,
}

/// All texts of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    files: Vec<Text>,
}

impl Texts {
    /// Returns the files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|text| text.path.as_path())
    }

    /// Returns the files with their texts.
    pub(crate) fn contents(&self) -> impl Iterator<Item = (&Path, &Arc<str>)> {
        self.files.iter().map(|text| (text.path.as_path(), &text.text))
    }

    /// Returns the text of a range.
    pub(super) fn within(&self, span: Span) -> &str {
        &self.files[span.file as usize].text[span.start as usize..span.end as usize]
    }

    /// Adds a text and returns its number. The caller has limited its length.
    pub(super) fn add(&mut self, path: &Path, text: Arc<str>) -> u32 {
        debug_assert!(u32::try_from(text.len()).is_ok(), "positions are 32 bits wide");
        let line_ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = std::iter::once(0).chain(line_ends.map(|(at, _)| at as u32 + 1)).collect();
        self.files.push(Text { path: path.to_owned(), text, line_starts });
        self.files.len() as u32 - 1
    }

    /// Whether no text was added.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the text of a file.
    pub(super) fn text(&self, file: u32) -> &str {
        self.files.get(file as usize).map_or("", |file| &file.text)
    }

    /// Returns the file of a number.
    pub(super) fn path(&self, file: u32) -> &Path {
        &self.files[file as usize].path
    }

    /// Returns the line on which a range begins, from 1.
    pub(super) fn line(&self, span: Span) -> usize {
        self.files[span.file as usize].line_starts.partition_point(|&start| start <= span.start)
    }

    /// Returns the position of a range.
    pub(crate) fn position(&self, span: Span) -> Position<'_> {
        let file = &self.files[span.file as usize];
        let line = file.line_starts.partition_point(|&start| start <= span.start) - 1;
        let from = file.line_starts[line] as usize;
        let to = file.line_starts.get(line + 1).map_or(file.text.len(), |&next| next as usize - 1);
        let text = file.text[from..to].trim_end_matches('\r');
        let (before, rest) = text.split_at(floor(text, span.start as usize - from));
        let (within, behind) = rest.split_at(floor(rest, (span.end - span.start) as usize));
        // Counting bytes that start a character is faster than decoding.
        let column = before.bytes().filter(|byte| byte & 0xc0 != 0x80).count() + 1;
        Position { file: &file.path, line: line + 1, column, before, within, behind }
    }
}

/// Returns the last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    text.floor_char_boundary(at.min(text.len()))
}
