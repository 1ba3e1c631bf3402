//! Path patterns, and the targets that take up what they matched.

use super::Wrong;
use std::fmt;

/// Which paths a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PathPattern {
    /// This path.
    Exact(String),
    /// `/app/*`: the path `/app` and what is beneath it. Kept without the slash at the end,
    /// so that of `/*`, which is every path, is empty.
    Prefix(String),
    /// The texts between the stars, each of which stands for any text of a segment; one that
    /// is all of the last segment, for what is beneath. Without a slash it is about the last
    /// segment of a path alone.
    Glob(Vec<String>),
}

impl PathPattern {
    /// How many stars it has.
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
            Self::Prefix(prefix) => is_beneath(prefix, path),
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

/// Most stars of a pattern.
const STARS_MAX: usize = 8;

/// Whether a path is this one or beneath it.
pub(crate) fn is_beneath(prefix: &str, path: &str) -> bool {
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

/// A text with places for what the stars of a pattern matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// What the star of this number matched, from 0.
    Capture(usize),
}

impl Template {
    /// Text and captures, in the order in which they stand.
    fn of(text: &str) -> Self {
        let mut pieces = Vec::new();
        for (number, text) in text.split('*').enumerate() {
            if number > 0 {
                pieces.push(Piece::Capture(number - 1));
            }
            if !text.is_empty() {
                pieces.push(Piece::Text(text.to_owned()));
            }
        }
        Self { pieces }
    }

    /// What is captured, and nothing else.
    pub(crate) fn whole() -> Self {
        Self { pieces: vec![Piece::Capture(0)] }
    }

    /// How many captures it takes up.
    pub(crate) fn captures(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Capture(_))).count()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Capture(_) => f.write_str("*"),
        })
    }
}

pub(super) fn read_pattern(text: &str) -> Result<PathPattern, Wrong> {
    check_path_octets(text)?;
    if text.contains('?') {
        return Err(Wrong::new(
            "a pattern with a query",
            "the pattern is of the path; write `when { query \"name\" \"value\" }` in the braces",
        ));
    }
    if !text.starts_with(['/', '*']) {
        return Err(Wrong::new("a pattern that no path matches", format!("paths begin with a slash: \"/{text}\"")));
    }
    if text.contains("**") {
        return Err(Wrong::new("two stars side by side", "one star stands for any text of a segment"));
    }
    check_segments(text)?;
    match text.split_once('*') {
        None => Ok(PathPattern::Exact(text.to_owned())),
        // A star alone is every path, as `/*` is.
        Some(("", "")) => Ok(PathPattern::Prefix(String::new())),
        Some((before, "")) if before.ends_with('/') => Ok(PathPattern::Prefix(before[..before.len() - 1].to_owned())),
        Some(_) => Ok(PathPattern::Glob(text.split('*').map(str::to_owned).collect())),
    }
}

/// What no decoded path has, so that no pattern with it would ever match.
fn check_segments(text: &str) -> Result<(), Wrong> {
    if text.len() > 1 && text.starts_with('*') && text.contains('/') {
        let instead = format!("a pattern of names has no slash, and one of paths begins with one: \"/{text}\"");
        return Err(Wrong::new("a pattern that begins with a star and has a slash", instead));
    }
    if text.matches('*').count() > STARS_MAX {
        return Err(Wrong::new("too many stars", format!("a pattern has at most {STARS_MAX}")));
    }
    let is_encoded = |octets: &[u8]| octets[0] == b'%' && octets[1..].iter().all(u8::is_ascii_hexdigit);
    if text.as_bytes().windows(3).any(is_encoded) {
        let instead = "write the character itself: paths are compared as they are after decoding";
        return Err(Wrong::new("a pattern with percent-encoding", instead));
    }
    if text.contains('\\') {
        return Err(Wrong::new("a pattern with a backslash", "segments are divided by `/`"));
    }
    let inner = text.strip_prefix('/').unwrap_or(text);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if !inner.is_empty() && inner.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(Wrong::new("a pattern with an empty segment, or one of dots", "no path has one"));
    }
    Ok(())
}

pub(super) fn read_redirect_target(text: &str) -> Result<Template, Wrong> {
    let without_stars = text.replace('*', "");
    let authority = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    match authority {
        // A captured text there would let a client choose where it is sent.
        Some(rest) if rest.split(['/', '?']).next().is_some_and(|host| host.contains('*') || host.is_empty()) => {
            return Err(Wrong::new(
                "a URL without a fixed host",
                "write the host; a `*` may stand behind its slash only",
            ));
        }
        Some(rest) if !rest.contains('/') && rest.contains('*') => {
            return Err(Wrong::new("a `*` right behind the host", "put a slash between"));
        }
        Some(_) => {}
        None if text.starts_with("//") || text.starts_with("/*") && text.len() > 2 && text.as_bytes()[2] == b'/' => {
            return Err(Wrong::new(
                "a target that may lead to another host",
                "a path begins with one slash; a URL with http:// or https://",
            ));
        }
        None if !text.starts_with('/') => {
            let instead = format!("a path begins with a slash, a URL with http:// or https://: \"/{without_stars}\"");
            return Err(Wrong::new(format!("`{text}` is no target"), instead));
        }
        None => {}
    }
    check_url_octets(&without_stars)?;
    Ok(Template::of(text))
}

pub(super) fn read_rewrite_target(text: &str) -> Result<Template, Wrong> {
    if text.contains("://") {
        return Err(Wrong::new("a rewrite to another site", "a rewrite stays in its site; say `redirect`"));
    }
    if !text.starts_with('/') {
        return Err(Wrong::new("a path that does not begin with a slash", format!("write \"/{text}\"")));
    }
    if text.contains('?') {
        return Err(Wrong::new("a rewrite with a query", "a rewrite changes the path; the query stays as it is"));
    }
    check_path_octets(text)?;
    Ok(Template::of(text))
}

/// A path of the site in which one star is the path of the request, or a fixed one.
pub(super) fn read_try_path(text: &str) -> Result<Template, Wrong> {
    check_path_octets(text)?;
    if text.matches('*').count() > 1 {
        return Err(Wrong::new("more than one `*`", "there is one path that it can stand for"));
    }
    if !text.starts_with(['/', '*']) {
        return Err(Wrong::new(
            "a path that does not begin with a slash",
            format!("write \"/{text}\", or a \"*\" first for the path of the request"),
        ));
    }
    Ok(Template::of(text))
}

/// A path of the site, as a client would ask for it.
pub(super) fn read_url_path(text: &str) -> Result<String, Wrong> {
    check_path_octets(text)?;
    if !text.starts_with('/') {
        return Err(Wrong::new(
            "a path that does not begin with a slash",
            format!("write \"/{text}\"; it is looked for beneath the root"),
        ));
    }
    if text.contains(['*', '?']) {
        return Err(Wrong::new("a path with a wildcard or a query", "write the path of one file"));
    }
    if text.split('/').any(|segment| segment == "..") {
        return Err(Wrong::new("a path with `..`", "write where it leads"));
    }
    Ok(text.to_owned())
}

/// Paths are compared with decoded ones, so they are written decoded.
fn check_path_octets(text: &str) -> Result<(), Wrong> {
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(Wrong::new("this is no path", "it begins with a slash and has no control characters"));
    }
    if text.contains('#') {
        return Err(Wrong::new("a path with a fragment", "clients do not send what stands behind `#`"));
    }
    Ok(())
}

fn check_url_octets(text: &str) -> Result<(), Wrong> {
    match text
        .chars()
        .find(|c| !matches!(c, '!'..='~') || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'))
    {
        None => Ok(()),
        Some(c) => {
            let mut octets = [0; 4];
            let encoded: String = c.encode_utf8(&mut octets).bytes().map(|b| format!("%{b:02X}")).collect();
            Err(Wrong::new(format!("`{}` may not stand in a URL", c.escape_debug()), format!("write {encoded}")))
        }
    }
}
