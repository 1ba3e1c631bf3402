//! The path of a forwarded request: bytes of the client, which are never decoded and encoded again.

use selvedge::proto::path::{EncodedSlash, SafePath, decode_slashes, encode_segment};

/// Returns a path without dot-segments. All other bytes are kept.
///
/// The route of a request was chosen by its path without them, and a server could read them in another way.
pub(super) fn without_dot_segments(raw: &[u8]) -> Vec<u8> {
    let raw = raw.strip_prefix(b"/").unwrap_or(raw);
    if !has_dot_segment(raw) {
        return [b"/", raw].concat();
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut ends_in_slash = true;
    let last = raw.iter().filter(|&&b| b == b'/').count();
    // The route was chosen by a path without empty segments, which dot-segments do not remove there.
    let segments = raw.split(|&b| b == b'/').enumerate().filter(|(number, part)| !part.is_empty() || *number == last);
    for (_, segment) in segments {
        let dots = dots_of(segment);
        match dots {
            Some(1) => {}
            Some(_) => drop(kept.pop()),
            None => kept.push(segment),
        }
        ends_in_slash = dots.is_some();
    }
    let mut path = Vec::with_capacity(raw.len() + 1);
    for segment in kept {
        path.push(b'/');
        path.extend_from_slice(segment);
    }
    if ends_in_slash {
        path.push(b'/');
    }
    path
}

fn has_dot_segment(raw: &[u8]) -> bool {
    raw.split(|&b| b == b'/').any(|segment| dots_of(segment).is_some())
}

/// Returns the number of dots, if a segment is `.` or `..`, also if they are encoded.
fn dots_of(segment: &[u8]) -> Option<usize> {
    let mut rest = segment;
    let mut dots = 0;
    while !rest.is_empty() && dots < 3 {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return None,
        };
        dots += 1;
    }
    matches!(dots, 1 | 2).then_some(dots)
}

/// Splits an encoded path without dot-segments before what a wildcard at the end of a pattern matched. `rest` is the
/// decoded text of that wildcard. Both halves begin with a slash; the first one is empty for the root.
pub(super) fn split_prefix<'a>(path: &'a [u8], rest: &str) -> (&'a [u8], &'a [u8]) {
    if rest.is_empty() && !path.ends_with(b"/") {
        // The path of the pattern itself, without a slash.
        return (path, b"/");
    }
    // An encoded slash is no slash of the decoded text, so that has as many segments as the encoded path, except for
    // empty ones.
    let slashes = rest.bytes().filter(|&b| b == b'/').count();
    let is_separator = |&(at, &b): &(usize, &u8)| b == b'/' && (at == 0 || path[at - 1] != b'/');
    let at = path.iter().enumerate().rev().filter(is_separator).nth(slashes).map_or(0, |(at, _)| at);
    path.split_at(at)
}

/// Returns what stands before the last slash in front of the text of a wildcard, if an encoded path ends with that text.
pub(super) fn prefix_before<'a>(path: &'a str, rest: &str) -> Option<&'a [u8]> {
    let mut encoded = String::from("/");
    for (index, segment) in rest.split('/').enumerate() {
        if index > 0 && !encoded.ends_with('/') {
            encoded.push('/');
        }
        encode_segment(segment, &mut encoded);
    }
    path.strip_suffix(&*encoded).map(str::as_bytes)
}

/// Returns the encoded path that a request is forwarded with: what the client sent, or the path after a rewrite. `slash`
/// is what the site takes an encoded slash for, so that the server reads the path of the route.
pub(super) fn forwarded_path(raw: &[u8], rewritten: Option<&SafePath>, slash: EncodedSlash) -> Vec<u8> {
    match (rewritten, slash) {
        (Some(path), _) => path.encode().into_bytes(),
        (None, EncodedSlash::Data) => without_dot_segments(raw),
        (None, EncodedSlash::Separator) => without_dot_segments(&decode_slashes(raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dot_segments_are_removed() {
        for (raw, expected) in [
            ("", "/"),
            ("/", "/"),
            ("/a%2Db/%C3%A9;x=1/:@~", "/a%2Db/%C3%A9;x=1/:@~"),
            ("/a/../b", "/b"),
            ("/a/./b/", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/.", "/a/"),
            ("/.well-known/...", "/.well-known/..."),
            ("/a/..;/b", "/a/..;/b"),
        ] {
            assert_eq!(String::from_utf8(without_dot_segments(raw.as_bytes())).unwrap(), expected, "{raw}");
        }
    }

    #[test]
    fn dot_segments_are_removed_as_the_route_sees_them() {
        for raw in [
            "/a/../b",
            "/x/y/../../z/./",
            "/a/b/%2e./c",
            "/a/.%2e",
            "/%61/.",
            "/...",
            "/.a/..",
            "/a//../b",
            "//a/./b//",
        ] {
            let seen = SafePath::decode(raw.as_bytes()).unwrap();
            let forwarded = SafePath::decode(&without_dot_segments(raw.as_bytes())).unwrap();
            assert_eq!(forwarded, seen, "{raw}");
        }
    }

    #[test]
    fn prefixes() {
        for (path, rest, expected) in [
            ("/api/b", "b", ("/api", "/b")),
            ("/api/b/c/", "b/c/", ("/api", "/b/c/")),
            ("/api/", "", ("/api", "/")),
            ("/api", "", ("/api", "/")),
            ("/a%20b/%C3%A9/d", "é/d", ("/a%20b", "/%C3%A9/d")),
            ("/b", "b", ("", "/b")),
            ("/api//b//c", "b/c", ("/api", "//b//c")),
            ("/api/b%2Fc", "b\u{10ff2f}c", ("/api", "/b%2Fc")),
            ("/", "", ("", "/")),
            ("/api/a%2Fb//c", "a\u{10ff2f}b/c", ("/api", "/a%2Fb//c")),
        ] {
            let (prefix, rest) = split_prefix(path.as_bytes(), rest);
            assert_eq!((prefix, rest), (expected.0.as_bytes(), expected.1.as_bytes()), "{path}");
        }
        for (path, rest, expected) in [
            ("/v1/b/c", "b/c", Some("/v1")),
            ("/v1/", "", Some("/v1")),
            ("/b", "b", Some("")),
            ("/v1/a%2Fb/c", "a\u{10ff2f}b/c", Some("/v1")),
            ("/v1/%C3%A9", "é", Some("/v1")),
            ("/v1/x-b", "b", None),
            ("/v1", "", None),
        ] {
            assert_eq!(prefix_before(path, rest), expected.map(str::as_bytes), "{path}");
        }
    }
}
