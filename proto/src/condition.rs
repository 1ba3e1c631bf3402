//! Entity tags and preconditions (RFC 9110 §8.8.3, §13), decided before anything is opened
//! for sending.

use crate::date::HttpDate;
use crate::field::{Known, trim};
use crate::head::RequestHead;
use crate::method::Method;

/// An entity tag, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntityTag<'a> {
    weak: bool,
    opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Reads the tag that begins at the first byte; the tag and what follows it.
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (weak, quoted) = match bytes {
            [b'W', b'/', rest @ ..] => (true, rest),
            _ => (false, bytes),
        };
        let [b'"', rest @ ..] = quoted else { return None };
        let end = rest.iter().position(|&b| b == b'"')?;
        let valid = rest[..end].iter().all(|&b| b == 0x21 || (b >= 0x23 && b != 0x7f));
        valid.then_some((Self { weak, opaque: &rest[..end] }, &rest[end + 1..]))
    }

    /// Reads a value that is one tag and nothing else.
    fn parse_whole(value: &'a [u8]) -> Option<Self> {
        match Self::parse(value) {
            Some((tag, [])) => Some(tag),
            _ => None,
        }
    }

    //= RFC 9110 §8.8.3.2: both must be strong
    fn matches_strongly(self, other: Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    //= RFC 9110 §8.8.3.2: either may be weak
    fn matches_weakly(self, other: Self) -> bool {
        self.opaque == other.opaque
    }
}

/// What tells one state of a representation from another.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag as the ETag field has it, with its quotes.
    pub etag: Option<&'a [u8]>,
    /// The time of the last change.
    pub last_modified: Option<HttpDate>,
}

/// What the preconditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Perform the method; the Range field counts.
    Proceed,
    /// Perform the method; the Range field does not count, since If-Range says that the
    /// client has parts of another state.
    ProceedWhole,
    /// 304
    NotModified,
    /// 412
    Failed,
}

const CONDITIONS: u32 = Known::IfMatch.bit()
    | Known::IfNoneMatch.bit()
    | Known::IfModifiedSince.bit()
    | Known::IfUnmodifiedSince.bit()
    | Known::IfRange.bit();

/// Whether a request asks for a representation as it is and whole: no precondition, no range.
pub fn asks_for_the_whole(head: &RequestHead) -> bool {
    !head.has_any(CONDITIONS | Known::Range.bit())
}

/// Evaluates the preconditions in the order of RFC 9110 §13.2.2, for a representation
/// that exists and would be answered with 200.
pub fn evaluate<'a>(head: &RequestHead, bytes: &'a [u8], validators: &Validators<'a>, now: HttpDate) -> Outcome {
    if !head.has_any(CONDITIONS) {
        return Outcome::Proceed;
    }
    //= RFC 9110 §13.2.1: ignored where the method neither selects nor changes a representation
    if matches!(head.method, Method::Connect | Method::Options | Method::Trace) {
        return Outcome::Proceed;
    }
    let reads = matches!(head.method, Method::Get | Method::Head);
    let date =
        |known| head.value(bytes, known).filter(|_| !head.is_repeated(known)).and_then(|v| HttpDate::parse(v, now));
    let own = validators.etag.and_then(EntityTag::parse_whole);

    // Steps 1 and 2: If-Unmodified-Since counts only where If-Match is absent.
    if head.value_span(Known::IfMatch).is_some() {
        if !any_matches(head.values(bytes, Known::IfMatch), own, EntityTag::matches_strongly) {
            return Outcome::Failed;
        }
    } else if let (Some(given), Some(modified)) = (date(Known::IfUnmodifiedSince), validators.last_modified)
        && modified > given
    {
        return Outcome::Failed;
    }
    // Steps 3 and 4: If-Modified-Since counts only where If-None-Match is absent.
    if head.value_span(Known::IfNoneMatch).is_some() {
        if any_matches(head.values(bytes, Known::IfNoneMatch), own, EntityTag::matches_weakly) {
            return if reads { Outcome::NotModified } else { Outcome::Failed };
        }
    } else if reads
        && let (Some(given), Some(modified)) = (date(Known::IfModifiedSince), validators.last_modified)
        && modified <= given
    {
        return Outcome::NotModified;
    }
    // Step 5, which matters only where there is a Range.
    match head.value(bytes, Known::IfRange) {
        Some(_) if head.is_repeated(Known::IfRange) => Outcome::ProceedWhole,
        Some(value) if !if_range_holds(value, own, validators.last_modified, now) => Outcome::ProceedWhole,
        _ => Outcome::Proceed,
    }
}

/// Whether `*` or any tag of the lists matches. A list that is malformed from some point on
/// counts up to that point. `*` matches any representation, with or without a tag.
///
/// Every tag of a head is looked at, so the head's limit is the bound: a tag that is passed
/// over would let a method through that the client wants to fail (RFC 9110 §13.1.2).
fn any_matches<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    own: Option<EntityTag<'a>>,
    matches: fn(EntityTag<'a>, EntityTag<'a>) -> bool,
) -> bool {
    for line in lines {
        let mut rest = line;
        if trim(rest) == b"*" {
            return true;
        }
        loop {
            while let [b' ' | b'\t' | b',', tail @ ..] = rest {
                rest = tail;
            }
            let Some((tag, tail)) = EntityTag::parse(rest) else { break };
            if own.is_some_and(|own| matches(own, tag)) {
                return true;
            }
            rest = tail;
        }
    }
    false
}

//= RFC 9110 §13.1.5: a tag is compared strongly, a date must be the very same
fn if_range_holds(value: &[u8], own: Option<EntityTag<'_>>, modified: Option<HttpDate>, now: HttpDate) -> bool {
    match EntityTag::parse_whole(value) {
        Some(tag) => own.is_some_and(|own| own.matches_strongly(tag)),
        None => HttpDate::parse(value, now).is_some_and(|date| {
            //= RFC 9110 §8.8.2.2: a date is strong only once it lies a second or more in the past
            modified == Some(date) && now.unix() > date.unix()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::http1::parse_request;

    const NOW: HttpDate = HttpDate::from_unix(1_790_000_000);

    /// Evaluates against a representation with the tag `"t"`, modified on 2020-01-01.
    fn check(method: &str, fields: &str, expected: Outcome) {
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", fields.replace('|', "\r\n"));
        let mut head = RequestHead::default();
        assert_eq!(parse_request(text.as_bytes(), &Limits::default(), &mut head), Ok(true), "{text}");
        let validators = Validators { etag: Some(b"\"t\""), last_modified: Some(HttpDate::from_unix(1_577_836_800)) };
        assert_eq!(evaluate(&head, text.as_bytes(), &validators, NOW), expected, "{text}");
    }

    #[test]
    fn order_and_comparison() {
        use Outcome::{Failed, NotModified, Proceed, ProceedWhole};
        const BEFORE: &str = "Tue, 31 Dec 2019 00:00:00 GMT";
        const EQUAL: &str = "Wed, 01 Jan 2020 00:00:00 GMT";
        for (fields, expected) in [
            ("X: y".to_owned(), Proceed),
            ("If-None-Match: \"t\"".to_owned(), NotModified),
            ("If-None-Match: W/\"t\"".to_owned(), NotModified),
            ("If-None-Match: \"a\",,\"t\"".to_owned(), NotModified),
            ("If-None-Match: \"a\"|If-None-Match: \"t\"".to_owned(), NotModified),
            ("If-None-Match: *".to_owned(), NotModified),
            ("If-None-Match: \"\"".to_owned(), Proceed),
            ("If-None-Match: t".to_owned(), Proceed),
            ("If-None-Match: \"x\"|If-Modified-Since: ".to_owned() + EQUAL, Proceed),
            ("If-None-Match: \"t\"|If-Modified-Since: ".to_owned() + BEFORE, NotModified),
            ("If-Modified-Since: ".to_owned() + EQUAL, NotModified),
            ("If-Modified-Since: ".to_owned() + BEFORE, Proceed),
            ("If-Modified-Since: soon".to_owned(), Proceed),
            ("If-Match: \"t\"".to_owned(), Proceed),
            ("If-Match: W/\"t\"".to_owned(), Failed),
            ("If-Match: *".to_owned(), Proceed),
            ("If-Match: \"x\"".to_owned(), Failed),
            ("If-Match: \"t\"|If-Unmodified-Since: ".to_owned() + BEFORE, Proceed),
            ("If-Match: \"t\"|If-None-Match: \"t\"".to_owned(), NotModified),
            ("If-Unmodified-Since: ".to_owned() + BEFORE, Failed),
            ("If-Unmodified-Since: ".to_owned() + EQUAL, Proceed),
            ("If-Unmodified-Since: ".to_owned() + BEFORE + "|If-None-Match: \"t\"", Failed),
            ("If-Range: \"t\"".to_owned(), Proceed),
            ("If-Range: W/\"t\"".to_owned(), ProceedWhole),
            ("If-Range: \"x\"".to_owned(), ProceedWhole),
            ("If-Range: *".to_owned(), ProceedWhole),
            ("If-Range: ".to_owned() + EQUAL, Proceed),
            ("If-Range: ".to_owned() + BEFORE, ProceedWhole),
        ] {
            check("GET", &fields, expected);
            check("HEAD", &fields, expected);
        }
        check("POST", &format!("If-Modified-Since: {EQUAL}"), Proceed);
        check("PUT", "If-None-Match: *", Failed);
        check("OPTIONS", "If-Match: \"x\"", Proceed);
    }
}
