//! ETags of encoded content (RFC 9110 §8.8.3.3).
//!
//! Another content coding is another representation, which needs another strong ETag: `"abc"` in gzip
//! becomes `"abc-gzip"`. A weak ETag is valid for all codings, so it stays.

use selvedge_proto::encoding::Coding;

/// Returns the ETag of the content in this coding, or `None` if the original is not a strong ETag.
pub(crate) fn encoded_etag(original: &[u8], coding: Coding) -> Option<Vec<u8>> {
    let [b'"', opaque @ .., b'"'] = original else { return None };
    if opaque.contains(&b'"') {
        return None;
    }
    Some(quoted(b"", &[opaque, b"-", coding.name().as_bytes()]))
}

/// Adds the original ETag after each listed ETag that has the suffix of an accepted coding, since the
/// application only knows original ETags. The suffixed ETag stays in the list, since the application
/// may use such ETags itself. Returns `None` if no listed ETag has such a suffix.
pub(crate) fn with_original_etags(list: &[u8], accepts: impl Fn(Coding) -> bool) -> Option<Vec<u8>> {
    let mut extended = Vec::new();
    let mut found = false;
    for tag in EtagList(list) {
        push(&mut extended, &tag.quoted());
        if let Some(original) = tag.original(&accepts) {
            push(&mut extended, &quoted(tag.prefix, &[original]));
            found = true;
        }
    }
    found.then_some(extended)
}

/// Finds the coding whose ETag for the content with the ETag `original` is in the list.
pub(crate) fn find_coding(list: &[u8], original: &[u8], among: &[Coding]) -> Option<Coding> {
    let codings = among.iter().copied();
    let mut encoded = codings.filter_map(|coding| Some((coding, encoded_etag(original, coding)?)));
    encoded.find(|(_, etag)| EtagList(list).any(|tag| quoted(b"", &[tag.opaque]) == *etag)).map(|(coding, _)| coding)
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

/// One ETag of a list.
struct ListedEtag<'a> {
    /// `W/` or empty.
    prefix: &'a [u8],
    opaque: &'a [u8],
}

impl<'a> ListedEtag<'a> {
    fn quoted(&self) -> Vec<u8> {
        quoted(self.prefix, &[self.opaque])
    }

    /// Returns the opaque part without the suffix of an accepted coding.
    fn original(&self, accepts: impl Fn(Coding) -> bool) -> Option<&'a [u8]> {
        let codings = Coding::ALL.into_iter().filter(|&coding| accepts(coding));
        codings.filter_map(|coding| self.opaque.strip_suffix(coding.name().as_bytes())?.strip_suffix(b"-")).next()
    }
}

/// Iterates over the ETags of a list, up to the first syntax error.
struct EtagList<'a>(&'a [u8]);

impl<'a> Iterator for EtagList<'a> {
    type Item = ListedEtag<'a>;

    fn next(&mut self) -> Option<ListedEtag<'a>> {
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
        Some(ListedEtag { prefix, opaque: &rest[..end] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    #[test]
    fn strong_etag_gets_coding_suffix() {
        for (original, expected) in [
            (r#""abc""#, Some(r#""abc-gzip""#)),
            (r#""""#, Some(r#""-gzip""#)),
            (r#"W/"abc""#, None),
            ("abc", None),
            (r#"""#, None),
            (r#""a"b""#, None),
        ] {
            assert_eq!(encoded_etag(&value(original), Coding::Gzip), expected.map(value), "{original}");
        }
    }

    #[test]
    fn etag_list_is_extended_by_original_etags() {
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
            let extended = with_original_etags(&value(list), |coding| coding == Coding::Gzip);
            assert_eq!(extended, expected.map(value), "{list}");
        }
    }

    #[test]
    fn coding_is_found_from_listed_etag() {
        let find = |list| find_coding(&value(list), &value(r#""abc""#), &Coding::ALL);
        assert_eq!(find(r#""x-gzip", "abc-zstd""#), Some(Coding::Zstd));
        assert_eq!(find(r#"W/"abc-gzip""#), Some(Coding::Gzip));
        assert_eq!(find(r#""abc""#), None);
        assert_eq!(find_coding(&value(r#""abc-gzip""#), &value(r#"W/"abc""#), &Coding::ALL), None);
    }
}
