//! Converts the path of a target into the relative path of a file.
//!
//! Percent-decoding and the removal of dot-segments (RFC 3986 §2.1, §5.2.4) happen only here.
//!
//! Invariant: [`SafePath::decode`] is the only constructor from a peer's bytes, so code that takes
//! a [`SafePath`] needs no further check. Each refused kind of path is a variant of [`PathReject`].

use crate::status::StatusCode;
use core::fmt;

/// A decoded path below a root: segments joined by `/`, without a leading slash.
///
/// It is UTF-8. No segment is empty, `.` or `..`. No byte is a control character or a backslash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SafePath {
    text: String,
    names_directory: bool,
}

/// The reason why a path is refused. Each has one status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReject {
    /// A `%` is not followed by two hexadecimal digits: 400.
    PercentEncodingInvalid,
    /// The path has `%00` or another encoded control character: 400.
    ControlCharacter,
    /// The path has an encoded backslash: 400, since some systems treat it as a slash.
    Backslash,
    /// `..` leads above the root: 400. It is never silently clamped to the root.
    AboveRoot,
    /// The decoded path is not UTF-8, for example an overlong form: 400.
    NotUtf8,
    /// The path has `%2F`: 404. It is data within a segment, and no file name has a slash.
    EncodedSlash,
    /// The path has `//`: 404. An empty segment is part of a path (RFC 3986 §3.3), but no file has
    /// an empty name.
    EmptySegment,
}

impl PathReject {
    /// Returns the status code of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::EncodedSlash | Self::EmptySegment => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Returns one sentence that states the reason.
    pub const fn message(self) -> &'static str {
        match self {
            Self::PercentEncodingInvalid => "the path has a percent sign without two hexadecimal digits",
            Self::ControlCharacter => "the path has a control character",
            Self::Backslash => "the path has a backslash",
            Self::AboveRoot => "the path leads above the root",
            Self::NotUtf8 => "the path is not UTF-8",
            Self::EncodedSlash => "the path has an encoded slash",
            Self::EmptySegment => "the path has an empty segment",
        }
    }
}

impl fmt::Display for PathReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl SafePath {
    /// Decodes the path of a target, without its query. An empty path is `/` (RFC 9110 §4.2.3).
    ///
    /// # Errors
    /// The first reason to refuse the path.
    pub fn decode(raw: &[u8]) -> Result<Self, PathReject> {
        let raw = raw.strip_prefix(b"/").unwrap_or(raw);
        let mut decoded: Vec<u8> = Vec::with_capacity(raw.len());
        let mut names_directory = true;
        let mut segments = raw.split(|&b| b == b'/').peekable();
        while let Some(segment) = segments.next() {
            let last = segments.peek().is_none();
            let start = decoded.len();
            if start > 0 {
                decoded.push(b'/');
            }
            let name_start = decoded.len();
            decode_segment(segment, None, &mut decoded)?;
            match &decoded[name_start..] {
                b"" if last => decoded.truncate(start),
                b"" => return Err(PathReject::EmptySegment),
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
        let text = String::from_utf8(decoded).map_err(|_| PathReject::NotUtf8)?;
        Ok(Self { text, names_directory })
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

/// The character that stands for `%2F` in an [`OpaquePath`]. Nothing else becomes it, since control characters are refused.
pub const ENCODED_SLASH: char = '\u{1f}';

/// A decoded path with encoded slashes or empty segments. It names no file, but applications use such paths.
///
/// Each segment is decoded by itself, so `%2F` stays within its segment: it becomes [`ENCODED_SLASH`]. Dot-segments are
/// removed. No part of a segment between encoded slashes is `.` or `..`, and a path with empty segments has no
/// dot-segments, since applications remove them in different ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpaquePath(String);

impl OpaquePath {
    /// Decodes the path of a target, without its query.
    ///
    /// # Errors
    /// The first reason to refuse the path.
    pub fn decode(raw: &[u8]) -> Result<Self, PathReject> {
        let raw = raw.strip_prefix(b"/").unwrap_or(raw);
        let (mut kept, mut has_dots, mut has_empty): (Vec<Vec<u8>>, _, _) = (Vec::new(), false, false);
        let mut segments = raw.split(|&b| b == b'/').peekable();
        while let Some(segment) = segments.next() {
            let mut decoded = Vec::with_capacity(segment.len());
            decode_segment(segment, Some(ENCODED_SLASH as u8), &mut decoded)?;
            let mut parts = decoded.split(|&b| b == ENCODED_SLASH as u8);
            match &decoded[..] {
                b"." => has_dots = true,
                b".." => {
                    has_dots = true;
                    kept.pop().ok_or(PathReject::AboveRoot)?;
                }
                _ if parts.any(|part| matches!(part, b"." | b"..")) => return Err(PathReject::EncodedSlash),
                _ => {
                    has_empty |= decoded.is_empty() && segments.peek().is_some();
                    kept.push(decoded);
                    continue;
                }
            }
            if segments.peek().is_none() {
                kept.push(Vec::new());
            }
        }
        if has_dots && has_empty {
            return Err(PathReject::EmptySegment);
        }
        let text = kept.iter().fold(Vec::new(), |text, segment| [&text, &b"/"[..], segment].concat());
        String::from_utf8(text).map(Self).map_err(|_| PathReject::NotUtf8)
    }

    /// Returns the path with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the paths that an application may read this one as: with several slashes as one, with encoded slashes as
    /// slashes, and with both.
    pub fn readings(&self) -> [String; 3] {
        let merged = |text: &str| {
            let mut merged = String::with_capacity(text.len());
            for char in text.chars() {
                if char != '/' || !merged.ends_with('/') {
                    merged.push(char);
                }
            }
            merged
        };
        let decoded = self.0.replace(ENCODED_SLASH, "/");
        [merged(&self.0), merged(&decoded), decoded]
    }
}

/// Decodes a segment. `encoded_slash` stands for `%2F`; without it, an encoded slash is refused.
fn decode_segment(segment: &[u8], encoded_slash: Option<u8>, out: &mut Vec<u8>) -> Result<(), PathReject> {
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
            b'\\' => return Err(PathReject::Backslash),
            b'/' => out.push(encoded_slash.ok_or(PathReject::EncodedSlash)?),
            _ => out.push(decoded),
        }
    }
    Ok(())
}

fn hex_value(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).map(|digit| digit as u8)
}

/// Percent-encodes one segment of a path (RFC 3986 §3.3). A colon is encoded too, so that the start
/// of a relative reference cannot be parsed as a scheme. [`ENCODED_SLASH`] becomes `%2F`.
pub fn encode_segment(segment: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in segment.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=@".contains(&byte) {
            out.push(char::from(byte));
        } else if char::from(byte) == ENCODED_SLASH {
            out.push_str("%2F");
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
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
        check("//x", Err(PathReject::EmptySegment));
        check("//", Err(PathReject::EmptySegment));
        check("/a//b", Err(PathReject::EmptySegment));
        check("/a%2Fb", Err(PathReject::EncodedSlash));
        check("/a%5cb", Err(PathReject::Backslash));
        check("/a%00", Err(PathReject::ControlCharacter));
        check("/a%0d%0a", Err(PathReject::ControlCharacter));
        check("/a%2", Err(PathReject::PercentEncodingInvalid));
        check("/%zz", Err(PathReject::PercentEncodingInvalid));
        check("/%", Err(PathReject::PercentEncodingInvalid));
        check("/%c0%ae", Err(PathReject::NotUtf8));
    }

    #[test]
    fn encoded_slashes_stay_in_their_segment() {
        for (raw, expected) in [
            ("/a%2Fb", Ok("/a\u{1f}b")),
            ("/a%2fb/%C3%A9/", Ok("/a\u{1f}b/é/")),
            ("//a", Ok("//a")),
            ("/a//b//", Ok("/a//b//")),
            ("//", Ok("//")),
            ("/a%252Fb", Ok("/a%2Fb")),
            ("/a%2Fb/../c", Ok("/c")),
            ("/a%2Fb/./", Ok("/a\u{1f}b/")),
            ("/a%2Fb/.", Ok("/a\u{1f}b/")),
            ("/a/..%2Fadmin", Err(PathReject::EncodedSlash)),
            ("/a/%2e%2e%2fadmin", Err(PathReject::EncodedSlash)),
            ("/a%2F..", Err(PathReject::EncodedSlash)),
            ("/a%2F.%2Fb", Err(PathReject::EncodedSlash)),
            ("/a//../b", Err(PathReject::EmptySegment)),
            ("//./b", Err(PathReject::EmptySegment)),
            ("/a%2Fb/../../c", Err(PathReject::AboveRoot)),
            ("/a%2F%5cb", Err(PathReject::Backslash)),
            ("/a%2F%1f", Err(PathReject::ControlCharacter)),
            ("/%2F%ff", Err(PathReject::NotUtf8)),
        ] {
            let path = OpaquePath::decode(raw.as_bytes());
            assert_eq!(path.as_ref().map(OpaquePath::as_str).map_err(|e| *e), expected, "{raw}");
        }
        let mut encoded = String::new();
        encode_segment("a\u{1f}b", &mut encoded);
        assert_eq!(encoded, "a%2Fb");
    }

    #[test]
    fn readings_are_those_of_applications() {
        let readings = |raw: &str| OpaquePath::decode(raw.as_bytes()).unwrap().readings();
        assert_eq!(readings("/admin%2Fx"), ["/admin\u{1f}x", "/admin/x", "/admin/x"]);
        assert_eq!(readings("//admin"), ["/admin", "/admin", "//admin"]);
        assert_eq!(readings("/%2Fa//b"), ["/\u{1f}a/b", "/a/b", "//a//b"]);
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
