//! Converts the path of a target into the relative path of a file.
//!
//! Percent-decoding and the removal of dot-segments (RFC 3986 §2.1, §5.2.4) happen only here.
//!
//! Invariant: [`SafePath::decode`] and [`SafePath::decode_with`] are the only constructors from a peer's bytes, so code
//! that takes a [`SafePath`] needs no further check. Each refused kind of path is a variant of [`PathReject`].
//!
//! Names of files are bytes, and a path is text that patterns match. A byte that is not part of UTF-8, and a slash that
//! was percent-encoded within a segment, are held as one character of a private range (`text`). The characters of that
//! range are held byte by byte themselves, so two paths never have one text.

mod readings;
mod text;

use crate::status::StatusCode;
use core::fmt;
pub use readings::{decode_slashes, has_several_readings, readings};
use std::borrow::Cow;
use text::{HELD_SLASH, text_of};
pub use text::{encode_segment, encode_text, file_path, path_bytes, text_of_name};

/// A decoded path below a root: segments joined by `/`, without a leading slash.
///
/// No segment is empty, `.` or `..`. No byte is a control character. A byte that is not UTF-8 and an encoded slash are
/// held as private characters; see [`path_bytes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SafePath {
    text: String,
    names_directory: bool,
}

/// The meaning of `%2F` in a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodedSlash {
    /// It is data within a segment (RFC 3986 §2.2). No file has such a name.
    #[default]
    Data,
    /// It separates segments, as `/` does.
    Separator,
}

/// The reason why a path is refused. Each has one status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReject {
    /// A `%` is not followed by two hexadecimal digits: 400.
    PercentEncodingInvalid,
    /// The path has `%00` or another encoded control character: 400.
    ControlCharacter,
    /// `..` leads above the root: 400. It is never silently clamped to the root.
    AboveRoot,
    /// A segment has `.` or `..` beside an encoded slash: 400, because an application that decodes the slash would read
    /// another path than the one that rules were matched with.
    EncodedDotSegment,
}

impl PathReject {
    /// Returns the status code of the response.
    pub const fn status(self) -> StatusCode {
        StatusCode::BAD_REQUEST
    }

    /// Returns one sentence that states the reason.
    pub const fn message(self) -> &'static str {
        match self {
            Self::PercentEncodingInvalid => "the path has a percent sign without two hexadecimal digits",
            Self::ControlCharacter => "the path has a control character",
            Self::AboveRoot => "the path leads above the root",
            Self::EncodedDotSegment => "the path has a dot-segment beside an encoded slash",
        }
    }
}

impl fmt::Display for PathReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl SafePath {
    /// Decodes the path of a target, without its query. An empty path is `/` (RFC 9110 §4.2.3). An encoded slash is data.
    ///
    /// # Errors
    /// The first reason to refuse the path.
    pub fn decode(raw: &[u8]) -> Result<Self, PathReject> {
        Self::decode_with(raw, EncodedSlash::Data)
    }

    /// Decodes the path of a target, and treats an encoded slash as `slash` states. Empty segments are dropped before
    /// dot-segments are removed, as file systems do.
    ///
    /// # Errors
    /// The first reason to refuse the path.
    pub fn decode_with(raw: &[u8], slash: EncodedSlash) -> Result<Self, PathReject> {
        let separated = match slash {
            EncodedSlash::Data => Cow::Borrowed(raw),
            EncodedSlash::Separator => decode_slashes(raw),
        };
        let mut decoded: Vec<u8> = Vec::with_capacity(raw.len());
        let mut names_directory = true;
        let mut segments = separated.split(|&b| b == b'/').peekable();
        while let Some(segment) = segments.next() {
            let last = segments.peek().is_none();
            let start = decoded.len();
            if start > 0 {
                decoded.push(b'/');
            }
            let name_start = decoded.len();
            decode_segment(segment, &mut decoded)?;
            match &decoded[name_start..] {
                b"" if last => decoded.truncate(start),
                // Does not change whether the path names a directory: a segment or the end follows.
                b"" => {
                    decoded.truncate(start);
                    continue;
                }
                b"." => decoded.truncate(start),
                b".." if start == 0 => return Err(PathReject::AboveRoot),
                b".." => {
                    let parent = decoded[..start].iter().rposition(|&b| b == b'/').unwrap_or(0);
                    decoded.truncate(parent);
                }
                _ => {
                    names_directory = false;
                    continue;
                }
            }
            names_directory = true;
        }
        Ok(Self { text: text_of(decoded), names_directory })
    }

    /// Returns the path without leading and trailing slash; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the path ends in a slash or a dot-segment and therefore names a directory.
    pub fn names_directory(&self) -> bool {
        self.names_directory
    }

    /// Returns the segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.text.split('/').filter(|segment| !segment.is_empty())
    }

    /// Returns the last segment; empty for the root.
    pub fn file_name(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or("")
    }

    /// Returns the path as the bytes of a file's path. `None` if a segment has a slash, which no file name has.
    pub fn file_path(&self) -> Option<Cow<'_, [u8]>> {
        file_path(&self.text)
    }

    /// Returns this path as that of a directory.
    #[must_use]
    pub fn as_directory(&self) -> Self {
        Self { text: self.text.clone(), names_directory: true }
    }

    /// Returns this path without the slash at its end. The root stays a directory.
    #[must_use]
    pub fn as_file(&self) -> Self {
        Self { text: self.text.clone(), names_directory: self.text.is_empty() }
    }

    /// Returns the directory of this path without its last segment.
    #[must_use]
    pub fn parent(&self) -> Self {
        let text = self.text.rsplit_once('/').map_or("", |(parent, _)| parent);
        Self { text: text.to_owned(), names_directory: true }
    }

    /// Returns this path without a suffix of its last segment. `None` if nothing or another end would remain.
    pub fn without_suffix(&self, suffix: &str) -> Option<Self> {
        let name = self.file_name().strip_suffix(suffix).filter(|name| !matches!(*name, "" | "." | ".."))?;
        let end = self.text.len() - self.file_name().len() + name.len();
        Some(Self { text: self.text[..end].to_owned(), names_directory: false })
    }

    /// Returns this path with one more segment. The caller must not pass a peer's bytes.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        debug_assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..");
        let text = if self.text.is_empty() { name.to_owned() } else { format!("{}/{name}", self.text) };
        Self { text, names_directory: false }
    }

    /// Returns the path of the first `count` segments, and the rest with its leading and trailing slash. The rest is empty
    /// if the path ends there.
    pub fn split(&self, count: usize) -> (Self, String) {
        let end = self.text.match_indices('/').nth(count.saturating_sub(1)).map_or(self.text.len(), |(at, _)| at);
        let end = if count == 0 { 0 } else { end };
        let (first, rest) = self.text.split_at(end);
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        let slash = if self.names_directory { "/" } else { "" };
        let rest = if rest.is_empty() { slash.to_owned() } else { format!("/{rest}{slash}") };
        (Self { text: first.to_owned(), names_directory: first.is_empty() }, rest)
    }

    /// Returns this path with a suffix, such as `.gz`, at its last segment. The caller must not pass
    /// a peer's bytes.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        debug_assert!(!self.text.is_empty() && !suffix.contains('/'));
        Self { text: format!("{}{suffix}", self.text), names_directory: false }
    }

    /// Returns the path of a target: percent-encoded, with exactly one leading slash.
    ///
    /// Two leading slashes would begin an authority, so a redirect could lead to another host.
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 2);
        for segment in self.segments() {
            out.push('/');
            encode_segment(segment, &mut out);
        }
        if self.names_directory || out.is_empty() {
            out.push('/');
        }
        out
    }
}

fn decode_segment(segment: &[u8], out: &mut Vec<u8>) -> Result<(), PathReject> {
    let start = out.len();
    let mut has_slash = false;
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        let decoded = if byte == b'%' {
            let (high, low) = (bytes.next().and_then(hex_value), bytes.next().and_then(hex_value));
            let (Some(high), Some(low)) = (high, low) else { return Err(PathReject::PercentEncodingInvalid) };
            high << 4 | low
        } else {
            byte
        };
        match decoded {
            0..=0x1f | 0x7f => return Err(PathReject::ControlCharacter),
            b'/' => {
                has_slash = true;
                out.push(HELD_SLASH);
            }
            _ => out.push(decoded),
        }
    }
    let is_dots = |part: &[u8]| matches!(part, b"." | b"..");
    if has_slash && out[start..].split(|&b| b == HELD_SLASH).any(is_dots) {
        return Err(PathReject::EncodedDotSegment);
    }
    Ok(())
}

fn hex_value(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, expected: Result<(&str, bool), PathReject>) {
        let got = SafePath::decode(raw.as_bytes());
        let got = got.as_ref().map(|p| (p.as_str(), p.names_directory())).map_err(|e| *e);
        assert_eq!(got, expected, "{raw}");
    }

    #[test]
    fn decoded_and_refused_paths() {
        check("", Ok(("", true)));
        check("/", Ok(("", true)));
        check("/a", Ok(("a", false)));
        check("/a/", Ok(("a", true)));
        check("/dir/./sub/../../hello.txt", Ok(("hello.txt", false)));
        check("/a/..", Ok(("", true)));
        check("/a/b/..", Ok(("a", true)));
        check("/a/.", Ok(("a", true)));
        check("/%C3%A9", Ok(("é", false)));
        check("/%2568", Ok(("%68", false)));
        check("/....", Ok(("....", false)));
        check("/..;/x", Ok(("..;/x", false)));
        check("/..", Err(PathReject::AboveRoot));
        check("/a/../..", Err(PathReject::AboveRoot));
        check("/%2e%2E/x", Err(PathReject::AboveRoot));
        check("//x", Ok(("x", false)));
        check("//", Ok(("", true)));
        check("/a//b", Ok(("a/b", false)));
        check("/a//", Ok(("a", true)));
        check("/a//../b", Ok(("b", false)));
        check("//..", Err(PathReject::AboveRoot));
        check("/a%2Fb", Ok(("a\u{10ff2f}b", false)));
        check("/a%2F..%2Fb", Err(PathReject::EncodedDotSegment));
        check("/..%2fa", Err(PathReject::EncodedDotSegment));
        check("/a%5cb", Ok(("a\\b", false)));
        check("/a%00", Err(PathReject::ControlCharacter));
        check("/a%0d%0a", Err(PathReject::ControlCharacter));
        check("/a%2", Err(PathReject::PercentEncodingInvalid));
        check("/%zz", Err(PathReject::PercentEncodingInvalid));
        check("/%", Err(PathReject::PercentEncodingInvalid));
        check("/%c0%ae", Ok(("\u{10ffc0}\u{10ffae}", false)));
    }

    #[test]
    fn names_that_are_not_utf8_keep_their_bytes() {
        for (raw, bytes) in [
            (&b"/caf%E9.txt"[..], &b"caf\xe9.txt"[..]),
            (b"/caf\xe9.txt", b"caf\xe9.txt"),
            // The characters of the private range are no other name.
            (b"/%F4%8F%BF%A9", b"\xf4\x8f\xbf\xa9"),
            (b"/%F4%8F%BC%AF", b"\xf4\x8f\xbc\xaf"),
            (b"/%F4%80%80%80", b"\xf4\x80\x80\x80"),
        ] {
            let path = SafePath::decode(raw).unwrap();
            assert_eq!(path.file_path().as_deref(), Some(bytes));
            assert_eq!(SafePath::decode(path.encode().as_bytes()), Ok(path.clone()));
            assert_eq!(text_of_name(bytes), path.as_str());
        }
        assert_eq!(SafePath::decode(b"/a%2fb").unwrap().file_path(), None, "no file name has a slash");
    }

    #[test]
    fn an_encoded_slash_separates_if_this_is_set() {
        for (raw, expected) in [
            ("/@scope%2Fname", Ok("/@scope/name")),
            ("/a%2fb%2F", Ok("/a/b/")),
            ("/a%2F..%2Fb", Ok("/b")),
            ("/..%2Fb", Err(PathReject::AboveRoot)),
            ("/a%252Fb", Ok("/a%252Fb")),
        ] {
            let path = SafePath::decode_with(raw.as_bytes(), EncodedSlash::Separator);
            assert_eq!(path.map(|path| path.encode()), expected.map(str::to_owned), "{raw}");
        }
    }

    #[test]
    fn parts_of_a_path() {
        let path = |raw: &str| SafePath::decode(raw.as_bytes()).unwrap();
        assert_eq!((path("/a/b").parent(), path("/a").parent()), (path("/a/"), path("/")));
        assert_eq!((path("/a").as_directory(), path("/a/").as_file()), (path("/a/"), path("/a")));
        assert_eq!(path("/").as_file(), path("/"));
        assert_eq!(path("/a/b.html").without_suffix(".html"), Some(path("/a/b")));
        for raw in ["/a/.html", "/...html", "/a.htm"] {
            assert_eq!(path(raw).without_suffix(".html"), None, "{raw}");
        }
    }

    #[test]
    fn a_path_is_split_between_segments() {
        for (raw, count, first, rest) in [
            ("/a.php", 1, "a.php", ""),
            ("/a.php/", 1, "a.php", "/"),
            ("/a.php/x", 1, "a.php", "/x"),
            ("/b/a.php/x/y/", 2, "b/a.php", "/x/y/"),
            ("/a/b", 2, "a/b", ""),
            ("/a/b", 9, "a/b", ""),
            ("/a/b", 0, "", "/a/b"),
            ("/", 0, "", "/"),
        ] {
            let (path, info) = SafePath::decode(raw.as_bytes()).unwrap().split(count);
            assert_eq!((path.as_str(), info.as_str()), (first, rest), "{raw} at {count}");
            assert_eq!(path.names_directory(), first.is_empty(), "{raw} at {count}");
        }
    }

    #[test]
    fn encoded_paths_decode_to_the_original() {
        for raw in ["/", "/a%20b/%C3%A9%25/", "/x:y"] {
            let path = SafePath::decode(raw.as_bytes()).unwrap();
            assert_eq!(SafePath::decode(path.encode().as_bytes()).unwrap(), path);
        }
        assert_eq!(SafePath::decode(b"/a%20b/").unwrap().encode(), "/a%20b/");
    }
}
