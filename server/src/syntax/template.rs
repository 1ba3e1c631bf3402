//! Targets of redirects and rewrites: texts in which stars stand for the captures of a pattern.
//!
//! Invariant: a capture only becomes a percent-encoded part of a segment or of a query. So it can never name a
//! host, end a line, or start another component of the URI.

use super::ValueError;
use super::pattern::{Captures, STARS_MAX, check_path_characters};
use selvedge::proto::path::{SafePath, encode_segment};
use std::fmt;

/// A target with stars that captures fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// As written.
    text: Box<str>,
    /// `https://host`, or empty.
    origin: Box<str>,
    path: Box<[TemplatePiece]>,
    query: Option<Box<[TemplatePiece]>>,
    fragment: Option<Box<str>>,
    stars: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(Box<str>),
    /// The capture of the star of this index.
    Capture(usize),
}

impl Template {
    /// Parses the target of a redirect.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        let without_stars = text.replace('*', "");
        let authority = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        match authority {
            // A capture in the host would let a client choose the redirect's destination.
            Some(rest) if rest.split(['/', '?']).next().is_some_and(|host| host.contains('*') || host.is_empty()) => {
                return Err(ValueError::new(
                    "a URL without a fixed host",
                    "write the host; a `*` is allowed only in the path after it",
                ));
            }
            Some(rest) if !rest.contains('/') && rest.contains('*') => {
                return Err(ValueError::new("a `*` directly after the host", "put a slash between them"));
            }
            Some(_) => {}
            None if text.starts_with("//") => {
                return Err(ValueError::new(
                    "a target that may lead to another host",
                    "a path starts with one slash, a URL with http:// or https://",
                ));
            }
            None if !text.starts_with('/') => {
                let instead =
                    format!("a path starts with a slash, a URL with http:// or https://: \"/{without_stars}\"");
                return Err(ValueError::new(format!("`{text}` is not a redirect target"), instead));
            }
            None => {}
        }
        check_url_characters(&without_stars)?;
        Self::build(text)
    }

    /// Parses the target of a rewrite: a path of its site.
    pub(crate) fn parse_path(text: &str) -> Result<Self, ValueError> {
        if text.contains("://") {
            return Err(ValueError::new("a rewrite to another site", "a rewrite stays in its site; use `redirect`"));
        }
        if !text.starts_with('/') {
            return Err(ValueError::new("a path without a leading slash", format!("write \"/{text}\"")));
        }
        if text.contains('?') {
            return Err(ValueError::new("a rewrite with a query", "a rewrite changes the path and keeps the query"));
        }
        check_path_characters(text)?;
        Self::build_path(text)
    }

    fn build_path(text: &str) -> Result<Self, ValueError> {
        let template = Self::build(text)?;
        let example = template.path_with(&Captures::default());
        if SafePath::decode(example.as_bytes()).is_ok() {
            return Ok(template);
        }
        Err(ValueError::new("a target that is not a path of the site", "write a path as a client would request it"))
    }

    fn build(text: &str) -> Result<Self, ValueError> {
        let (rest, fragment) = split(text, '#');
        let (rest, query) = split(rest, '?');
        let (origin, path) = split_origin(rest)?;
        if fragment.is_some_and(|fragment| fragment.contains('*')) {
            return Err(ValueError::new("a `*` in a fragment", "a fragment has no `*`"));
        }
        let mut stars = 0;
        let path = parse_pieces(path, &mut stars);
        let query = query.map(|query| parse_pieces(query, &mut stars));
        if stars > STARS_MAX {
            return Err(ValueError::new("too many `*`", format!("a target has at most {STARS_MAX}")));
        }
        let fragment = fragment.map(|fragment| encode_text(fragment).into());
        Ok(Self { text: text.into(), origin: origin.into(), path, query, fragment, stars })
    }

    /// Returns the number of captures that it needs.
    pub(crate) fn stars(&self) -> usize {
        self.stars
    }

    /// Returns the target with the request's query appended to its own.
    pub(crate) fn location(&self, captures: &Captures<'_>, query: Option<&str>) -> String {
        let mut location = String::from(&*self.origin);
        location.push_str(&self.fill(captures, push_as_written));
        let mut mark = '?';
        if let Some(own) = &self.query {
            location.push(mark);
            mark = '&';
            for piece in own {
                match piece {
                    TemplatePiece::Text(text) => location.push_str(text),
                    TemplatePiece::Capture(number) => encode_in_query(captures.get(*number), &mut location),
                }
            }
        }
        if let Some(query) = query.filter(|query| !query.is_empty()) {
            location.push(mark);
            location.push_str(query);
        }
        if let Some(fragment) = &self.fragment {
            location.push('#');
            location.push_str(fragment);
        }
        location
    }

    /// Returns the percent-encoded path without double slashes, which the site would reject.
    pub(crate) fn path_with(&self, captures: &Captures<'_>) -> String {
        self.fill(captures, push_without_double_slash)
    }

    fn fill(&self, captures: &Captures<'_>, push_text: fn(&str, &mut String)) -> String {
        let mut path = String::new();
        for piece in &self.path {
            match piece {
                TemplatePiece::Text(text) => push_text(text, &mut path),
                TemplatePiece::Capture(number) => {
                    for (index, segment) in captures.get(*number).split('/').enumerate() {
                        if index > 0 {
                            push_without_double_slash("/", &mut path);
                        }
                        encode_segment(segment, &mut path);
                    }
                }
            }
        }
        path
    }
}

/// Appends the operator's text unchanged, but skips leading slashes after a slash, which an empty capture can
/// cause. `//` at the beginning would name a host.
fn push_as_written(text: &str, path: &mut String) {
    path.push_str(if path.ends_with('/') { text.trim_start_matches('/') } else { text });
}

/// Appends a text without creating a double slash, which an empty capture can cause. `//` at the beginning
/// would name a host, and elsewhere an empty segment.
fn push_without_double_slash(text: &str, path: &mut String) {
    for character in text.chars() {
        if character != '/' || !path.ends_with('/') {
            path.push(character);
        }
    }
}

fn split(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, behind)| (before, Some(behind)))
}

/// Splits a URL into its origin and path. A path has no origin.
fn split_origin(text: &str) -> Result<(&str, &str), ValueError> {
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return Ok(("", text));
    };
    let host_len = rest.find('/').unwrap_or(rest.len());
    let (origin, path) = text.split_at(text.len() - rest.len() + host_len);
    let host = &rest[..host_len];
    if selvedge::proto::target::Host::parse(host.as_bytes()).is_err() {
        return Err(ValueError::new(
            format!("`{host}` is not a host"),
            "write a host name, and a port if it needs one",
        ));
    }
    Ok((origin, if path.is_empty() { "/" } else { path }))
}

fn parse_pieces(text: &str, stars: &mut usize) -> Box<[TemplatePiece]> {
    let mut pieces = Vec::new();
    for (index, part) in text.split('*').enumerate() {
        if index > 0 {
            pieces.push(TemplatePiece::Capture(*stars));
            *stars += 1;
        }
        if !part.is_empty() {
            pieces.push(TemplatePiece::Text(encode_text(part).into()));
        }
    }
    pieces.into()
}

/// Encodes the operator's text, which may be encoded already: only characters that no URI has.
fn encode_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() { out.push(char::from(byte)) } else { push_encoded(byte, &mut out) }
    }
    out
}

/// Encodes a capture for a query, including the delimiters of a query.
fn encode_in_query(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            push_encoded(byte, out);
        }
    }
}

fn push_encoded(byte: u8, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend(['%', char::from(HEX[usize::from(byte >> 4)]), char::from(HEX[usize::from(byte & 15)])]);
}

fn check_url_characters(text: &str) -> Result<(), ValueError> {
    match text
        .chars()
        .find(|c| !matches!(c, '!'..='~') || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'))
    {
        None => Ok(()),
        Some(c) => {
            let mut bytes = [0; 4];
            let encoded: String = c.encode_utf8(&mut bytes).bytes().map(|b| format!("%{b:02X}")).collect();
            Err(ValueError::new(format!("`{}` is not allowed in a URL", c.escape_debug()), format!("write {encoded}")))
        }
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One entry of `try-files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TryPath {
    /// `*`: the path of the request.
    Request,
    /// `*.html`: the path of the request with a suffix.
    Suffix(Box<str>),
    /// A path in which a star stands for the path of the request, with its slash.
    Path(Template),
}

impl TryPath {
    /// Parses a path with at most one star.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        check_path_characters(text)?;
        if text.matches('*').count() > 1 {
            return Err(ValueError::new("more than one `*`", "`*` is the path of the request, and is allowed once"));
        }
        if !text.starts_with(['/', '*']) {
            return Err(ValueError::new(
                "a path without a leading slash",
                format!("write \"/{text}\", or start with \"*\" for the path of the request"),
            ));
        }
        match text.strip_prefix('*') {
            Some("") => Ok(Self::Request),
            Some(suffix) if !suffix.contains(['/', '\\']) => Ok(Self::Suffix(suffix.into())),
            // The path of the request has its own slash.
            _ => Template::build_path(&text.replace('*', "/*")).map(Self::Path),
        }
    }
}

impl fmt::Display for TryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("*"),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Path(template) => f.write_str(&template.text.replace("/*", "*")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::{Pattern, absolute_path};
    use super::*;

    fn location(pattern: &str, template: &str, target: &str) -> String {
        let (path, query) = split(target, '?');
        let text = absolute_path(&SafePath::decode(path.as_bytes()).unwrap());
        let pattern = Pattern::parse(pattern).unwrap();
        let captures = pattern.matches(&text).unwrap();
        Template::parse(template).unwrap().location(&captures, query)
    }

    #[test]
    fn locations() {
        for (pattern, template, target, expected) in [
            ("/old", "/new", "/old", "/new"),
            ("/old", "/new", "/old?a=b&c", "/new?a=b&c"),
            ("/old", "/new?x=1", "/old?a", "/new?x=1&a"),
            ("/old", "/new?x=1#top", "/old?a", "/new?x=1&a#top"),
            ("/old", "/new", "/old?", "/new"),
            ("/old/*", "/new/*", "/old/a/b%20c/", "/new/a/b%20c/"),
            ("/old/*", "/new/*", "/old", "/new/"),
            ("/*", "https://example.com/*", "/a?b", "https://example.com/a?b"),
            ("/*", "https://example.com", "/a", "https://example.com/"),
            ("/u/*/p/*", "/*/*/end", "/u/a/p/b/c", "/a/b/c/end"),
            (
                "/old/*",
                "https://a.example/web/https://b.example/*",
                "/old/x",
                "https://a.example/web/https://b.example/x",
            ),
            ("/old/*", "/web/https://b.example/*/y", "/old", "/web/https://b.example/y"),
            ("/s/*", "/find?q=*", "/s/a%26b=c%23", "/find?q=a%26b%3Dc%23"),
        ] {
            assert_eq!(location(pattern, template, target), expected, "{pattern} {template} {target}");
        }
    }

    #[test]
    fn captures_never_name_a_host_or_end_a_line() {
        for (pattern, template, target) in [
            ("/*", "/*", "/evil.example"),
            ("/a*/*", "/*/*", "/a/evil.example"),
            ("/a*/*", "/*/*", "/a/@evil.example:80"),
            ("/x*", "/*/evil.example", "/x"),
            ("/x*", "/*//evil.example", "/x"),
            ("/*", "/*", "/%40evil.example%3a80"),
            ("/*", "/*", "/https:evil.example"),
            ("/*", "https://good.example/*", "/@evil.example"),
            ("/*", "/*", "/a%3fb%23c"),
        ] {
            let location = location(pattern, template, target);
            let rest = location.strip_prefix("https://good.example").unwrap_or(&location);
            assert!(rest.starts_with('/') && !rest.starts_with("//"), "{location}");
            assert!(rest.bytes().all(|b| b.is_ascii_graphic() && !b"\\?#".contains(&b)), "{location}");
        }
        let controls = SafePath::decode(b"/a%0d%0ab");
        assert!(controls.is_err(), "no capture has a line end");
    }

    #[test]
    fn invalid_targets() {
        for text in [
            "",
            "new",
            "javascript:alert(1)",
            "https://",
            "https://user@host/",
            "//host/x",
            "https://*/x",
            "https://*.example.com/",
            "https://host*",
            "/a#*",
            "/a\r\nX: y",
            "/\\host",
            "/é",
            "/*/*/*/*/*/*/*/*/*",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        for text in ["https://host/a", "/a?b", "/a#b", "/../a", "/%zz", "a"] {
            assert!(Template::parse_path(text).is_err(), "{text}");
        }
        assert!(Template::parse_path("/index.html").is_ok());
    }

    #[test]
    fn entries_of_try_files_are_written_as_they_were_read() {
        for text in ["*", "*.html", "*/index.html", "/a/*", "/a*.html", "/a.html"] {
            assert_eq!(TryPath::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "a", "/*/*", "/a#b", "/../a"] {
            assert!(TryPath::parse(text).is_err(), "{text}");
        }
    }
}
