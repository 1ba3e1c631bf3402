//! Formats a configuration: indentation, blanks and empty lines. Comments and strings stay as they are.

use super::text::{self, Node};

/// Blanks for each level.
const INDENT: usize = 4;

/// What is at the end of a line, for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Nothing,
    /// A string; the text that ends it: quotes and hashes.
    Text {
        quotes: usize,
        hashes: usize,
    },
    /// A comment `/* */` of this depth.
    Comment(usize),
}

/// Formats a text without problems. Returns `None` if it has problems.
pub(crate) fn format(text: &str) -> Option<String> {
    let mut problems = Vec::new();
    let before = text::read(text, 0, &mut problems);
    if !problems.is_empty() {
        return None;
    }
    let formatted = Formatter::default().format(text);
    // The settings must stay what they were.
    let after = text::read(&formatted, 0, &mut problems);
    (problems.is_empty() && same_nodes(&before, &after)).then_some(formatted)
}

fn same_nodes(one: &[Node], other: &[Node]) -> bool {
    let same_entries = |one: &Node, other: &Node| match (&one.entries, &other.entries) {
        (Some(one), Some(other)) => {
            let facts = |entry: &text::Entry| (entry.name.clone(), entry.scalar.clone());
            one.iter().map(facts).eq(other.iter().map(facts))
        }
        (one, other) => one.is_none() && other.is_none(),
    };
    let same_children = |one: &Node, other: &Node| match (&one.children, &other.children) {
        (Some(one), Some(other)) => same_nodes(one, other),
        (one, other) => one.is_none() && other.is_none(),
    };
    one.len() == other.len()
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| one.name == other.name && same_entries(one, other) && same_children(one, other))
}

#[derive(Default)]
struct Formatter {
    out: String,
    depth: usize,
    /// Whether the line before ends with a backslash.
    continues: bool,
    empty_lines: usize,
}

impl Formatter {
    fn format(mut self, text: &str) -> String {
        let mut inside = Inside::Nothing;
        for line in text.trim_start_matches('\u{feff}').lines() {
            inside = self.line(line, inside);
        }
        while self.out.ends_with("\n\n") {
            self.out.pop();
        }
        self.out
    }

    /// Adds a line. Returns what is at its end.
    fn line(&mut self, line: &str, inside: Inside) -> Inside {
        if inside != Inside::Nothing {
            // The line is a part of a string or comment, where blanks count.
            let (rest, inside) = skip_inside(line, inside);
            self.out.push_str(&line[..line.len() - rest.len()]);
            return self.tokens(rest, inside);
        }
        let trimmed = line.trim();
        if trimmed.is_empty() {
            // One empty line at most, and none after an opening brace.
            if self.empty_lines == 0 && !self.out.is_empty() && !self.out.ends_with("{\n") {
                self.out.push('\n');
            }
            self.empty_lines += 1;
            return inside;
        }
        let closing = trimmed.bytes().take_while(|&b| matches!(b, b'}' | b' ' | b';')).filter(|&b| b == b'}').count();
        if closing > 0 && self.empty_lines > 0 && self.out.ends_with("\n\n") {
            self.out.pop();
        }
        self.empty_lines = 0;
        let level = self.depth.saturating_sub(closing) + usize::from(self.continues);
        self.out.extend(std::iter::repeat_n(' ', level * INDENT));
        self.tokens(trimmed, Inside::Nothing)
    }

    /// Adds the tokens of a line, with one blank between them at most. Returns what is at its end.
    fn tokens(&mut self, line: &str, mut inside: Inside) -> Inside {
        self.continues = false;
        let mut rest = line;
        while inside == Inside::Nothing && !rest.is_empty() {
            let first = rest.chars().next().unwrap_or_default();
            if first.is_whitespace() {
                rest = rest.trim_start();
                if !rest.is_empty() && !self.out.ends_with([' ', '\n']) && !rest.starts_with(';') {
                    self.out.push(' ');
                }
            } else if rest.starts_with("//") {
                self.out.push_str(rest.trim_end());
                rest = "";
            } else if rest.starts_with("/*") {
                let (behind, after) = skip_inside(&rest[2..], Inside::Comment(1));
                self.out.push_str(&rest[..rest.len() - behind.len()]);
                (rest, inside) = (behind, after);
            } else if let Some((quotes, hashes)) = string_start(rest) {
                let (behind, after) = skip_inside(&rest[quotes + hashes..], Inside::Text { quotes, hashes });
                self.out.push_str(&rest[..rest.len() - behind.len()]);
                (rest, inside) = (behind, after);
            } else {
                rest = self.token(rest, first);
            }
        }
        if inside == Inside::Nothing {
            self.continues = self.out.ends_with('\\');
            self.end_line();
        }
        self.out.push('\n');
        inside
    }

    /// Adds a brace, a semicolon or a word, and returns what is after it.
    fn token<'t>(&mut self, rest: &'t str, first: char) -> &'t str {
        match first {
            '{' => {
                if !self.out.ends_with([' ', '\n']) {
                    self.out.push(' ');
                }
                self.out.push('{');
                self.depth += 1;
                if !rest[1..].trim().is_empty() {
                    self.out.push(' ');
                }
            }
            '}' => {
                self.depth = self.depth.saturating_sub(1);
                if !self.out.ends_with([' ', '\n']) {
                    self.out.push(' ');
                }
                self.out.push('}');
            }
            _ => {
                let is_end = |c: char| c.is_whitespace() || matches!(c, '{' | '}' | ';' | '"' | '#');
                let len = rest.char_indices().skip(1).find(|(_, c)| is_end(*c)).map_or(rest.len(), |(at, _)| at);
                self.out.push_str(&rest[..len]);
                return &rest[len..];
            }
        }
        &rest[1..]
    }

    /// Removes a semicolon at the end of a line, where it ends nothing.
    fn end_line(&mut self) {
        let kept = self.out.trim_end_matches([' ', ';']).len();
        let line = self.out.rfind('\n').map_or(0, |at| at + 1);
        // A semicolon in a comment belongs to it.
        if !self.out[line..].contains("//") && !self.out[line..].contains("/*") {
            self.out.truncate(kept.max(line));
        }
    }
}

/// Returns the numbers of quotes and hashes, if a string starts here.
fn string_start(text: &str) -> Option<(usize, usize)> {
    let hashes = text.bytes().take_while(|&b| b == b'#').count();
    let quoted = &text[hashes..];
    if quoted.starts_with("\"\"\"") { Some((3, hashes)) } else { quoted.starts_with('"').then_some((1, hashes)) }
}

/// Skips the rest of a string or comment. Returns what is after it, and what is at the end of the text.
fn skip_inside(text: &str, inside: Inside) -> (&str, Inside) {
    match inside {
        Inside::Nothing => (text, inside),
        Inside::Comment(mut depth) => {
            let mut at = 0;
            while at < text.len() {
                let rest = &text[at..];
                if rest.starts_with("/*") {
                    depth += 1;
                    at += 2;
                } else if rest.starts_with("*/") {
                    depth -= 1;
                    at += 2;
                } else {
                    at += rest.chars().next().map_or(1, char::len_utf8);
                }
                if depth == 0 {
                    return (&text[at..], Inside::Nothing);
                }
            }
            ("", Inside::Comment(depth))
        }
        Inside::Text { quotes, hashes } => {
            let end = format!("{}{}", "\"".repeat(quotes), "#".repeat(hashes));
            let mut at = 0;
            while at < text.len() {
                let rest = &text[at..];
                if rest.starts_with(&end) {
                    return (&rest[end.len()..], Inside::Nothing);
                }
                let escaped = usize::from(hashes == 0 && rest.starts_with('\\'));
                let skipped: usize = rest.chars().take(1 + escaped).map(char::len_utf8).sum();
                at += skipped.max(1);
            }
            ("", inside)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_formatted() {
        for (text, expected) in [
            ("", ""),
            ("listen   \"a:1\" ;", "listen \"a:1\"\n"),
            (
                "site \"a\"{\nroot   \"b\" // why;\n\n\n\nroute \"/*\" {deny;}\n\n}",
                "site \"a\" {\n    root \"b\" // why;\n\n    route \"/*\" { deny; }\n}\n",
            ),
            ("a {\n\n  b {\n c\n}}\n", "a {\n    b {\n        c\n} }\n"),
            ("a \"x  y\" #\"z \"  \"#   1", "a \"x  y\" #\"z \"  \"# 1\n"),
            ("a \"\"\"\n    x\n      y\n    \"\"\"   1", "a \"\"\"\n    x\n      y\n    \"\"\" 1\n"),
            ("/* a\n   b */\n  c", "/* a\n   b */\nc\n"),
            ("a \\\n1", "a \\\n    1\n"),
            ("a {\n/-b\n}", "a {\n    /-b\n}\n"),
        ] {
            let formatted = format(text).unwrap_or_else(|| panic!("{text:?} has problems, or would change"));
            assert_eq!(formatted, expected, "{text:?}");
            assert_eq!(format(&formatted).as_deref(), Some(expected), "it is stable");
        }
        assert_eq!(format("site {"), None);
    }
}
