//! Reads a head by the `kdl` crate.

use super::{Entry, Node, Scalar};
use crate::config::place::Span;
use crate::config::problem::Problem;
use ::kdl::{KdlDiagnostic, KdlDocument, KdlEntry, KdlValue};

/// Reads a head, which has no braces.
pub(super) fn read(head: &str, at: Span) -> Result<Node, Problem> {
    let document = KdlDocument::parse_v2(head).map_err(|error| explain(head, at, error.diagnostics.first()))?;
    let [node] = document.nodes() else {
        return Err(Problem::new(at, "this is no setting").instead("a setting is a name and its values"));
    };
    if node.ty().is_some() || node.entries().iter().any(|entry| entry.ty().is_some()) {
        return Err(Problem::new(at, "a type annotation means nothing here").instead("take the (parentheses) out"));
    }
    let entries = Some(node.entries().iter().map(|entry| convert(head, at, entry)).collect());
    let name_at = place(head, at, node.name().span().offset(), node.name().span().len());
    Ok(Node { name: node.name().value().to_owned(), name_at, entries, children: None, at })
}

fn convert(head: &str, at: Span, entry: &KdlEntry) -> Entry {
    let whole = place(head, at, entry.span().offset(), entry.span().len());
    let value_at = match entry.name() {
        Some(name) => whole.after(name.span().len() + 1),
        None => whole,
    };
    let scalar = match entry.value() {
        KdlValue::String(text) => Scalar::Text(text.clone()),
        KdlValue::Integer(number) => Scalar::Integer(*number),
        KdlValue::Float(number) => Scalar::Float(*number),
        KdlValue::Bool(flag) => Scalar::Flag(*flag),
        KdlValue::Null => Scalar::Null,
    };
    Entry { name: entry.name().map(|name| name.value().to_owned()), scalar, at: whole, value_at }
}

/// A place in the text from one in the head, without the white space before it.
fn place(head: &str, at: Span, offset: usize, length: usize) -> Span {
    let offset = (0..=offset.min(head.len())).rev().find(|&at| head.is_char_boundary(at)).unwrap_or(0);
    let end = (offset + length).min(head.len());
    let white = head[offset..].len() - head[offset..].trim_start().len();
    let start = (offset + white).min(end.max(offset));
    Span { file: at.file, start: at.start + start as u32, end: at.start + end as u32 }
}

/// What is wrong with a head, in the words of an operator where the mistake is a usual one.
fn explain(head: &str, at: Span, diagnostic: Option<&KdlDiagnostic>) -> Problem {
    let Some(diagnostic) = diagnostic else { return Problem::new(at, "this is no KDL") };
    let span = place(head, at, diagnostic.span.offset(), diagnostic.span.len());
    let word = word_at(head, (span.start - at.start) as usize);
    if matches!(word, "true" | "false" | "null") {
        return Problem::new(span, format!("`{word}` without a `#`")).instead(format!("write #{word}, or \"{word}\""));
    }
    let begins_as_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
    if begins_as_number && word.len() > 1 {
        let instead = format!("put it in quotes: \"{word}\"");
        return Problem::new(span, format!("`{word}` begins as a number and is none")).instead(instead);
    }
    let what = diagnostic.message.clone().unwrap_or_else(|| "this is no KDL".to_owned());
    let instead =
        diagnostic.help.clone().unwrap_or_else(|| "values stand in \"quotes\"; flags are #true and #false".to_owned());
    Problem::new(span, lower_first(&what)).instead(lower_first(&instead))
}

/// The word around a place.
fn word_at(head: &str, at: usize) -> &str {
    let is_border = |c: char| c.is_whitespace() || matches!(c, '=' | '"');
    let start = head[..at].rfind(is_border).map_or(0, |before| before + 1);
    let end = head[at..].find(is_border).map_or(head.len(), |length| at + length);
    head.get(start..end).unwrap_or_default()
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}
