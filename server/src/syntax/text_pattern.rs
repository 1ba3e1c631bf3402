//! Patterns of texts that are no paths: values of fields, queries and cookies, hosts, methods.
//!
//! A text stands for itself, `*` in it for any text or none, and `regex:` marks a regular expression. In a pattern of a
//! host, `{name}` is at least one character, and captures it.

use super::ValueError;
use super::captures::Captures;
use super::case_sensitivity::CaseSensitivity;
use super::glob::{Braces, Glob, Ranges};
use super::placeholder::{PlaceholderNames, check_no_placeholder};
use super::regular_expression::{self, RegularExpression};
use std::fmt;

/// A pattern of a text.
#[derive(Clone, Debug)]
pub(crate) struct TextPattern {
    /// As written.
    text: Box<str>,
    kind: TextPatternKind,
    names: Box<[Box<str>]>,
    case: CaseSensitivity,
}

#[derive(Clone, Debug)]
enum TextPatternKind {
    Glob(Glob),
    Regex(RegularExpression),
}

impl TextPattern {
    /// Parses a pattern of a value.
    pub(crate) fn parse(text: &str, case: CaseSensitivity) -> Result<Self, ValueError> {
        Self::parse_with(text, case, Braces::Literal)
    }

    /// Parses a pattern of a host, which ignores the case of letters and may have named wildcards.
    pub(crate) fn parse_host(text: &str) -> Result<Self, ValueError> {
        if let Some((name, _)) = text.split_once("://").map(|(_, rest)| rest.split_once('/').unwrap_or((rest, ""))) {
            return Err(ValueError::new("a URL where a host is expected", format!("write \"{name}\"")));
        }
        if regular_expression::written(text).is_none() && text.contains('/') {
            return Err(ValueError::new("a host with a path", "the path belongs in the pattern of the route"));
        }
        Self::parse_with(text, CaseSensitivity::Insensitive, Braces::Wildcard)
    }

    /// Parses a pattern of an origin: a scheme, a host and perhaps a port.
    pub(crate) fn parse_origin(text: &str) -> Result<Self, ValueError> {
        let is_origin = |rest: &str| !rest.is_empty() && !rest.contains('/');
        let is_list = text.contains(',') && regular_expression::written(text).is_none();
        if text.is_empty() || is_list {
            let suggestion = "write each origin as a value of its own, as in \"https://app.example.com\"";
            let message = if is_list { "an origin with a comma" } else { "an origin is empty" };
            return Err(ValueError::new(message, suggestion));
        }
        match text.split_once("://") {
            _ if text == "*" || text == "null" || regular_expression::written(text).is_some() => {}
            Some((_, rest)) if is_origin(rest) => {
                check_no_placeholder(text, PlaceholderNames::Known)?;
                check_sent_by_browsers(text)?;
            }
            Some((scheme, rest)) => {
                let host = rest.split('/').next().unwrap_or_default();
                return Err(ValueError::new("an origin has no path", format!("write \"{scheme}://{host}\"")));
            }
            None => {
                return Err(ValueError::new("an origin has a scheme", format!("write \"https://{text}\"")));
            }
        }
        Self::parse_with(text, CaseSensitivity::Sensitive, Braces::Literal)
    }

    fn parse_with(text: &str, case: CaseSensitivity, braces: Braces) -> Result<Self, ValueError> {
        let mut names = Vec::new();
        let kind = match regular_expression::written(text) {
            Some(expression) => {
                let compiled = RegularExpression::compile(expression, case)?;
                names = compiled.names()?;
                TextPatternKind::Regex(compiled)
            }
            None => {
                check_foreign(text)?;
                if braces == Braces::Literal {
                    check_no_placeholder(text, PlaceholderNames::Known)?;
                }
                let mut glob = Glob::parse(text, braces, &mut names)?;
                if case == CaseSensitivity::Insensitive {
                    glob.make_lowercase();
                }
                TextPatternKind::Glob(glob)
            }
        };
        Ok(Self { text: text.into(), kind, names: names.into(), case })
    }

    /// Returns this pattern with the case of letters ignored.
    pub(crate) fn ignoring_case(&self) -> Self {
        Self::parse(&self.text, CaseSensitivity::Insensitive).unwrap_or_else(|_| self.clone())
    }

    /// Returns whether upper and lower case differ.
    pub(crate) fn case(&self) -> CaseSensitivity {
        self.case
    }

    /// Returns the names of the wildcards; empty for one without a name.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Whether a text matches.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.ranges(text).is_some()
    }

    /// Whether bytes match. Only text in UTF-8 does.
    pub(crate) fn is_match_bytes(&self, bytes: &[u8]) -> bool {
        std::str::from_utf8(bytes).is_ok_and(|text| self.is_match(text))
    }

    /// Adds the captures of a text that matches.
    pub(crate) fn capture<'p>(&'p self, text: &'p str, captures: &mut Captures<'p>) {
        if let Some(ranges) = self.ranges(text) {
            captures.add(&self.names, text, ranges);
        }
    }

    fn ranges(&self, text: &str) -> Option<Ranges> {
        let mut ranges = Ranges::new();
        let is_match = match (&self.kind, self.case) {
            (TextPatternKind::Regex(expression), _) => expression.matches(text, &mut ranges),
            (TextPatternKind::Glob(glob), CaseSensitivity::Sensitive) => glob.matches(text, 0..text.len(), &mut ranges),
            (TextPatternKind::Glob(glob), CaseSensitivity::Insensitive) => {
                glob.matches(&text.to_ascii_lowercase(), 0..text.len(), &mut ranges)
            }
        };
        is_match.then_some(ranges)
    }
}

/// Refuses an origin that no browser sends, so that it would never match: its scheme and host are in lower case, and names
/// with other letters begin with `xn--`.
fn check_sent_by_browsers(origin: &str) -> Result<(), ValueError> {
    let is_sent = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._:/[]*".contains(c);
    let Some(wrong) = origin.chars().find(|&c| !is_sent(c)) else { return Ok(()) };
    Err(match wrong {
        'A'..='Z' => ValueError::new(
            "browsers send an origin in lower case",
            format!("write \"{}\"", origin.to_ascii_lowercase()),
        ),
        _ if wrong.is_alphabetic() => {
            ValueError::new("browsers send a host in ASCII", "write its form that begins with `xn--`")
        }
        _ => ValueError::new(format!("`{wrong}` is in no origin"), "write a scheme, a host and perhaps a port"),
    })
}

/// Refuses what is a regular expression or a negation elsewhere.
fn check_foreign(text: &str) -> Result<(), ValueError> {
    if let Some(rest) = text.strip_prefix('~') {
        let instead = format!("write \"regex:{}\"", rest.trim_start_matches('*').trim_start());
        return Err(ValueError::new("`~` does not mark a regular expression here", instead));
    }
    if let Some(rest) = text.strip_prefix('!') {
        return Err(ValueError::new("`!` does not mean `not` here", format!("write it in `not {{ }}`: \"{rest}\"")));
    }
    if text.starts_with('^') || text.ends_with('$') || text.contains(".*") || (text.contains('(') && text.contains('|'))
    {
        return Err(ValueError::new("this looks like a regular expression", format!("write \"regex:{text}\"")));
    }
    if text.contains('|') {
        let all: Vec<_> = text.split('|').map(|part| format!("\"{part}\"")).collect();
        return Err(ValueError::new("`|` does not separate alternatives here", format!("write {}", all.join(" "))));
    }
    Ok(())
}

impl PartialEq for TextPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.case == other.case
    }
}

impl Eq for TextPattern {}

impl fmt::Display for TextPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match() {
        for (pattern, case, text, expected) in [
            ("", CaseSensitivity::Sensitive, "", true),
            ("Bot", CaseSensitivity::Sensitive, "bot", false),
            ("Bot", CaseSensitivity::Insensitive, "bOT", true),
            ("*bot*", CaseSensitivity::Insensitive, "Mozilla/5.0 (compatible; GPTBot/1.0)", true),
            ("https://*.example.com/*", CaseSensitivity::Sensitive, "https://a.b.example.com/x/y", true),
            ("{a}", CaseSensitivity::Sensitive, "{a}", true),
            ("regex:^a+$", CaseSensitivity::Insensitive, "AAA", true),
            ("regex:^a+$", CaseSensitivity::Sensitive, "AAA", false),
        ] {
            let parsed = TextPattern::parse(pattern, case).unwrap();
            assert_eq!(parsed.is_match_bytes(text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(!TextPattern::parse("*", CaseSensitivity::Sensitive).unwrap().is_match_bytes(b"\xff"));
    }

    #[test]
    fn hosts_are_captured() {
        let host = TextPattern::parse_host("www.{domain}").unwrap();
        let mut captures = Captures::default();
        host.capture("WWW.Example.com", &mut captures);
        assert_eq!(captures.named("domain"), "Example.com");
        assert!(!host.is_match("www.") && !host.is_match("example.com"));
        for text in ["https://www.example.com/", "a/b", "{host}"] {
            assert!(TextPattern::parse_host(text).is_err(), "{text}");
        }
    }

    #[test]
    fn origins_that_no_browser_sends_are_refused() {
        for (text, suggestion) in [
            ("HTTPS://A.EXAMPLE", "write \"https://a.example\""),
            ("https://a$b", "write a scheme, a host and perhaps a port"),
            ("https://{a}", "write a scheme, a host and perhaps a port"),
            ("https://a\"b", "write a scheme, a host and perhaps a port"),
            ("https://user@a.example", "write a scheme, a host and perhaps a port"),
            ("https://bücher.example", "write its form that begins with `xn--`"),
            ("https://a.example,https://b.example", "write each origin as a value of its own"),
            ("", "write each origin as a value of its own"),
            ("a.example", "write \"https://a.example\""),
            ("https://a.example/", "write \"https://a.example\""),
        ] {
            let problem = TextPattern::parse_origin(text).unwrap_err();
            assert!(problem.suggestion.contains(suggestion), "{text}: {}", problem.suggestion);
        }
        for text in ["*", "null", "https://*.a-b.example:8443", "http://[::1]:80", "app://x_y", "regex:^https://A,B$"] {
            assert!(TextPattern::parse_origin(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn foreign_patterns_are_refused() {
        for text in ["~ bot", "!bot", "^bot", "bot$", ".*bot.*", "(a|b)", "a|b", "**"] {
            assert!(TextPattern::parse(text, CaseSensitivity::Sensitive).is_err(), "{text}");
        }
        for text in ["Mozilla/5.0 (X11; Linux)", "a.b", "50%"] {
            assert!(TextPattern::parse(text, CaseSensitivity::Sensitive).is_ok(), "{text}");
        }
    }
}
