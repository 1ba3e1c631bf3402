//! Patterns of paths that rules apply to.
//!
//! A pattern matches the decoded path that [`selvedge::proto::path::SafePath`] produces, so no spelling of a
//! path bypasses a rule. Bytes are compared as they are: `;` or a trailing dot are part of a name, as they are for
//! files, and case matters unless the pattern ignores it.
//!
//! | pattern | matching paths |
//! |---|---|
//! | `/a/b` | this path alone, not `/a/b/` |
//! | `/a/*`, `/a/**`, `/a/{rest...}` | everything beneath `/a`, and `/a/` and `/a`, so that a rule for a directory has no gap |
//! | `/a/*/c`, `/a/x*.png` | a star within the path matches any text of one segment |
//! | `/a/{id}/c` | at least one character of one segment |
//! | `/**/c` | any number of segments, or none |
//! | `*.css` | the last segment, in any directory |
//! | `regex:^/[0-9]+$` | a regular expression, which matches anywhere unless it has `^` and `$` |
//!
//! Every wildcard captures the text that it matches.

use super::ValueError;
use super::captures::Captures;
use super::case_sensitivity::CaseSensitivity;
use super::foreign;
use super::glob::{self, Braces, Glob, Ranges, WILDCARDS_MAX};
use super::regular_expression::{self, RegularExpression};
use selvedge::proto::path::SafePath;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A pattern of paths.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// As written.
    text: Box<str>,
    kind: PatternKind,
    /// The names of the wildcards, in order; empty for one without a name.
    names: Box<[Box<str>]>,
    case: CaseSensitivity,
}

#[derive(Clone, Debug)]
enum PatternKind {
    /// One path.
    Exact(Box<str>),
    /// A path and everything beneath it. Stored without a trailing slash, so empty for `/*`.
    Prefix(Box<str>),
    /// Segments with wildcards, and the end of the pattern.
    Segments(Box<[Glob]>, PatternEnd),
    /// The last segment of any path.
    FileName(Glob),
    /// A regular expression, or a pattern with `**` as one.
    Regex(RegularExpression, RegexSource),
}

/// The source of a regular expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegexSource {
    /// It is written in the configuration.
    Written,
    /// It stands for a pattern with `**`, with this end.
    Segments(PatternEnd),
}

/// The end of a pattern behind its last segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternEnd {
    Nothing,
    Slash,
    Anything,
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
        let names = Box::from([Box::from("")]);
        Self { text: "/*".into(), kind: PatternKind::Prefix(Box::from("")), names, case: CaseSensitivity::Sensitive }
    }

    /// Parses a pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, ValueError> {
        Self::parse_with(text, CaseSensitivity::Sensitive)
    }

    /// Parses a pattern that may ignore the case of letters.
    pub(crate) fn parse_with(text: &str, case: CaseSensitivity) -> Result<Self, ValueError> {
        let mut names = Vec::new();
        let mut kind = match regular_expression::written(text) {
            Some(expression) => {
                let compiled = RegularExpression::compile(expression, case)?;
                names = compiled.names()?;
                PatternKind::Regex(compiled, RegexSource::Written)
            }
            None => parse_kind(text, case, &mut names)?,
        };
        if case == CaseSensitivity::Insensitive {
            kind.make_lowercase();
        }
        Ok(Self { text: text.into(), kind, names: names.into(), case })
    }

    /// Returns this pattern with the case of letters ignored.
    pub(crate) fn ignoring_case(&self) -> Self {
        Self::parse_with(&self.text, CaseSensitivity::Insensitive).unwrap_or_else(|_| self.clone())
    }

    /// Returns whether upper and lower case differ.
    pub(crate) fn case(&self) -> CaseSensitivity {
        self.case
    }

    /// Returns the path if the pattern is this path alone.
    pub(crate) fn as_exact(&self) -> Option<&str> {
        match &self.kind {
            PatternKind::Exact(path) if self.case == CaseSensitivity::Sensitive => Some(path),
            _ => None,
        }
    }

    /// Returns the path, without its slash at the end, if the pattern is that path and everything beneath it.
    pub(crate) fn as_prefix(&self) -> Option<&str> {
        match &self.kind {
            PatternKind::Prefix(path) if self.case == CaseSensitivity::Sensitive => Some(path),
            _ => None,
        }
    }

    /// Returns the text before the first wildcard; empty for a pattern of file names or a regular expression.
    pub(crate) fn literal_start(&self) -> &str {
        match &self.kind {
            PatternKind::Regex(_, RegexSource::Written) | PatternKind::FileName(_) => "",
            _ if self.case == CaseSensitivity::Insensitive => "",
            _ => self.text.split(['*', '{']).next().unwrap_or_default(),
        }
    }

    /// Returns the number of wildcards.
    pub(crate) fn wildcards(&self) -> usize {
        self.names.len()
    }

    /// Returns the names of the wildcards, in order; empty for one without a name.
    pub(crate) fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Whether its wildcards without names are enough for a target or text.
    pub(crate) fn fills(&self, needs: &super::Needs<'_>) -> bool {
        needs.stars <= self.stars() && needs.numbers <= self.wildcards()
    }

    /// Returns the number of wildcards without a name.
    pub(crate) fn stars(&self) -> usize {
        self.names.iter().filter(|name| name.is_empty()).count()
    }

    /// Whether the captures together with the pattern determine the path.
    pub(crate) fn captures_all(&self) -> bool {
        match &self.kind {
            PatternKind::FileName(_) | PatternKind::Regex(..) => false,
            _ => self.case == CaseSensitivity::Sensitive,
        }
    }

    /// Whether the last wildcard captures everything beneath a path, so that the rest is a prefix of all matching
    /// paths.
    pub(crate) fn ends_with_rest(&self) -> bool {
        match &self.kind {
            PatternKind::Prefix(_) => true,
            PatternKind::Segments(_, end) | PatternKind::Regex(_, RegexSource::Segments(end)) => {
                *end == PatternEnd::Anything
            }
            _ => false,
        }
    }

    /// Whether a path in the form of [`absolute_path`] matches. The common kinds need no allocation.
    pub(crate) fn is_match(&self, text: &str) -> bool {
        match (&self.kind, self.case) {
            (PatternKind::Exact(exact), CaseSensitivity::Sensitive) => **exact == *text,
            (PatternKind::Prefix(prefix), CaseSensitivity::Sensitive) => beneath(prefix, text).is_some(),
            _ => self.matches(text).is_some(),
        }
    }

    /// Matches a path in the form of [`absolute_path`] and returns the captures.
    pub(crate) fn matches<'p>(&'p self, text: &'p str) -> Option<Captures<'p>> {
        debug_assert!(text.starts_with('/'), "see absolute_path");
        let mut ranges = Ranges::new();
        let is_match = match self.case {
            CaseSensitivity::Sensitive => self.kind.matches(text, &mut ranges),
            // Lower case keeps the positions of all characters.
            CaseSensitivity::Insensitive => self.kind.matches(&text.to_ascii_lowercase(), &mut ranges),
        };
        is_match.then(|| {
            let rest = ranges.last().filter(|_| self.ends_with_rest()).map(|range| &text[range.clone()]);
            let mut captures = Captures::with_rest(rest);
            captures.add(&self.names, text, ranges);
            captures
        })
    }
}

impl PatternKind {
    fn make_lowercase(&mut self) {
        match self {
            Self::Exact(path) | Self::Prefix(path) => path.make_ascii_lowercase(),
            Self::Segments(globs, _) => globs.iter_mut().for_each(Glob::make_lowercase),
            Self::FileName(glob) => glob.make_lowercase(),
            // It ignores the case itself.
            Self::Regex(..) => {}
        }
    }

    fn matches(&self, text: &str, ranges: &mut Ranges) -> bool {
        match self {
            Self::Exact(exact) => **exact == *text,
            Self::Prefix(prefix) => {
                let rest = beneath(prefix, text);
                ranges.extend(rest.map(|rest| text.len() - rest.len()..text.len()));
                rest.is_some()
            }
            Self::FileName(glob) => {
                let start = text.rfind('/').map_or(0, |slash| slash + 1);
                start < text.len() && glob.matches(text, start..text.len(), ranges)
            }
            Self::Segments(globs, end) => match_segments(globs, *end, text, ranges),
            Self::Regex(expression, _) => expression.matches(text, ranges),
        }
    }
}

/// Returns what is beneath a path, if a text is this path or beneath it.
fn beneath<'t>(path: &str, text: &'t str) -> Option<&'t str> {
    let rest = text.strip_prefix(path)?;
    // Only at a segment boundary: `/app/*` does not match `/apple`.
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

fn parse_kind(text: &str, case: CaseSensitivity, names: &mut Vec<Box<str>>) -> Result<PatternKind, ValueError> {
    foreign::check_pattern(text)?;
    check_path_characters(text)?;
    if !text.starts_with(['/', '*']) {
        return Err(ValueError::new(
            "a pattern that matches no path",
            format!("paths start with a slash: \"/{}\"", text.trim_start_matches("./")),
        ));
    }
    check_segments(text)?;
    let Some(path) = text.strip_prefix('/') else {
        // A single star matches every path, as `/*` does.
        return if text == "*" {
            names.push("".into());
            Ok(PatternKind::Prefix("".into()))
        } else {
            Ok(PatternKind::FileName(Glob::parse(text, Braces::Wildcard, names)?))
        };
    };
    let mut segments: Vec<&str> = path.split('/').collect();
    let mut last_name = None;
    let end = match segments.last() {
        Some(&("*" | "**")) => PatternEnd::Anything,
        Some(&"") => PatternEnd::Slash,
        Some(last) => match rest_name(last) {
            Some(name) => {
                last_name = Some(name);
                PatternEnd::Anything
            }
            None => PatternEnd::Nothing,
        },
        None => PatternEnd::Nothing,
    };
    if end != PatternEnd::Nothing {
        segments.pop();
    }
    let kind = parse_segments(text, &segments, (end, case), names)?;
    if end == PatternEnd::Anything {
        match last_name {
            Some(name) => glob::add_name(name, names)?,
            None => names.push("".into()),
        }
        if names.len() > WILDCARDS_MAX {
            return Err(ValueError::new("too many wildcards", format!("a pattern has at most {WILDCARDS_MAX}")));
        }
    }
    Ok(kind)
}

/// Returns the name of a segment `{name...}`.
fn rest_name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix("...}").filter(|name| glob::is_name(name))
}

fn parse_segments(
    text: &str,
    segments: &[&str],
    (end, case): (PatternEnd, CaseSensitivity),
    names: &mut Vec<Box<str>>,
) -> Result<PatternKind, ValueError> {
    if let Some(segment) = segments.iter().find(|segment| segment.contains("...}")) {
        let what = format!("`{segment}` is not the last segment alone");
        return Err(ValueError::new(what, "{name...} is the rest of the path, so it stands at the end after a slash"));
    }
    if segments.contains(&"**") {
        let expression = to_expression(segments, end, names)?;
        let compiled = RegularExpression::compile(&expression, case)?;
        return Ok(PatternKind::Regex(compiled, RegexSource::Segments(end)));
    }
    if let Some(segment) = segments.iter().find(|segment| segment.contains("**")) {
        let what = format!("`**` within the segment `{segment}`");
        return Err(ValueError::new(what, "`**` stands for whole segments, as in \"/**/*.js\"; use `*` in a segment"));
    }
    let before = names.len();
    let globs = segments.iter().map(|segment| Glob::parse(segment, Braces::Wildcard, names));
    let globs: Box<[Glob]> = globs.collect::<Result<_, _>>()?;
    let is_literal = names.len() == before;
    Ok(match end {
        PatternEnd::Nothing | PatternEnd::Slash if is_literal => PatternKind::Exact(text.into()),
        PatternEnd::Anything if is_literal => {
            let path: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
            PatternKind::Prefix(path.into())
        }
        _ => PatternKind::Segments(globs, end),
    })
}

/// Writes a pattern with `**` as a regular expression, which finds a match in linear time.
fn to_expression(segments: &[&str], end: PatternEnd, names: &mut Vec<Box<str>>) -> Result<String, ValueError> {
    let mut expression = String::from("^");
    for segment in segments {
        if *segment == "**" {
            names.push("".into());
            expression.push_str("(?:/(.*?))?");
            continue;
        }
        if segment.contains("**") {
            let what = format!("`**` within the segment `{segment}`");
            return Err(ValueError::new(what, "`**` stands for whole segments; use `*` in a segment"));
        }
        // Checks the segment and collects its names.
        Glob::parse(segment, Braces::Wildcard, names)?;
        expression.push('/');
        let mut rest = *segment;
        while !rest.is_empty() {
            let literal = rest.find(['*', '{']).unwrap_or(rest.len());
            expression.push_str(&regular_expression::escape(&rest[..literal]));
            rest = &rest[literal..];
            if let Some(behind) = rest.strip_prefix('*') {
                expression.push_str("([^/]*)");
                rest = behind;
            } else if !rest.is_empty() {
                expression.push_str("([^/]+)");
                rest = glob::read_name(rest)?.1;
            }
        }
    }
    if names.len() > WILDCARDS_MAX {
        return Err(ValueError::new("too many wildcards", format!("a pattern has at most {WILDCARDS_MAX}")));
    }
    expression.push_str(match end {
        PatternEnd::Nothing => "$",
        PatternEnd::Slash => "/$",
        PatternEnd::Anything => "(?:/(.*))?$",
    });
    Ok(expression)
}

/// Refuses segments that no decoded path contains, because the pattern would never match.
fn check_segments(text: &str) -> Result<(), ValueError> {
    if let Some(rest) = text.strip_prefix("**") {
        let instead = format!("write \"/**/{}\"", rest.trim_start_matches('/'));
        return Err(ValueError::new("a pattern that starts with `**`", instead));
    }
    if text.len() > 1 && text.starts_with('*') && text.contains('/') {
        let instead = format!("a file name pattern has no slash, and a path pattern starts with one: \"/{text}\"");
        return Err(ValueError::new("a pattern that starts with `*` and has a slash", instead));
    }
    let is_encoded = |bytes: &[u8]| bytes[0] == b'%' && bytes[1..].iter().all(u8::is_ascii_hexdigit);
    if text.as_bytes().windows(3).any(is_encoded) {
        let instead = "write the character itself; patterns are compared with decoded paths";
        return Err(ValueError::new("a pattern with percent-encoding", instead));
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
        f.write_str(&self.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.case == other.case
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.case.hash(state);
    }
}

fn match_segments(globs: &[Glob], end: PatternEnd, text: &str, ranges: &mut Ranges) -> bool {
    // The start of the rest of the path, which begins with a slash.
    let mut at = 0;
    for glob in globs {
        let Some(from) = text[at..].strip_prefix('/') else { return false };
        let len = from.find('/').unwrap_or(from.len());
        if len == 0 || !glob.matches(text, at + 1..at + 1 + len, ranges) {
            return false;
        }
        at += 1 + len;
    }
    match end {
        PatternEnd::Nothing => at == text.len(),
        PatternEnd::Slash => &text[at..] == "/",
        PatternEnd::Anything => {
            ranges.push((at + 1).min(text.len())..text.len());
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(pattern: &str, raw: &str) -> Option<Vec<String>> {
        let path = SafePath::decode(raw.as_bytes()).unwrap_or_else(|reject| panic!("{raw}: {reject}"));
        let (pattern, text) = (Pattern::parse(pattern).unwrap(), absolute_path(&path));
        let captures = pattern.matches(&text)?;
        assert_eq!(captures.len(), pattern.wildcards(), "every wildcard has captured something");
        Some((0..pattern.wildcards()).map(|number| captures.get(number).to_owned()).collect())
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
            ("/a/**", "/a", Some(&[""])),
            ("/a/**", "/a/b/c", Some(&["b/c"])),
            ("/a/{rest...}", "/a/b/c", Some(&["b/c"])),
            ("/{id}", "/a", Some(&["a"])),
            ("/{id}", "/", None),
            ("/v{n}/x", "/v/x", None),
            ("/v{n}/x", "/v12/x", Some(&["12"])),
            ("/**/c", "/c", Some(&[""])),
            ("/**/c", "/a/b/c", Some(&["a/b"])),
            ("/**/c", "/a/bc", None),
            ("/a/**/x*.js", "/a/b/c/x1.js", Some(&["b/c", "1"])),
            ("/**/node_modules/*", "/a/node_modules/b/c", Some(&["a", "b/c"])),
            ("/**/node_modules/*", "/node_modules", Some(&["", ""])),
            ("/**/a.b", "/axb", None),
            ("regex:^/p([0-9]+)$", "/p12", Some(&["12"])),
            ("regex:^/p([0-9]+)$", "/p12/", None),
            ("regex:admin", "/x/admin/y", Some(&[])),
        ] {
            let expected = expected.map(|parts| parts.iter().map(|&part| part.to_owned()).collect());
            assert_eq!(captured(pattern, raw), expected, "{pattern} {raw}");
        }
    }

    #[test]
    fn case_can_be_ignored() {
        for (pattern, raw) in [
            ("*.sql", "/DB.SQL"),
            ("/Admin", "/aDMIN"),
            ("/Admin/*", "/ADMIN/x"),
            ("/{id}/Edit", "/A/EDIT"),
            ("/**/Edit", "/a/b/eDIT"),
            ("regex:^/EDIT$", "/edit"),
        ] {
            let path = absolute_path(&SafePath::decode(raw.as_bytes()).unwrap());
            let pattern = Pattern::parse(pattern).unwrap();
            assert!(pattern.matches(&path).is_none(), "{pattern} {raw}");
            assert!(pattern.ignoring_case().matches(&path).is_some(), "{pattern} {raw}");
        }
        let pattern = Pattern::parse("/A/{id}").unwrap().ignoring_case();
        assert_eq!(pattern.matches("/a/Xy").unwrap().named("id"), "Xy", "captures keep their case");
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
            "//admin/x",
            "/admin//x",
            "///admin",
        ] {
            assert!(captured("/admin/*", raw).is_some(), "{raw}");
        }
        // These are other names, as they are for files.
        for raw in [
            "/ADMIN/x",
            "/admin;/x",
            "/admin./x",
            "/admin%20/x",
            "/%2561dmin/x",
            "/..admin/x",
            "/..%5cadmin",
            "/admin%2Fx",
            "/%c0%ae/admin/x",
        ] {
            assert!(captured("/admin/*", raw).is_none(), "{raw}");
        }
        // These are not valid paths.
        for raw in ["/x%2F..%2Fadmin", "/..%2Fadmin", "/admin%00"] {
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
            ("/a**b", "`**` within the segment `a**b`"),
            ("/{a}{b}", "two adjacent wildcards"),
            ("/{a}/{a}", "`{a}` is repeated"),
            ("/{host}", "`{host}` is a value of the request"),
            ("/{a...}/b", "`{a...}` is not the last segment alone"),
            ("/{a", "a `{` without a `}`"),
            ("**/x", "a pattern that starts with `**`"),
            ("/*/*/*/*/*/*/*/*/*", "too many wildcards"),
            ("regex:(", "this is not a regular expression: unclosed group"),
        ] {
            assert_eq!(Pattern::parse(text).unwrap_err().message, error, "{text}");
        }
        assert!(Pattern::parse("/100%").is_ok());
    }
}
