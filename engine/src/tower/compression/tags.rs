//! Entity tags of coded content (RFC 9110 §8.8.3.3): another coding of the same content is
//! another representation, whose strong tag has to be another one.
//!
//! `"abc"` in gzip is `"abc-gzip"`. A weak tag stands for all codings already.

use http::HeaderValue;
use selvedge_proto::encoding::Coding;

/// The tag of content in this coding, where it needs one of its own: where this one is strong.
pub(super) fn coded(plain: &HeaderValue, coding: Coding) -> Option<HeaderValue> {
    let [b'"', opaque @ .., b'"'] = plain.as_bytes() else { return None };
    if opaque.contains(&b'"') {
        return None;
    }
    HeaderValue::from_bytes(&quoted(b"", &[opaque, b"-", coding.name().as_bytes()])).ok()
}

/// A list of tags with, behind each tag of one of these codings, the tag of the content that was
/// coded: what was answered under the one is known to the application by the other. The first
/// stays, since the application may have such tags itself. `None`: there was none.
pub(super) fn with_plain(list: &HeaderValue, takes: impl Fn(Coding) -> bool) -> Option<HeaderValue> {
    let mut longer = Vec::new();
    let mut found = false;
    for tag in Tags(list.as_bytes()) {
        push(&mut longer, &tag.quoted());
        if let Some(plain) = tag.plain(&takes) {
            push(&mut longer, &quoted(tag.prefix, &[plain]));
            found = true;
        }
    }
    found.then(|| HeaderValue::from_bytes(&longer).ok()).flatten()
}

/// The coding whose tag for content with the tag `plain` is in the list.
pub(super) fn coding_named(list: &HeaderValue, plain: &HeaderValue, among: &[Coding]) -> Option<Coding> {
    let codings = among.iter().copied();
    let mut own = codings.filter_map(|coding| Some((coding, coded(plain, coding)?)));
    own.find(|(_, own)| Tags(list.as_bytes()).any(|tag| quoted(b"", &[tag.opaque]) == own.as_bytes()))
        .map(|(coding, _)| coding)
}

fn push(list: &mut Vec<u8>, tag: &[u8]) {
    if !list.is_empty() {
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(tag);
}

fn quoted(prefix: &[u8], opaque: &[&[u8]]) -> Vec<u8> {
    [prefix, b"\"", &opaque.concat(), b"\""].concat()
}

/// One tag of a list.
struct Tag<'a> {
    /// `W/`, or nothing.
    prefix: &'a [u8],
    opaque: &'a [u8],
}

impl<'a> Tag<'a> {
    fn quoted(&self) -> Vec<u8> {
        quoted(self.prefix, &[self.opaque])
    }

    /// Without the end that says one of these codings.
    fn plain(&self, takes: impl Fn(Coding) -> bool) -> Option<&'a [u8]> {
        let codings = Coding::ALL.into_iter().filter(|&coding| takes(coding));
        codings.filter_map(|coding| self.opaque.strip_suffix(coding.name().as_bytes())?.strip_suffix(b"-")).next()
    }
}

/// The tags of a list, up to what is none.
struct Tags<'a>(&'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        while let [b' ' | b'\t' | b',', rest @ ..] = self.0 {
            self.0 = rest;
        }
        let (prefix, quoted) = match self.0 {
            [b'W', b'/', rest @ ..] => (&self.0[..2], rest),
            other => (&other[..0], other),
        };
        let [b'"', rest @ ..] = quoted else { return None };
        let end = rest.iter().position(|&b| b == b'"')?;
        self.0 = &rest[end + 1..];
        Some(Tag { prefix, opaque: &rest[..end] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &'static str) -> HeaderValue {
        HeaderValue::from_static(text)
    }

    #[test]
    fn strong_tags_get_another() {
        for (plain, expected) in [
            (r#""abc""#, Some(r#""abc-gzip""#)),
            (r#""""#, Some(r#""-gzip""#)),
            (r#"W/"abc""#, None),
            ("abc", None),
            (r#"""#, None),
            (r#""a"b""#, None),
        ] {
            assert_eq!(coded(&value(plain), Coding::Gzip), expected.map(value), "{plain}");
        }
    }

    #[test]
    fn lists_have_what_the_application_knows() {
        for (list, expected) in [
            (r#""abc-gzip""#, Some(r#""abc-gzip", "abc""#)),
            (r#"W/"abc-gzip""#, Some(r#"W/"abc-gzip", W/"abc""#)),
            (r#""a,b-gzip" ,, "c""#, Some(r#""a,b-gzip", "a,b", "c""#)),
            (r#""abc-br""#, None),
            (r#""abc""#, None),
            ("*", None),
            ("", None),
            (r#""abc-gzip"#, None),
        ] {
            let longer = with_plain(&value(list), |coding| coding == Coding::Gzip);
            assert_eq!(longer, expected.map(value), "{list}");
        }
    }

    #[test]
    fn a_list_says_which_coding_the_client_has() {
        let named = |list| coding_named(&value(list), &value(r#""abc""#), &Coding::ALL);
        assert_eq!(named(r#""x-gzip", "abc-zstd""#), Some(Coding::Zstd));
        assert_eq!(named(r#"W/"abc-gzip""#), Some(Coding::Gzip));
        assert_eq!(named(r#""abc""#), None);
        assert_eq!(coding_named(&value(r#""abc-gzip""#), &value(r#"W/"abc""#), &Coding::ALL), None);
    }
}
