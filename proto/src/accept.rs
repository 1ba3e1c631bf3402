//! What a client prefers to read: pages or JSON (RFC 9110 §12.5.1).

use crate::field::{list_members, trim};

/// The media type of a description of an error (RFC 9457 §3).
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The maximum number of members of a value that are compared.
const MEMBERS_MAX: usize = 64;

/// Whether the values of Accept name JSON and do not rank HTML above it. If HTML is not named, a wildcard stands for it,
/// but not above JSON of equal weight.
pub fn prefers_json<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let (mut json, mut html, mut any) = (0.0, None, 0.0);
    for member in values.into_iter().flat_map(|value| list_members(value).take(MEMBERS_MAX)) {
        let mut parts = member.split(|&b| b == b';').map(trim);
        let range = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix(b"q=")).map_or(1.0, quality);
        let is = |names: &[&str]| names.iter().any(|name| range.eq_ignore_ascii_case(name.as_bytes()));
        if is(&["application/json", PROBLEM_TYPE]) {
            json = quality.max(json);
        } else if is(&["text/html"]) {
            html = Some(quality);
        } else if is(&["text/*", "*/*"]) {
            any = quality.max(any);
        }
    }
    json > 0.0 && html.map_or(json >= any, |html| json > html)
}

/// Parses a weight. An invalid one is zero.
fn quality(text: &[u8]) -> f32 {
    core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Returns the values of Accept in the lines of a head that may be invalid or incomplete. The first line is that of the
/// request.
pub fn values_in_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    // The last line may be cut.
    let complete = head.split_inclusive(|&b| b == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    let lines = complete.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).skip(1);
    lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let colon = line.iter().position(|&b| b == b':')?;
        line[..colon].eq_ignore_ascii_case(b"accept").then(|| trim(&line[colon + 1..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_preferred_where_html_is_not_above_it() {
        for (value, expected) in [
            ("application/json", true),
            ("APPLICATION/Problem+JSON", true),
            ("application/json, text/plain, */*", true),
            ("application/json;q=0.5, */*", false),
            ("application/json;q=0.9, text/html;q=0.8", true),
            ("text/html, application/json", false),
            ("application/json;q=0", false),
            ("application/json;q=many", false),
            ("*/*", false),
            ("", false),
        ] {
            assert_eq!(prefers_json([value.as_bytes()]), expected, "{value}");
        }
        assert!(prefers_json([&b"text/html;q=0.1"[..], b"application/json"]));
    }

    #[test]
    fn values_are_those_of_complete_lines_of_the_head() {
        for (head, expected) in [
            ("GET / HTTP/1.1\r\naccept:  a \r\nAccept: b\nX: y\r\n\r\nAccept: content\r\n", &["a", "b"][..]),
            ("GET / HTTP/1.1\r\nAccept: a", &[]),
            ("Accept: a\r\n", &[]),
            ("GET / HTTP/1.1\r\nno colon\r\nAccept : a\r\nAccept: b\r\n", &["b"]),
        ] {
            let found: Vec<_> =
                values_in_lines(head.as_bytes()).map(|value| value.escape_ascii().to_string()).collect();
            assert_eq!(found, expected, "{head}");
        }
    }
}
