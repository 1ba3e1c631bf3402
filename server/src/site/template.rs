//! Targets of redirects and rewrites: texts in which stars stand for the captures of a pattern.
//!
//! Invariant: a capture only becomes a percent-encoded part of a segment or of a query. So it can never name a
//! host, end a line, or start another component of the URI.

use super::pattern::{Captures, STARS_MAX};
use selvedge::proto::path::{SafePath, encode_segment};
use std::fmt;

/// A target with stars that captures fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
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

/// Why a text is not a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TemplateError {
    /// It is neither a path nor an http or https URI.
    InvalidForm,
    /// It begins with two slashes, which would name a host.
    TwoSlashes,
    /// It has a star in the host.
    StarInHost,
    /// It has a star in the fragment.
    StarInFragment,
    /// It has a character that no URI has.
    ForbiddenCharacter,
    /// It has more stars than a pattern can have.
    TooManyStars,
    /// The target of a rewrite is not a path of its site.
    NotASitePath,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidForm => "a target begins with a slash, http:// or https://",
            Self::TwoSlashes => "a target that begins with two slashes names a host: write https:// before it",
            Self::StarInHost => "a star in the host would let clients choose the host",
            Self::StarInFragment => "a fragment has no stars",
            Self::ForbiddenCharacter => "a target has no control character, quote, angle bracket or backslash",
            Self::TooManyStars => "a target has at most eight stars",
            Self::NotASitePath => "a rewrite leads to a path of its site, without a query or fragment",
        })
    }
}

impl std::error::Error for TemplateError {}

impl Template {
    /// Parses the target of a redirect.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.bytes().any(|b| b.is_ascii_control() || matches!(b, b'"' | b'<' | b'>' | b'\\' | b'`')) {
            return Err(TemplateError::ForbiddenCharacter);
        }
        let (text, fragment) = split(text, '#');
        let (text, query) = split(text, '?');
        let (origin, path) = split_origin(text)?;
        if origin.contains('*') {
            return Err(TemplateError::StarInHost);
        }
        if fragment.is_some_and(|fragment| fragment.contains('*')) {
            return Err(TemplateError::StarInFragment);
        }
        let mut stars = 0;
        let path = parse_pieces(path, &mut stars);
        let query = query.map(|query| parse_pieces(query, &mut stars));
        if stars > STARS_MAX {
            return Err(TemplateError::TooManyStars);
        }
        let fragment = fragment.map(|fragment| encode_text(fragment).into());
        Ok(Self { origin: origin.into(), path, query, fragment, stars })
    }

    /// Parses the target of a rewrite: a path of its site.
    pub(crate) fn parse_path(text: &str) -> Result<Self, TemplateError> {
        let template = Self::parse(text)?;
        let is_path = template.origin.is_empty() && template.query.is_none() && template.fragment.is_none();
        let example = template.path_with(&Captures::default());
        let decodes = SafePath::decode(example.as_bytes()).is_ok();
        if is_path && decodes { Ok(template) } else { Err(TemplateError::NotASitePath) }
    }

    /// Returns the number of captures that it needs.
    pub(super) fn stars(&self) -> usize {
        self.stars
    }

    /// Returns the target with the request's query appended to its own.
    pub(super) fn location(&self, captures: &Captures<'_>, query: Option<&str>) -> String {
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
    pub(super) fn path_with(&self, captures: &Captures<'_>) -> String {
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

fn split_origin(text: &str) -> Result<(&str, &str), TemplateError> {
    if text.starts_with("//") {
        return Err(TemplateError::TwoSlashes);
    }
    if text.starts_with('/') {
        return Ok(("", text));
    }
    let rest =
        text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or(TemplateError::InvalidForm)?;
    let host_len = rest.find('/').unwrap_or(rest.len());
    let (origin, path) = text.split_at(text.len() - rest.len() + host_len);
    // A star in the host has its own error, so it is replaced before the host is validated.
    let host = rest[..host_len].replace('*', "x");
    if selvedge::proto::target::Host::parse(host.as_bytes()).is_err() {
        return Err(TemplateError::InvalidForm);
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
            ("/old", "/é b", "/old", "/%C3%A9%20b"),
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
        for (text, error) in [
            ("", TemplateError::InvalidForm),
            ("new", TemplateError::InvalidForm),
            ("javascript:alert(1)", TemplateError::InvalidForm),
            ("https://", TemplateError::InvalidForm),
            ("https://user@host/", TemplateError::InvalidForm),
            ("//host/x", TemplateError::TwoSlashes),
            ("https://*/x", TemplateError::StarInHost),
            ("https://*.example.com/", TemplateError::StarInHost),
            ("/a#*", TemplateError::StarInFragment),
            ("/a\r\nX: y", TemplateError::ForbiddenCharacter),
            ("/\\host", TemplateError::ForbiddenCharacter),
            ("/*/*/*/*/*/*/*/*/*", TemplateError::TooManyStars),
        ] {
            assert_eq!(Template::parse(text), Err(error), "{text}");
        }
        for text in ["https://host/a", "/a?b", "/a#b", "/../a", "/%zz"] {
            assert_eq!(Template::parse_path(text), Err(TemplateError::NotASitePath), "{text}");
        }
        assert!(Template::parse_path("/index.html").is_ok());
    }
}
