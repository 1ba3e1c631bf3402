//! From the path of a target to a name that may be opened.
//!
//! Percent-decoding and the removal of dot-segments (RFC 3986 §2.1, §5.2.4) happen here,
//! once. A [`SafePath`] can be made in no other way, so whatever takes one need not ask
//! again. The fate of each doubtful path is a variant of [`PathReject`].

use crate::status::Status;
use core::fmt;

/// A decoded path beneath a root: segments joined by `/`, without a leading slash.
///
/// No segment is empty, `.` or `..`; no octet is NUL, a control or a backslash; all of it
/// is UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SafePath {
    text: String,
    names_directory: bool,
}

/// Why a path names nothing here. Each has one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReject {
    /// A `%` without two hexadecimal digits: 400.
    PercentMalformed,
    /// `%00` or another control octet, encoded: 400.
    ControlOctet,
    /// A backslash, encoded: 400, since some systems take it as a slash.
    Backslash,
    /// `..` above the root: 400, never clamped to the root in silence.
    AboveRoot,
    /// Octets that are no UTF-8, such as overlong forms: 400.
    NotUtf8,
    /// `%2F`: 404. It is data within a segment, and no file name has a slash.
    EncodedSlash,
    /// `//`: 404. An empty segment is another path (RFC 3986 §3.3), and no file has that name.
    EmptySegment,
}

impl PathReject {
    /// The status of the answer.
    pub const fn status(self) -> Status {
        match self {
            Self::EncodedSlash | Self::EmptySegment => Status::NOT_FOUND,
            _ => Status::BAD_REQUEST,
        }
    }

    /// One sentence that names the reason.
    pub const fn text(self) -> &'static str {
        match self {
            Self::PercentMalformed => "the path has a percent sign without two hexadecimal digits",
            Self::ControlOctet => "the path has a control octet",
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
        f.write_str(self.text())
    }
}

impl SafePath {
    /// Decodes the path of a target: what stands before the `?`. An empty path is `/`
    /// (RFC 9110 §4.2.3).
    ///
    /// # Errors
    /// One of [`PathReject`].
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
            let name_at = decoded.len();
            decode_segment(segment, &mut decoded)?;
            match &decoded[name_at..] {
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

    /// The path, without a leading or a trailing slash; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the path ended in a slash or a dot-segment, and so names a directory.
    pub fn names_directory(&self) -> bool {
        self.names_directory
    }

    /// The segments, in order.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.text.split('/').filter(|segment| !segment.is_empty())
    }

    /// The last segment; empty for the root.
    pub fn name(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or("")
    }

    /// This path with one more segment, which is the program's own, never the peer's.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        debug_assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..");
        let text = if self.text.is_empty() { name.to_owned() } else { format!("{}/{name}", self.text) };
        Self { text, names_directory: false }
    }

    /// This path with something after its last segment, which is the program's own, as in `.gz`.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        debug_assert!(!self.text.is_empty() && !suffix.contains('/'));
        Self { text: format!("{}{suffix}", self.text), names_directory: false }
    }

    /// The path as a target writes it: percent-encoded, with one leading slash, so that
    /// it can never be read as another host's.
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
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        let octet = if byte == b'%' {
            let (high, low) = (bytes.next().and_then(hex), bytes.next().and_then(hex));
            let (Some(high), Some(low)) = (high, low) else { return Err(PathReject::PercentMalformed) };
            high << 4 | low
        } else {
            byte
        };
        match octet {
            0..=0x1f | 0x7f => return Err(PathReject::ControlOctet),
            b'\\' => return Err(PathReject::Backslash),
            b'/' => return Err(PathReject::EncodedSlash),
            _ => out.push(octet),
        }
    }
    Ok(())
}

fn hex(byte: &u8) -> Option<u8> {
    char::from(*byte).to_digit(16).map(|digit| digit as u8)
}

/// Percent-encodes one segment of a path (RFC 3986 §3.3). A colon is encoded too, so that a
/// relative reference cannot be taken for a scheme.
pub fn encode_segment(segment: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in segment.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=@".contains(&byte) {
            out.push(char::from(byte));
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
    fn one_fate_each() {
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
        check("/a%00", Err(PathReject::ControlOctet));
        check("/a%0d%0a", Err(PathReject::ControlOctet));
        check("/a%2", Err(PathReject::PercentMalformed));
        check("/%zz", Err(PathReject::PercentMalformed));
        check("/%", Err(PathReject::PercentMalformed));
        check("/%c0%ae", Err(PathReject::NotUtf8));
    }

    #[test]
    fn encoding_leads_back() {
        for raw in ["/", "/a%20b/%C3%A9%25/", "/x:y"] {
            let path = SafePath::decode(raw.as_bytes()).unwrap();
            assert_eq!(SafePath::decode(path.encode().as_bytes()).unwrap(), path);
        }
        assert_eq!(SafePath::decode(b"/a%20b/").unwrap().encode(), "/a%20b/");
    }
}
