//! Targets of redirects and rewrites: URLs and paths with placeholders.
//!
//! Invariant: a capture only becomes a percent-encoded part of a segment or of a query. In the place of a host stands
//! what the rule wrote, the requested host, or a part of that. So a capture can never name another
//! host, end a line, or start another component of the URI.

use super::ValueError;
use super::captures::Captures;
use super::foreign;
use super::glob::WILDCARDS_MAX;
use super::pattern::check_path_characters;
use super::placeholder::{Encoding, Needs, RequestValues, TemplatePiece, push_encoded};
use super::variable::Variable;
use selvedge::proto::path::{SafePath, encode_segment};
use std::fmt;

/// A target with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// As written.
    text: Box<str>,
    /// The scheme and host, or empty.
    origin: Box<[TemplatePiece]>,
    path: Box<[TemplatePiece]>,
    query: Option<Box<[TemplatePiece]>>,
    fragment: Option<Box<str>>,
    request_query: RequestQuery,
}

/// What becomes of the query of a redirected request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestQuery {
    /// It is appended to the query of the target.
    Kept,
    /// The target ends with `?`, or has a place for the query.
    Dropped,
}

impl Template {
    /// Parses the target of a redirect.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        foreign::check_variables(text)?;
        parse_pieces(text, &mut 0)?;
        check_form(text)?;
        Self::build(text)
    }

    /// Parses the target of a rewrite: a path of its site.
    pub(crate) fn parse_path(text: &str) -> Result<Self, ValueError> {
        foreign::check_variables(text)?;
        if text.contains("://") {
            return Err(ValueError::new("a rewrite to another site", "a rewrite stays in its site; use `redirect`"));
        }
        if !text.starts_with('/') && !text.starts_with("{path}") {
            return Err(ValueError::new("a path without a leading slash", format!("write \"/{text}\"")));
        }
        check_path_characters(text)?;
        if let Some((_, query)) = text.split_once('?') {
            check_url_characters(&without_placeholders(query))?;
        }
        Self::build_path(text)
    }

    fn build_path(text: &str) -> Result<Self, ValueError> {
        let template = Self::build(text)?;
        let example = template.path_with(&RequestValues::example());
        if SafePath::decode(example.as_bytes()).is_ok() {
            return Ok(template);
        }
        Err(ValueError::new("a target that is not a path of the site", "write a path as a client would request it"))
    }

    fn build(text: &str) -> Result<Self, ValueError> {
        let mut stars = 0;
        let mut pieces = parse_pieces(text, &mut stars)?;
        if stars > WILDCARDS_MAX {
            return Err(ValueError::new("too many `*`", format!("a target has at most {WILDCARDS_MAX}")));
        }
        let origin = take_origin(&mut pieces)?;
        let fragment = split_at(&mut pieces, '#');
        let mut query = split_at(&mut pieces, '?');
        let mut request_query = RequestQuery::Kept;
        if let Some(query) = &mut query {
            if let Some(TemplatePiece::Text(last)) = query.last_mut()
                && let Some(rest) = last.strip_suffix('?')
            {
                *last = rest.into();
                request_query = RequestQuery::Dropped;
            }
            if query.contains(&TemplatePiece::Variable(Variable::Query)) || query.is_empty() {
                request_query = RequestQuery::Dropped;
            }
            query.retain(|piece| *piece != TemplatePiece::Text("".into()));
        }
        let fragment = match fragment.as_deref() {
            None => None,
            Some([]) => Some("".into()),
            Some([TemplatePiece::Text(text)]) => Some(encode_text(text).into()),
            Some(_) => return Err(ValueError::new("a placeholder in a fragment", "a fragment has no `*` or {name}")),
        };
        if pieces.is_empty() && !origin.is_empty() {
            pieces.push(TemplatePiece::Text("/".into()));
        }
        for piece in pieces.iter_mut().chain(query.iter_mut().flatten()) {
            if let TemplatePiece::Text(text) = piece {
                *text = encode_text(text).into();
            }
        }
        Ok(Self {
            text: text.into(),
            origin: origin.into(),
            path: pieces.into(),
            query: query.filter(|query| !query.is_empty()).map(Vec::into_boxed_slice),
            fragment,
            request_query,
        })
    }

    /// Returns the wildcards that it needs.
    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs::of([&*self.path, self.query.as_deref().unwrap_or_default(), &*self.origin])
    }

    /// Returns the names of the wildcards that stand in the place of a host.
    pub(crate) fn host_names(&self) -> Vec<&str> {
        Needs::of([&*self.origin]).names
    }

    /// Whether the requested host stands in the place of its host.
    pub(crate) fn needs_host(&self) -> bool {
        self.origin.contains(&TemplatePiece::Variable(Variable::Host))
    }

    /// Returns the number of captures of which each stands in a place of its own, so that they can be told from the
    /// result.
    pub(crate) fn wildcards(&self) -> usize {
        let is_capture = |piece: &&TemplatePiece| {
            matches!(piece, TemplatePiece::Star(_) | TemplatePiece::Number(_) | TemplatePiece::Named(_))
        };
        self.path.iter().filter(is_capture).count()
    }

    /// Whether its path ends with what a wildcard matched.
    #[cfg(feature = "configuration")]
    pub(crate) fn ends_with_wildcard(&self) -> bool {
        let last = self.path.last();
        matches!(last, Some(TemplatePiece::Star(_) | TemplatePiece::Number(_) | TemplatePiece::Named(_)))
    }

    /// Whether it has a value of the request other than the path.
    pub(crate) fn has_variables(&self) -> bool {
        let is_variable =
            |piece: &TemplatePiece| matches!(piece, TemplatePiece::Variable(variable) if *variable != Variable::Path);
        self.path.iter().any(is_variable)
    }

    /// Returns the path if it has no placeholder.
    pub(crate) fn as_static_path(&self) -> Option<&str> {
        match &*self.path {
            [TemplatePiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns the target with the request's query appended to its own.
    pub(crate) fn location(&self, values: &RequestValues<'_>) -> String {
        let mut location = String::new();
        self.origin.iter().for_each(|piece| piece.fill(values, Encoding::Host, &mut location));
        location.push_str(&self.fill(values, push_as_written));
        let query = self.query_with(values);
        if !query.is_empty() {
            location.push('?');
            location.push_str(&query);
        }
        if let Some(fragment) = &self.fragment {
            location.push('#');
            location.push_str(fragment);
        }
        location
    }

    /// Returns the query: its own, and that of the request behind it unless the target drops or places that.
    fn query_with(&self, values: &RequestValues<'_>) -> String {
        let mut query = String::new();
        self.query.iter().flatten().for_each(|piece| piece.fill(values, Encoding::Strict, &mut query));
        let kept = values.query.filter(|kept| !kept.is_empty() && self.request_query == RequestQuery::Kept);
        if let Some(kept) = kept {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(kept);
        }
        query
    }

    /// Returns the query of the rewritten request, empty for none; `None` if the target leaves that of the request.
    pub(crate) fn replaced_query(&self, values: &RequestValues<'_>) -> Option<String> {
        let is_replaced = self.query.is_some() || self.request_query == RequestQuery::Dropped;
        is_replaced.then(|| self.query_with(values))
    }

    /// Returns the percent-encoded path without double slashes, which the site would reject.
    pub(crate) fn path_with(&self, values: &RequestValues<'_>) -> String {
        self.fill(values, push_without_double_slash)
    }

    /// Whether it has the path of the request.
    pub(crate) fn has_path(&self) -> bool {
        self.path.contains(&TemplatePiece::Variable(Variable::Path))
    }

    fn fill(&self, values: &RequestValues<'_>, push_text: fn(&str, &mut String)) -> String {
        let captures = &values.captures;
        let mut path = String::new();
        for piece in &self.path {
            let text = match piece {
                TemplatePiece::Text(text) => {
                    push_text(text, &mut path);
                    continue;
                }
                TemplatePiece::Star(index) => captures.star(*index),
                TemplatePiece::Number(index) => captures.get(*index),
                TemplatePiece::Named(name) => captures.named(name),
                TemplatePiece::Variable(Variable::Path) => {
                    // It has its own slash.
                    push_without_double_slash("/", &mut path);
                    values.path.trim_start_matches('/')
                }
                TemplatePiece::Variable(_) => {
                    let mut value = String::new();
                    piece.fill(values, Encoding::Strict, &mut value);
                    path.push_str(&value);
                    continue;
                }
            };
            for (index, segment) in text.split('/').enumerate() {
                if index > 0 {
                    push_without_double_slash("/", &mut path);
                }
                encode_segment(segment, &mut path);
            }
        }
        path
    }
}

impl RequestValues<'_> {
    /// Values without a capture, to try a target.
    fn example() -> Self {
        RequestValues {
            captures: Captures::default(),
            path: "/",
            query: None,
            host: "localhost",
            scheme: "http",
            method: "GET",
            client: std::net::IpAddr::from([127, 0, 0, 1]),
            client_subject: "",
        }
    }
}

/// Checks that a target is a path or a URL, and that its host is fixed.
fn check_form(text: &str) -> Result<(), ValueError> {
    let bare: String = without_placeholders(text);
    let authority = ["https://", "http://", "{scheme}://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    match authority {
        // A capture in the host would let a client choose the redirect's destination.
        Some(rest) if rest.split(['/', '?']).next().is_some_and(|host| host.contains('*') || host.is_empty()) => {
            return Err(ValueError::new(
                "a URL without a fixed host",
                "write the host; a `*` is allowed only in the path after it",
            ));
        }
        Some(_) => {}
        None if text.starts_with("//") => {
            return Err(ValueError::new(
                "a target that may lead to another host",
                "a path starts with one slash, a URL with http:// or https://",
            ));
        }
        None if !text.starts_with('/') && !text.starts_with("{path}") => {
            let instead = format!("a path starts with a slash, a URL with http:// or https://: \"/{bare}\"");
            return Err(ValueError::new(format!("`{text}` is not a redirect target"), instead));
        }
        None => {}
    }
    check_url_characters(&bare)
}

/// Removes stars and placeholders.
fn without_placeholders(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        out.push_str(before);
        match behind.split_once('}') {
            Some((_, behind)) => rest = behind,
            None => {
                out.push('{');
                rest = behind;
            }
        }
    }
    out.push_str(rest);
    out.replace('*', "")
}

fn parse_pieces(text: &str, stars: &mut usize) -> Result<Vec<TemplatePiece>, ValueError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['*', '{']) {
        if at > 0 {
            pieces.push(TemplatePiece::Text(rest[..at].into()));
        }
        rest = &rest[at + 1..];
        if text.as_bytes()[text.len() - rest.len() - 1] == b'*' {
            pieces.push(TemplatePiece::Star(*stars));
            *stars += 1;
            continue;
        }
        let Some((name, behind)) = rest.split_once('}') else {
            return Err(ValueError::new("a `{` without a `}`", "write {name}, or %7B for the character"));
        };
        pieces.push(TemplatePiece::parse(name)?);
        rest = behind;
    }
    if !rest.is_empty() {
        pieces.push(TemplatePiece::Text(rest.into()));
    }
    Ok(pieces)
}

/// Takes the scheme and the host from the start of a URL. A path has none.
fn take_origin(pieces: &mut Vec<TemplatePiece>) -> Result<Vec<TemplatePiece>, ValueError> {
    let mut origin = Vec::new();
    let host_start = match pieces.as_slice() {
        [TemplatePiece::Variable(Variable::Scheme), TemplatePiece::Text(text), ..] if text.starts_with("://") => {
            origin.push(pieces.remove(0));
            3
        }
        [TemplatePiece::Text(text), ..] => {
            match ["https://", "http://"].iter().find(|scheme| text.starts_with(**scheme)) {
                Some(scheme) => scheme.len(),
                None => return Ok(origin),
            }
        }
        _ => return Ok(origin),
    };
    if let Some(TemplatePiece::Text(text)) = pieces.first_mut() {
        origin.push(TemplatePiece::Text(text[..host_start].into()));
        *text = text[host_start..].into();
    }
    let mut host = String::new();
    let mut is_literal = true;
    while let Some(piece) = pieces.first_mut() {
        match piece {
            TemplatePiece::Text(text) => {
                let end = text.find(['/', '?', '#']).unwrap_or(text.len());
                let (own, rest) = text.split_at(end);
                if let Some(c) = own.chars().find(|c| !c.is_ascii_alphanumeric() && !"-._:[]".contains(*c)) {
                    let what = format!("`{}` in a host", c.escape_debug());
                    return Err(ValueError::new(what, "write a host name, and a port if it needs one"));
                }
                host.push_str(own);
                if !own.is_empty() {
                    origin.push(TemplatePiece::Text(own.into()));
                }
                if rest.is_empty() {
                    pieces.remove(0);
                    continue;
                }
                *text = rest.into();
                break;
            }
            // It begins with a slash, so the host ends here.
            TemplatePiece::Variable(Variable::Path) => break,
            TemplatePiece::Variable(Variable::Host) | TemplatePiece::Named(_) => {
                is_literal = false;
                origin.push(pieces.remove(0));
            }
            _ => {
                return Err(ValueError::new(
                    "a URL without a fixed host",
                    "a host is written out, or is {host} or a wildcard of `when { host ... }`",
                ));
            }
        }
    }
    if is_literal && selvedge::proto::target::Host::parse(host.as_bytes()).is_err() {
        let what = format!("`{host}` is not a host");
        return Err(ValueError::new(what, "write a host name, and a port if it needs one"));
    }
    Ok(origin)
}

/// Splits pieces at the first occurrence of a character in a text, and returns those after it.
fn split_at(pieces: &mut Vec<TemplatePiece>, mark: char) -> Option<Vec<TemplatePiece>> {
    let index = pieces.iter().position(|piece| matches!(piece, TemplatePiece::Text(text) if text.contains(mark)))?;
    let mut behind = pieces.split_off(index);
    if let Some(TemplatePiece::Text(text)) = behind.first_mut() {
        let (before, after) = text.split_once(mark)?;
        if !before.is_empty() {
            pieces.push(TemplatePiece::Text(before.into()));
        }
        *text = after.into();
    }
    behind.retain(|piece| *piece != TemplatePiece::Text("".into()));
    Some(behind)
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

/// Encodes the operator's text, which may be encoded already: only characters that no URI has.
fn encode_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() { out.push(char::from(byte)) } else { push_encoded(byte, &mut out) }
    }
    out
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
    /// Parses a path with at most one star. In it, the star is written as `{path}`.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        foreign::check_variables(text)?;
        check_path_characters(text)?;
        // `{path}` and `*` have their own slash.
        let text = &text.replace("{path}", "*");
        let text = text.strip_prefix('/').filter(|rest| rest.starts_with('*')).unwrap_or(text);
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
            Some(suffix) if !suffix.contains(['/', '\\', '{']) => Ok(Self::Suffix(suffix.into())),
            _ if text.contains('?') => Err(ValueError::new("a path with a query", "write the path of a file")),
            _ if text.split('/').any(|segment| matches!(segment, "." | "..")) => {
                Err(ValueError::new("a path with `.` or `..`", "write the path that it leads to"))
            }
            _ => Template::build_path(&text.replace('*', "{path}")).map(Self::Path),
        }
    }
}

impl fmt::Display for TryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("*"),
            Self::Suffix(suffix) => write!(f, "*{suffix}"),
            Self::Path(template) => f.write_str(&template.text.replace("{path}", "*")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::{Pattern, absolute_path};
    use super::*;

    fn location(pattern: &str, template: &str, target: &str) -> String {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let text = absolute_path(&SafePath::decode(path.as_bytes()).unwrap());
        let pattern = Pattern::parse(pattern).unwrap();
        let captures = pattern.matches(&text).unwrap();
        let values = RequestValues { captures, path: &text, query, host: "Ask.Example", ..RequestValues::example() };
        Template::parse(template).unwrap_or_else(|error| panic!("{template}: {error:?}")).location(&values)
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
            ("/old", "/new?", "/old?a", "/new"),
            ("/old", "/new?x=1?", "/old?a", "/new?x=1"),
            ("/old", "/new?{query}", "/old?a", "/new?a"),
            ("/old", "/new?{query}", "/old", "/new"),
            ("/old", "/new?from={path}&{query}", "/old?a", "/new?from=/old&a"),
            ("/*", "https://{host}{path}", "/a%20b/?c", "https://ask.example/a%20b/?c"),
            ("/*", "https://www.{host}{path}", "/", "https://www.ask.example/"),
            ("/*", "{scheme}://{host}/x{path}", "/a", "http://ask.example/x/a"),
            ("/*", "https://{host}", "/a", "https://ask.example/"),
            ("/{year}/{title}/", "/blog/{title}?y={year}", "/2024/a-b/", "/blog/a-b?y=2024"),
            ("/a/{x}/{rest...}", "/{rest}/{1}", "/a/b/c/d", "/c/d/b"),
            ("/{x}/*", "/*/{x}", "/a/b", "/b/a"),
            ("regex:^/p(?<id>[0-9]+)$", "/post/{id}", "/p12", "/post/12"),
        ] {
            assert_eq!(location(pattern, template, target), expected, "{pattern} {template} {target}");
        }
    }

    #[test]
    fn queries_of_rewrites() {
        for (template, query, expected) in [
            ("/b", Some("a=1"), None),
            ("/b", None, None),
            ("/b?x={1}", Some("a=1"), Some("x=c%26d&a=1")),
            ("/b?x=*", None, Some("x=c%26d")),
            ("/b?x={1}?", Some("a=1"), Some("x=c%26d")),
            ("/b?", Some("a=1"), Some("")),
            ("/b?{query}&x=1", Some("a=1"), Some("a=1&x=1")),
            ("/{1}?from={path}", Some(""), Some("from=/c%26d")),
        ] {
            let captures = Pattern::parse("/*").unwrap();
            let captures = captures.matches("/c&d").unwrap();
            let values = RequestValues { captures, path: "/c&d", query, ..RequestValues::example() };
            let target = Template::parse_path(template).unwrap_or_else(|error| panic!("{template}: {error:?}"));
            assert_eq!(target.replaced_query(&values).as_deref(), expected, "{template} {query:?}");
            assert!(!target.path_with(&values).contains('?'), "{template}");
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
            ("/*", "{path}", "/evil.example"),
            ("/{a}", "/{a}", "/evil.example"),
            ("regex:^/(.*)$", "/{1}", "/@evil.example"),
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
            "https://{1}.example/",
            "https://{path}",
            "https://$host/",
            "https://%{HTTP_HOST}/x",
            "/new/$1",
            "/{uri}x/{http.request.host}",
            "/a#{host}",
            "/{a",
            "https://a b{host}/",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
        for text in ["https://host/a", "/a?b#c", "/a#b", "/../a", "/%zz", "a", "/a?é", "/a?x y", "/a?{b", "?a=b"] {
            assert!(Template::parse_path(text).is_err(), "{text}");
        }
        assert!(Template::parse_path("/index.html").is_ok());
    }

    #[test]
    fn entries_of_try_files_are_written_as_they_were_read() {
        for text in ["*", "*.html", "*/index.html", "/a/*", "/a*.html", "/a.html", "/{a}/{1}.html", "*.{a}", "/{host}*"]
        {
            assert_eq!(TryPath::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "a", "/*/*", "/a#b", "/../a", "/a/../b", "/{a", "/{uri}x{b.c}", "*.{"] {
            assert!(TryPath::parse(text).is_err(), "{text}");
        }
    }
}
