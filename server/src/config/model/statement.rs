//! One printed setting, with that of its block.

use std::fmt::{self, Display, Formatter};

/// A setting as it is printed, without the braces of its block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Statement {
    head: String,
    /// The settings of its block, each in one line.
    inner: Vec<String>,
    /// The words that may be shown, if it has a secret.
    shown: Option<usize>,
}

/// Settings within a block whose values are secrets, or hashes of them, and the words that are shown of each.
const SECRETS: [(&str, usize); 6] =
    [("user", 2), ("header", 2), ("header-up", 2), ("header-up-add", 2), ("env", 2), ("external-account", 1)];

impl Statement {
    pub(super) fn new(head: &str) -> Self {
        Self { head: head.to_owned(), inner: Vec::new(), shown: None }
    }

    /// Adds a line of its block. A block within the block, which is at depth 2 or more, stays in the line of its setting.
    pub(super) fn add_inner(&mut self, depth: usize, text: &str) {
        match self.inner.last_mut() {
            Some(last) if depth > 1 || text == "}" => {
                let separator = if last.ends_with('{') || text == "}" { " " } else { "; " };
                last.push_str(separator);
                last.push_str(text);
            }
            _ => self.inner.push(text.to_owned()),
        }
    }

    /// Whether it has a block with settings.
    pub(crate) fn has_block(&self) -> bool {
        !self.inner.is_empty()
    }

    /// Returns its first words, or all if it has fewer.
    pub(crate) fn begin(&self, count: usize) -> String {
        first_words(&self.head, count)
    }

    /// Returns its name and its arguments, without its properties.
    pub(crate) fn label(&self) -> String {
        words(&self.head).into_iter().filter(|word| !is_property(word)).collect::<Vec<_>>().join(" ")
    }

    /// Returns its properties and the settings of its block, each as a setting of its own.
    pub(crate) fn parts(&self) -> Vec<Self> {
        let properties = words(&self.head).into_iter().filter(|word| is_property(word));
        let properties = properties.map(|property| Self::new(&property.replacen('=', " ", 1)));
        let inner = self.inner.iter().map(|line| Self { shown: words_shown(line), ..Self::new(line) });
        properties.chain(inner).collect()
    }

    /// Returns the text without its secret and those of its block.
    pub(crate) fn without_secrets(&self) -> String {
        let inner = self.inner.iter().map(|line| cut(line, words_shown(line))).collect();
        Self { head: cut(&self.head, self.shown), inner, shown: None }.to_string()
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &*self.inner {
            [] => f.write_str(&self.head),
            inner => write!(f, "{} {{ {} }}", self.head, inner.join("; ")),
        }
    }
}

/// Returns how many words of a setting within a block may be shown, if it has a secret.
fn words_shown(line: &str) -> Option<usize> {
    let name = words(line)[0];
    SECRETS.iter().find(|(secret, _)| *secret == name).map(|(_, shown)| *shown)
}

fn cut(text: &str, shown: Option<usize>) -> String {
    shown.map_or_else(|| text.to_owned(), |shown| first_words(text, shown))
}

fn first_words(text: &str, count: usize) -> String {
    words(text).into_iter().take(count).collect::<Vec<_>>().join(" ")
}

fn is_property(word: &str) -> bool {
    word.find(['=', '"']).is_some_and(|at| word[at..].starts_with('='))
}

/// Splits at spaces outside of quotes. Returns at least one word.
fn words(text: &str) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let is_separator = |c: char| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_quoted ^= is_end;
        c == ' ' && !is_quoted
    };
    text.split(is_separator).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_has_parts_and_hides_secrets() {
        let mut statement = Statement::new(r#"proxy "a \"= b" rewrite-urls=#true via="x y""#);
        for (depth, text) in
            [(1, r#"header-up "A" "secret""#), (1, "rotate {"), (2, "size 1"), (2, "keep 2"), (1, "}"), (1, "last")]
        {
            statement.add_inner(depth, text);
        }
        assert_eq!(statement.label(), r#"proxy "a \"= b""#);
        assert_eq!(statement.begin(1), "proxy");
        let parts: Vec<_> = statement.parts().iter().map(ToString::to_string).collect();
        let expected =
            ["rewrite-urls #true", r#"via "x y""#, r#"header-up "A" "secret""#, "rotate { size 1; keep 2 }", "last"];
        assert_eq!(parts, expected);
        let public =
            r#"proxy "a \"= b" rewrite-urls=#true via="x y" { header-up "A"; rotate { size 1; keep 2 }; last }"#;
        assert_eq!(statement.without_secrets(), public);
        assert_eq!(statement.parts()[2].without_secrets(), r#"header-up "A""#);
        assert_eq!(Statement::new(r#"header "A" "b""#).without_secrets(), r#"header "A" "b""#);
    }
}
