//! Patterns of paths that rules apply to.
//!
//! A pattern matches the decoded path that [`selvedge::proto::path::SafePath`] produces, so no spelling of a
//! path bypasses a rule. Bytes are compared as they are: case matters, and `;` or a trailing dot are part of a
//! name, as they are for files.
//!
//! | pattern | matching paths |
//! |---|---|
//! | `/a/b` | this path alone, not `/a/b/` |
//! | `/a/*` | everything beneath `/a`, and `/a/` and `/a`, so that a rule for a directory has no gap |
//! | `/a/*/c`, `/a/x*.png` | a star within the path matches bytes of one segment |
//! | `*.css` | the last segment, in any directory |
//!
//! Every star captures the text that it matches.

use super::ValueError;
use selvedge::proto::path::SafePath;
use std::fmt;

/// The maximum number of stars of a pattern.
pub(crate) const STARS_MAX: usize = 8;

/// A pattern of paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    kind: PatternKind,
    stars: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PatternKind {
    /// One path.
    Exact(Box<str>),
    /// A path and everything beneath it. Stored without a trailing slash, so empty for `/*`.
    Prefix(Box<str>),
    /// Segments with stars, and the end of the pattern.
    Segments(Box<[Box<str>]>, PatternEnd),
    /// The last segment of any path.
    FileName(Box<str>),
}

/// The end of a pattern behind its last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PatternEnd {
    Nothing,
    Slash,
    Anything,
}

/// The texts that the stars of a pattern matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'p> {
    parts: [&'p str; STARS_MAX],
    count: usize,
}

impl<'p> Captures<'p> {
    /// Returns the text of a star by its index, from 0; empty if it does not exist.
    pub(crate) fn get(&self, number: usize) -> &'p str {
        self.parts[..self.count].get(number).copied().unwrap_or_default()
    }

    /// The capture of a single star.
    pub(crate) fn whole(part: &'p str) -> Self {
        let mut captures = Self::default();
        captures.push(part);
        captures
    }

    fn push(&mut self, part: &'p str) {
        debug_assert!(self.count < STARS_MAX, "a pattern has no more stars");
        self.parts[self.count] = part;
        self.count += 1;
    }
}

/// Returns a decoded path in the form that patterns match: with its leading slash, and a trailing one for a
/// directory.
pub(crate) fn absolute_path(path: &SafePath) -> String {
    let mut text = String::with_capacity(path.as_str().len() + 2);
    text.push('/');
    text.push_str(path.as_str());
    if path.names_directory() && !path.as_str().is_empty() {
        text.push('/');
    }
    text
}

impl Pattern {
    /// Returns the pattern `/*`.
    pub(crate) fn everything() -> Self {
        Self { kind: PatternKind::Prefix(Box::from("")), stars: 1 }
    }

    /// Parses a pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        check_path_characters(text)?;
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
        let stars = text.bytes().filter(|&b| b == b'*').count();
        let Some(path) = text.strip_prefix('/') else {
            // A single star matches every path, as `/*` does.
            return Ok(if text == "*" {
                Self::everything()
            } else {
                Self { kind: PatternKind::FileName(text.into()), stars }
            });
        };
        let mut segments: Vec<&str> = path.split('/').collect();
        let end = match segments.last() {
            Some(&"*") => PatternEnd::Anything,
            Some(&"") => PatternEnd::Slash,
            _ => PatternEnd::Nothing,
        };
        if end != PatternEnd::Nothing {
            segments.pop();
        }
        let kind = match (end, stars) {
            (_, 0) => PatternKind::Exact(text.into()),
            (PatternEnd::Anything, 1) => PatternKind::Prefix(text.strip_suffix("/*").unwrap_or_default().into()),
            _ => PatternKind::Segments(segments.into_iter().map(Box::from).collect(), end),
        };
        Ok(Self { kind, stars })
    }

    /// Returns the path if the pattern is this path alone.
    pub(crate) fn as_exact(&self) -> Option<&str> {
        match &self.kind {
            PatternKind::Exact(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the path, without its slash at the end, if the pattern is that path and everything beneath it.
    pub(crate) fn as_prefix(&self) -> Option<&str> {
        match &self.kind {
            PatternKind::Prefix(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the number of stars.
    pub(crate) fn stars(&self) -> usize {
        self.stars
    }

    /// Whether the captures together with the pattern determine the path.
    pub(crate) fn captures_all(&self) -> bool {
        !matches!(self.kind, PatternKind::FileName(_))
    }

    /// Matches a path in the form of [`absolute_path`] and returns the captures.
    pub(crate) fn matches<'p>(&self, text: &'p str) -> Option<Captures<'p>> {
        debug_assert!(text.starts_with('/'), "see text_of");
        let mut captures = Captures::default();
        match &self.kind {
            PatternKind::Exact(exact) => (**exact == *text).then_some(captures),
            PatternKind::Prefix(prefix) => {
                let rest = text.strip_prefix(&**prefix)?;
                // Only at a segment boundary: `/app/*` does not match `/apple`.
                let beneath = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
                captures.push(beneath);
                Some(captures)
            }
            PatternKind::FileName(name) => {
                let last = text.rsplit('/').next().filter(|last| !last.is_empty())?;
                match_segment(name, last, &mut captures).then_some(captures)
            }
            PatternKind::Segments(segments, end) => {
                match_segments(segments, *end, text, &mut captures).then_some(captures)
            }
        }
    }
}

/// Refuses segments that no decoded path contains, because the pattern would never match.
fn check_segments(text: &str) -> Result<(), ValueError> {
    if text.len() > 1 && text.starts_with('*') && text.contains('/') {
        let instead = format!("a file name pattern has no slash, and a path pattern starts with one: \"/{text}\"");
        return Err(ValueError::new("a pattern that starts with `*` and has a slash", instead));
    }
    if text.matches('*').count() > STARS_MAX {
        return Err(ValueError::new("too many `*`", format!("a pattern has at most {STARS_MAX}")));
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

/// Patterns are compared with decoded paths, so they are written decoded.
pub(crate) fn check_path_characters(text: &str) -> Result<(), ValueError> {
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(ValueError::new("this is not a path", "a path starts with a slash and has no control characters"));
    }
    if text.contains('#') {
        return Err(ValueError::new("a path with a fragment", "clients do not send the part after `#`"));
    }
    Ok(())
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            PatternKind::Exact(path) | PatternKind::FileName(path) => f.write_str(path),
            PatternKind::Prefix(path) => write!(f, "{path}/*"),
            PatternKind::Segments(segments, end) => {
                segments.iter().try_for_each(|segment| write!(f, "/{segment}"))?;
                f.write_str(match end {
                    PatternEnd::Nothing => "",
                    PatternEnd::Slash => "/",
                    PatternEnd::Anything => "/*",
                })
            }
        }
    }
}

fn match_segments<'p>(segments: &[Box<str>], end: PatternEnd, text: &'p str, captures: &mut Captures<'p>) -> bool {
    // The rest of the path, from the slash before its next segment.
    let mut rest = text;
    for segment in segments {
        let Some(from) = rest.strip_prefix('/') else { return false };
        let len = from.find('/').unwrap_or(from.len());
        if len == 0 || !match_segment(segment, &from[..len], captures) {
            return false;
        }
        rest = &from[len..];
    }
    match end {
        PatternEnd::Nothing => rest.is_empty(),
        PatternEnd::Slash => rest == "/",
        PatternEnd::Anything => {
            captures.push(rest.strip_prefix('/').unwrap_or(rest));
            true
        }
    }
}

/// Matches a segment with a glob. Each star but the last matches as little as possible, so no backtracking is
/// needed. A glob that is a single star matches a whole segment.
fn match_segment<'p>(glob: &str, segment: &'p str, captures: &mut Captures<'p>) -> bool {
    let Some((before, mut glob)) = glob.split_once('*') else { return glob == segment };
    let Some(mut rest) = segment.strip_prefix(before) else { return false };
    while let Some((literal, behind)) = glob.split_once('*') {
        let Some(at) = rest.find(literal) else { return false };
        captures.push(&rest[..at]);
        rest = &rest[at + literal.len()..];
        glob = behind;
    }
    match rest.strip_suffix(glob) {
        Some(last) => captures.push(last),
        None => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(pattern: &str, raw: &str) -> Option<Vec<String>> {
        let path = SafePath::decode(raw.as_bytes()).unwrap_or_else(|reject| panic!("{raw}: {reject}"));
        let (pattern, text) = (Pattern::parse(pattern).unwrap(), absolute_path(&path));
        let captures = pattern.matches(&text)?;
        assert_eq!(captures.count, pattern.stars(), "every star has captured something");
        Some((0..captures.count).map(|number| captures.get(number).to_owned()).collect())
    }

    #[test]
    fn patterns_match_paths() {
        for (pattern, raw, expected) in [
            ("/", "/", Some(&[][..])),
            ("/", "/a", None),
            ("/a", "/a", Some(&[])),
            ("/a", "/a/", None),
            ("/a/", "/a/", Some(&[])),
            ("/a/", "/a", None),
            ("/*", "/", Some(&[""])),
            ("/*", "/a/b", Some(&["a/b"])),
            ("/app/*", "/app", Some(&[""])),
            ("/app/*", "/app/", Some(&[""])),
            ("/app/*", "/app/x/y/", Some(&["x/y/"])),
            ("/app/*", "/apple", None),
            ("/app/*", "/", None),
            ("/a/*/c", "/a/b/c", Some(&["b"])),
            ("/a/*/c", "/a/b/b/c", None),
            ("/a/*/c", "/a//c".trim_end_matches("/c"), None),
            ("/u/*/*", "/u/ann/x/y", Some(&["ann", "x/y"])),
            ("/u/*/*", "/u/ann", Some(&["ann", ""])),
            ("/u/*/", "/u/ann/", Some(&["ann"])),
            ("/u/*/", "/u/ann", None),
            ("/i/x*.png", "/i/x12.png", Some(&["12"])),
            ("/i/x*.png", "/i/x.png", Some(&[""])),
            ("/i/x*.png", "/i/x.png.exe", None),
            ("/i/*-*x*", "/i/a-b-xcx", Some(&["a", "b-", "cx"])),
            ("*.css", "/style.css", Some(&["style"])),
            ("*.css", "/deep/er/a.css", Some(&["a"])),
            ("*.css", "/a.css/b", None),
            ("*.css", "/a.css/", None),
        ] {
            let expected = expected.map(|parts| parts.iter().map(|&part| part.to_owned()).collect());
            assert_eq!(captured(pattern, raw), expected, "{pattern} {raw}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_matches() {
        for raw in [
            "/admin",
            "/admin/",
            "/%61dmin",
            "/%61%64%6d%69%6e/x",
            "/x/../admin/x",
            "/./admin/x",
            "/x/%2e%2E/admin/x",
            "/admin/.",
            "/admin/x/..",
            "/%2e/admin",
        ] {
            assert!(captured("/admin/*", raw).is_some(), "{raw}");
        }
        // These are other names, as they are for files.
        for raw in ["/ADMIN/x", "/admin;/x", "/admin./x", "/admin%20/x", "/%2561dmin/x", "/..admin/x"] {
            assert!(captured("/admin/*", raw).is_none(), "{raw}");
        }
        // These are not valid paths.
        for raw in ["//admin/x", "/admin//x", "/x%2F..%2Fadmin", "/admin%00", "/..%5cadmin", "/%c0%ae"] {
            assert!(SafePath::decode(raw.as_bytes()).is_err(), "{raw}");
        }
    }

    #[test]
    fn invalid_patterns() {
        for (text, error) in [
            ("", "this is not a path"),
            ("a", "a pattern that matches no path"),
            ("a/*", "a pattern that matches no path"),
            ("//a", "a pattern with an empty, `.` or `..` segment"),
            ("/a//", "a pattern with an empty, `.` or `..` segment"),
            ("/a/../b", "a pattern with an empty, `.` or `..` segment"),
            ("/%61", "a pattern with percent-encoding"),
            ("/a?b", "a pattern with a query"),
            ("/a#b", "a path with a fragment"),
            ("/a\\b", "a pattern with a backslash"),
            ("/a/**", "two adjacent `*`"),
            ("/*/*/*/*/*/*/*/*/*", "too many `*`"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().message, error, "{text}");
        }
        assert!(Pattern::parse("/100%").is_ok());
    }
}
