//! Which paths a rule is about.
//!
//! A pattern is held against the decoded path, as [`selvedge::proto::path::SafePath`] makes
//! it, so that no way to write a path gets around a rule. Octets are compared as they are: case counts, and
//! `;` or a dot at the end are part of a name, as they are for files.
//!
//! | pattern | what it is about |
//! |---|---|
//! | `/a/b` | this path alone, not `/a/b/` |
//! | `/a/*` | everything beneath `/a`, `/a/` and `/a` itself: a rule for a folder has no gap |
//! | `/a/*/c`, `/a/x*.png` | a star within the path stands for octets of one segment |
//! | `*.css` | the last segment, in whichever folder |
//!
//! Every star captures what it stood for.

use selvedge::proto::path::SafePath;
use std::fmt;

/// Stars of one pattern.
pub(crate) const STARS_MAX: usize = 8;

/// Which paths a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    kind: Kind,
    stars: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// One path.
    Exact(Box<str>),
    /// What is beneath a path, and it itself. Without the slash at its end, so empty for `/*`.
    Beneath(Box<str>),
    /// Segments with stars in them, and what may follow.
    Segments(Box<[Box<str>]>, End),
    /// The last segment of any path.
    Name(Box<str>),
}

/// What follows the last segment of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Nothing,
    Slash,
    Anything,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternError {
    /// It begins neither with a slash nor is it the pattern of a name.
    NoSlash,
    /// It has an empty segment, or one of dots alone, which no decoded path has.
    NoSegment,
    /// It has a percent sign with two digits. Patterns are written as the decoded path is.
    Encoded,
    /// It has `?` or `#`, which are no part of a path, or an octet that no path has.
    Octet,
    /// It has two stars in a row.
    Stars,
    /// It has more than [`STARS_MAX`] stars.
    TooManyStars,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSlash => "a path begins with a slash; a pattern without any slash, as *.css, is about names",
            Self::NoSegment => "a path has no empty segment and none that is . or ..",
            Self::Encoded => "paths are compared after decoding: write the character and not its percent-encoding",
            Self::Octet => "a path has no ?, #, backslash or control octet; a query has a matcher of its own",
            Self::Stars => "two stars in a row mean no more than one",
            Self::TooManyStars => "a path has at most eight stars",
        })
    }
}

impl std::error::Error for PatternError {}

/// What the stars of a pattern stood for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Captures<'p> {
    parts: [&'p str; STARS_MAX],
    count: usize,
}

impl<'p> Captures<'p> {
    /// What the star of this number stood for, the first being 0.
    pub(super) fn get(&self, number: usize) -> &'p str {
        self.parts[..self.count].get(number).copied().unwrap_or_default()
    }

    /// One star, which stood for this.
    pub(super) fn whole(part: &'p str) -> Self {
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

/// A decoded path as patterns see it: with the slash it begins with, and one behind the name
/// of a directory.
pub(super) fn text_of(path: &SafePath) -> String {
    let mut text = String::with_capacity(path.as_str().len() + 2);
    text.push('/');
    text.push_str(path.as_str());
    if path.names_directory() && !path.as_str().is_empty() {
        text.push('/');
    }
    text
}

impl Pattern {
    /// `/*`.
    pub(crate) fn everything() -> Self {
        Self { kind: Kind::Beneath(Box::from("")), stars: 1 }
    }

    /// Reads a pattern.
    pub(crate) fn parse(text: &str) -> Result<Self, PatternError> {
        let stars = text.bytes().filter(|&b| b == b'*').count();
        judge_octets(text, stars)?;
        let Some(path) = text.strip_prefix('/') else {
            return match stars {
                1.. if !text.contains('/') => Ok(Self { kind: Kind::Name(text.into()), stars }),
                _ => Err(PatternError::NoSlash),
            };
        };
        let mut segments: Vec<&str> = path.split('/').collect();
        let end = match segments.last() {
            Some(&"*") => End::Anything,
            Some(&"") => End::Slash,
            _ => End::Nothing,
        };
        if end != End::Nothing {
            segments.pop();
        }
        if segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
            return Err(PatternError::NoSegment);
        }
        let kind = match (end, stars) {
            (_, 0) => Kind::Exact(text.into()),
            (End::Anything, 1) => Kind::Beneath(text.strip_suffix("/*").unwrap_or_default().into()),
            _ => Kind::Segments(segments.into_iter().map(Box::from).collect(), end),
        };
        Ok(Self { kind, stars })
    }

    /// How many stars it has.
    pub(super) fn stars(&self) -> usize {
        self.stars
    }

    /// Whether its stars stand for all that it leaves open of a path.
    pub(super) fn captures_all(&self) -> bool {
        !matches!(self.kind, Kind::Name(_))
    }

    /// Whether a decoded path is one that it is about; what its stars stand for.
    pub(super) fn matches<'p>(&self, text: &'p str) -> Option<Captures<'p>> {
        debug_assert!(text.starts_with('/'), "see text_of");
        let mut captures = Captures::default();
        match &self.kind {
            Kind::Exact(exact) => (**exact == *text).then_some(captures),
            Kind::Beneath(top) => {
                let rest = text.strip_prefix(&**top)?;
                // The border of a segment: `/app/*` is not about `/apple`.
                let beneath = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
                captures.push(beneath);
                Some(captures)
            }
            Kind::Name(name) => {
                let last = text.rsplit('/').next().filter(|last| !last.is_empty())?;
                match_segment(name, last, &mut captures).then_some(captures)
            }
            Kind::Segments(segments, end) => match_segments(segments, *end, text, &mut captures).then_some(captures),
        }
    }
}

fn judge_octets(text: &str, stars: usize) -> Result<(), PatternError> {
    let bytes = text.as_bytes();
    let is_encoded = |window: &[u8]| matches!(window, [b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    if bytes.windows(3).any(is_encoded) {
        return Err(PatternError::Encoded);
    }
    if bytes.iter().any(|b| b.is_ascii_control() || matches!(b, b'?' | b'#' | b'\\')) {
        return Err(PatternError::Octet);
    }
    if text.contains("**") {
        return Err(PatternError::Stars);
    }
    if stars > STARS_MAX { Err(PatternError::TooManyStars) } else { Ok(()) }
}

fn match_segments<'p>(segments: &[Box<str>], end: End, text: &'p str, captures: &mut Captures<'p>) -> bool {
    // What is left of the path, from the slash before its next segment on.
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
        End::Nothing => rest.is_empty(),
        End::Slash => rest == "/",
        End::Anything => {
            captures.push(rest.strip_prefix('/').unwrap_or(rest));
            true
        }
    }
}

/// Whether a segment is of this form. Each star but the last stands for as little as it can,
/// so no path makes this go back. A star that is the whole form stands for a whole segment.
fn match_segment<'p>(form: &str, segment: &'p str, captures: &mut Captures<'p>) -> bool {
    let Some((before, mut form)) = form.split_once('*') else { return form == segment };
    let Some(mut rest) = segment.strip_prefix(before) else { return false };
    while let Some((literal, behind)) = form.split_once('*') {
        let Some(at) = rest.find(literal) else { return false };
        captures.push(&rest[..at]);
        rest = &rest[at + literal.len()..];
        form = behind;
    }
    match rest.strip_suffix(form) {
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
        let (pattern, text) = (Pattern::parse(pattern).unwrap(), text_of(&path));
        let captures = pattern.matches(&text)?;
        assert_eq!(captures.count, pattern.stars(), "every star has captured something");
        Some((0..captures.count).map(|number| captures.get(number).to_owned()).collect())
    }

    #[test]
    fn paths_and_their_patterns() {
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
    fn no_way_to_write_a_path_gets_around_a_pattern() {
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
        // Other names, as they are for files, too.
        for raw in ["/ADMIN/x", "/admin;/x", "/admin./x", "/admin%20/x", "/%2561dmin/x", "/..admin/x"] {
            assert!(captured("/admin/*", raw).is_none(), "{raw}");
        }
        // What is no path has no pattern.
        for raw in ["//admin/x", "/admin//x", "/x%2F..%2Fadmin", "/admin%00", "/..%5cadmin", "/%c0%ae"] {
            assert!(SafePath::decode(raw.as_bytes()).is_err(), "{raw}");
        }
    }

    #[test]
    fn texts_that_are_no_pattern() {
        for (text, error) in [
            ("", PatternError::NoSlash),
            ("a", PatternError::NoSlash),
            ("a/*", PatternError::NoSlash),
            ("//a", PatternError::NoSegment),
            ("/a//", PatternError::NoSegment),
            ("/a/../b", PatternError::NoSegment),
            ("/%61", PatternError::Encoded),
            ("/a?b", PatternError::Octet),
            ("/a#b", PatternError::Octet),
            ("/a\\b", PatternError::Octet),
            ("/a/**", PatternError::Stars),
            ("/*/*/*/*/*/*/*/*/*", PatternError::TooManyStars),
        ] {
            assert_eq!(Pattern::parse(text), Err(error), "{text}");
        }
        assert!(Pattern::parse("/100%").is_ok());
    }
}
