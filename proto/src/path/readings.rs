//! The ways in which an application may read the path of a target.
//!
//! Rules are matched with one of them. A path that another one leads to other rules must not reach the application.

use super::text::text_of;
use super::{PathReject, SafePath, decode_segment};
use std::borrow::Cow;

/// Replaces each `%2F` by a slash.
pub fn decode_slashes(raw: &[u8]) -> Cow<'_, [u8]> {
    replace_by_slashes(raw, is_encoded_slash)
}

fn is_encoded_slash(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', b'2', b'f' | b'F'])
}

fn is_encoded_backslash(bytes: &[u8]) -> bool {
    matches!(bytes, [b'%', b'5', b'c' | b'C'])
}

/// Replaces each encoded character for which `is_separator` holds by a slash.
fn replace_by_slashes(raw: &[u8], is_separator: impl Fn(&[u8]) -> bool) -> Cow<'_, [u8]> {
    if !raw.windows(3).any(&is_separator) {
        return Cow::Borrowed(raw);
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, after @ ..] = rest {
        let found = rest.get(..3).is_some_and(&is_separator);
        decoded.push(if found { b'/' } else { *first });
        rest = if found { &rest[3..] } else { after };
    }
    Cow::Owned(decoded)
}

/// Whether applications may read the path of a target in several ways: it has an empty segment, or an encoded slash or
/// backslash. [`readings`] lists them.
pub fn has_several_readings(raw: &[u8]) -> bool {
    raw.windows(2).any(|pair| pair == b"//")
        || raw.windows(3).any(|bytes| is_encoded_slash(bytes) || is_encoded_backslash(bytes))
}

/// Returns the texts of the paths that an application may read the path of a target as. Several slashes are one or
/// enclose empty segments, and `%2F` and `%5C` are data or slashes, in each combination. Each text begins with a slash.
///
/// # Errors
/// The first reason to refuse a reading, such as [`PathReject::AboveRoot`].
pub fn readings(raw: &[u8]) -> Result<Vec<String>, PathReject> {
    let separated = [
        Cow::Borrowed(raw),
        replace_by_slashes(raw, is_encoded_slash),
        replace_by_slashes(raw, is_encoded_backslash),
        replace_by_slashes(raw, |bytes| is_encoded_slash(bytes) || is_encoded_backslash(bytes)),
    ];
    let mut texts = Vec::with_capacity(2 * separated.len());
    for raw in &separated {
        let merged = SafePath::decode(raw)?;
        let slash = if merged.names_directory && !merged.text.is_empty() { "/" } else { "" };
        texts.extend([format!("/{}{slash}", merged.text), text_with_empty_segments(raw)?]);
    }
    texts.sort_unstable();
    texts.dedup();
    Ok(texts)
}

/// Decodes a path and keeps its empty segments, which `..` removes like others (RFC 3986 §5.2.4).
fn text_with_empty_segments(raw: &[u8]) -> Result<String, PathReject> {
    let (mut kept, mut ends_in_dots): (Vec<Vec<u8>>, _) = (Vec::new(), false);
    for segment in raw.strip_prefix(b"/").unwrap_or(raw).split(|&b| b == b'/') {
        let mut decoded = Vec::with_capacity(segment.len());
        decode_segment(segment, &mut decoded)?;
        ends_in_dots = matches!(&decoded[..], b"." | b"..");
        match &decoded[..] {
            b"." => {}
            b".." => drop(kept.pop().ok_or(PathReject::AboveRoot)?),
            _ => kept.push(decoded),
        }
    }
    if ends_in_dots {
        kept.push(Vec::new());
    }
    Ok(text_of(kept.iter().flat_map(|segment| [&b"/"[..], segment].concat()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_those_of_applications() {
        for (raw, expected) in [
            ("/a/b", &["/a/b"][..]),
            ("/a/../b/", &["/b/"]),
            ("/admin%2Fx", &["/admin/x", "/admin\u{10ff2f}x"]),
            ("//admin", &["//admin", "/admin"]),
            ("/%2Fa//b", &["//a//b", "/a/b", "/\u{10ff2f}a//b", "/\u{10ff2f}a/b"]),
            ("/x/..%5Cadmin", &["/admin", "/x/..\\admin"]),
            ("/a//../b", &["/a/b", "/b"]),
            ("/a//.", &["/a/", "/a//"]),
        ] {
            assert_eq!(readings(raw.as_bytes()).unwrap(), expected, "{raw}");
            assert!(has_several_readings(raw.as_bytes()) || expected.len() == 1, "{raw}");
        }
        for raw in ["/..%5cx", "/a%5c..%5c..%5cb"] {
            assert_eq!(readings(raw.as_bytes()), Err(PathReject::AboveRoot), "{raw}");
        }
        assert!(!has_several_readings(b"/a/%2E/%5Bb%5D"));
    }
}
