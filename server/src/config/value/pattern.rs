//! Path patterns, and templates with their captures.

use super::ValueError;
use std::fmt;

/// The paths that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PathPattern {
    /// This path.
    Exact(String),
    /// `/app/*`: the path `/app` and all paths below it. Stored without the final slash, so `/*` (every path) is empty.
    Prefix(String),
    /// The texts between wildcards. A wildcard matches any text within a segment; as the whole last segment it
    /// matches all paths below. Without a slash the pattern applies to the last segment of any path.
    Glob(Vec<String>),
}

impl PathPattern {
    /// Returns the number of wildcards.
    pub(crate) fn captures(&self) -> usize {
        match self {
            Self::Exact(_) => 0,
            Self::Prefix(_) => 1,
            Self::Glob(texts) => texts.len() - 1,
        }
    }

    /// Whether it matches a path.
    pub(crate) fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == path,
            Self::Prefix(prefix) => is_below(prefix, path),
            Self::Glob(texts) => matches_segments(&texts.join("*"), path),
        }
    }
}

fn matches_segments(pattern: &str, path: &str) -> bool {
    if !pattern.starts_with('/') {
        return path.rsplit('/').next().is_some_and(|name| !name.is_empty() && matches_segment(pattern, name));
    }
    let (forms, takes_more) = pattern.strip_suffix("/*").map_or((pattern, false), |forms| (forms, true));
    let mut segments = path.split('/');
    let is_of_form = |form: &str| {
        segments.next().is_some_and(|segment| segment.is_empty() == form.is_empty() && matches_segment(form, segment))
    };
    forms.split('/').all(is_of_form) && (takes_more || segments.next().is_none())
}

fn matches_segment(form: &str, segment: &str) -> bool {
    let Some((first, rest)) = form.split_once('*') else { return form == segment };
    let Some(mut segment) = segment.strip_prefix(first) else { return false };
    let mut literals = rest.split('*').peekable();
    while let Some(literal) = literals.next() {
        if literals.peek().is_none() {
            return segment.ends_with(literal);
        }
        let Some((_, behind)) = segment.split_once(literal) else { return false };
        segment = behind;
    }
    true
}

/// Most wildcards of a pattern.
const WILDCARDS_MAX: usize = 8;

/// Whether a path is `prefix` or below it.
pub(crate) fn is_below(prefix: &str, path: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(path) => f.write_str(path),
            Self::Prefix(path) => write!(f, "{path}/*"),
            Self::Glob(texts) => f.write_str(&texts.join("*")),
        }
    }
}

/// A text with references to captures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplatePart {
    Text(String),
    /// The capture with this number, from 0.
    Capture(usize),
}

impl Template {
    /// Splits a text into literal parts and captures.
    fn split(text: &str) -> Self {
        let mut parts = Vec::new();
        for (number, text) in text.split('*').enumerate() {
            if number > 0 {
                parts.push(TemplatePart::Capture(number - 1));
            }
            if !text.is_empty() {
                parts.push(TemplatePart::Text(text.to_owned()));
            }
        }
        Self { parts }
    }

    /// Returns the template that is one capture.
    pub(crate) fn request_path() -> Self {
        Self { parts: vec![TemplatePart::Capture(0)] }
    }

    /// Returns the number of captures.
    pub(crate) fn capture_count(&self) -> usize {
        self.parts.iter().filter(|piece| matches!(piece, TemplatePart::Capture(_))).count()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|piece| match piece {
            TemplatePart::Text(text) => f.write_str(text),
            TemplatePart::Capture(_) => f.write_str("*"),
        })
    }
}

pub(super) fn read_pattern(text: &str) -> Result<PathPattern, ValueError> {
    check_path_bytes(text)?;
    if text.contains('?') {
        return Err(ValueError::new(
            "a pattern with a query",
            "a pattern matches the path; for the query, write `when { query \"name\" \"value\" }` in the block",
        ));
    }
    if !text.starts_with(['/', '*']) {
        return Err(ValueError::new(
            "a pattern that matches no path",
            format!("paths start with a slash: \"/{text}\""),
        ));
    }
    if text.contains("**") {
        return Err(ValueError::new("two adjacent `*`", "one `*` matches any text of a segment"));
    }
    check_segments(text)?;
    match text.split_once('*') {
        None => Ok(PathPattern::Exact(text.to_owned())),
        // A single wildcard matches every path, as `/*` does.
        Some(("", "")) => Ok(PathPattern::Prefix(String::new())),
        Some((before, "")) if before.ends_with('/') => Ok(PathPattern::Prefix(before[..before.len() - 1].to_owned())),
        Some(_) => Ok(PathPattern::Glob(text.split('*').map(str::to_owned).collect())),
    }
}

/// Refuses segments that no decoded path contains, because the pattern would never match.
fn check_segments(text: &str) -> Result<(), ValueError> {
    if text.len() > 1 && text.starts_with('*') && text.contains('/') {
        let instead = format!("a file name pattern has no slash, and a path pattern starts with one: \"/{text}\"");
        return Err(ValueError::new("a pattern that starts with `*` and has a slash", instead));
    }
    if text.matches('*').count() > WILDCARDS_MAX {
        return Err(ValueError::new("too many `*`", format!("a pattern has at most {WILDCARDS_MAX}")));
    }
    let is_encoded = |bytes: &[u8]| bytes[0] == b'%' && bytes[1..].iter().all(u8::is_ascii_hexdigit);
    if text.as_bytes().windows(3).any(is_encoded) {
        let instead = "write the character itself; patterns are compared with decoded paths";
        return Err(ValueError::new("a pattern with percent-encoding", instead));
    }
    if text.contains('\\') {
        return Err(ValueError::new("a pattern with a backslash", "separate segments with `/`"));
    }
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if !inner.is_empty() && inner.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(ValueError::new(
            "a pattern with an empty, `.` or `..` segment",
            "no request path has such a segment",
        ));
    }
    Ok(())
}

pub(super) fn read_redirect_target(text: &str) -> Result<Template, ValueError> {
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
        None if text.starts_with("//") || text.starts_with("/*") && text.len() > 2 && text.as_bytes()[2] == b'/' => {
            return Err(ValueError::new(
                "a target that may lead to another host",
                "a path starts with one slash, a URL with http:// or https://",
            ));
        }
        None if !text.starts_with('/') => {
            let instead = format!("a path starts with a slash, a URL with http:// or https://: \"/{without_stars}\"");
            return Err(ValueError::new(format!("`{text}` is not a redirect target"), instead));
        }
        None => {}
    }
    check_url_bytes(&without_stars)?;
    Ok(Template::split(text))
}

pub(super) fn read_rewrite_target(text: &str) -> Result<Template, ValueError> {
    if text.contains("://") {
        return Err(ValueError::new("a rewrite to another site", "a rewrite stays in its site; use `redirect`"));
    }
    if !text.starts_with('/') {
        return Err(ValueError::new("a path without a leading slash", format!("write \"/{text}\"")));
    }
    if text.contains('?') {
        return Err(ValueError::new("a rewrite with a query", "a rewrite changes the path and keeps the query"));
    }
    check_path_bytes(text)?;
    Ok(Template::split(text))
}

/// Reads a path with one wildcard for the request's path, or a fixed path.
pub(super) fn read_try_path(text: &str) -> Result<Template, ValueError> {
    check_path_bytes(text)?;
    if text.matches('*').count() > 1 {
        return Err(ValueError::new("more than one `*`", "`*` is the path of the request, and is allowed once"));
    }
    if !text.starts_with(['/', '*']) {
        return Err(ValueError::new(
            "a path without a leading slash",
            format!("write \"/{text}\", or start with \"*\" for the path of the request"),
        ));
    }
    Ok(Template::split(text))
}

/// Reads a path as a client would request it.
pub(super) fn read_url_path(text: &str) -> Result<String, ValueError> {
    check_path_bytes(text)?;
    if !text.starts_with('/') {
        return Err(ValueError::new(
            "a path without a leading slash",
            format!("write \"/{text}\"; the path is relative to the root"),
        ));
    }
    if text.contains(['*', '?']) {
        return Err(ValueError::new("a path with a wildcard or a query", "write the path of one file"));
    }
    if text.split('/').any(|segment| segment == "..") {
        return Err(ValueError::new("a path with `..`", "write the path that it leads to"));
    }
    Ok(text.to_owned())
}

/// Patterns are compared with decoded paths, so they are written decoded.
fn check_path_bytes(text: &str) -> Result<(), ValueError> {
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(ValueError::new("this is not a path", "a path starts with a slash and has no control characters"));
    }
    if text.contains('#') {
        return Err(ValueError::new("a path with a fragment", "clients do not send the part after `#`"));
    }
    Ok(())
}

fn check_url_bytes(text: &str) -> Result<(), ValueError> {
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
