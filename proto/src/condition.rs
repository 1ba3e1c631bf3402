//! Entity tags and preconditions (RFC 9110 §8.8.3, §13).
//!
//! Evaluation needs only the validators, so the caller opens no file before the result is known.

use crate::date::HttpDate;
use crate::field::{KnownField, trim};
use crate::head::RequestHead;
use crate::method::Method;

/// An entity tag, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntityTag<'a> {
    weak: bool,
    opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses the tag at the start of the bytes. Returns the tag and the bytes after it.
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

    /// Parses a value that consists of one tag.
    fn parse_whole(value: &'a [u8]) -> Option<Self> {
        match Self::parse(value) {
            Some((tag, [])) => Some(tag),
            _ => None,
        }
    }

    /// Compares two tags strongly.
    //= RFC 9110 §8.8.3.2: both must be strong
    fn matches_strongly(self, other: Self) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Compares two tags weakly.
    //= RFC 9110 §8.8.3.2: either may be weak
    fn matches_weakly(self, other: Self) -> bool {
        self.opaque == other.opaque
    }
}

/// The validators of a representation (RFC 9110 §8.8).
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The value of ETag, with its quotes.
    pub etag: Option<&'a [u8]>,
    /// The time of the last modification.
    pub last_modified: Option<HttpDate>,
}

/// The result of evaluating the preconditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionResult {
    /// The method is performed; Range applies.
    Proceed,
    /// The method is performed; Range is ignored, because the validator in If-Range does not match.
    ProceedIgnoringRange,
    /// The response is 304.
    NotModified,
    /// The response is 412.
    Failed,
}

const CONDITION_FIELDS: u32 = KnownField::IfMatch.bit()
    | KnownField::IfNoneMatch.bit()
    | KnownField::IfModifiedSince.bit()
    | KnownField::IfUnmodifiedSince.bit()
    | KnownField::IfRange.bit();

/// Whether a request has neither a precondition nor Range.
pub fn has_no_condition_or_range(head: &RequestHead) -> bool {
    !head.has_any(CONDITION_FIELDS | KnownField::Range.bit())
}

/// Whether If-Range of a request has something else than an entity tag, such as a date.
///
/// [`evaluate`] compares a date with the modification time, as HTTP requires. Two states of a representation can have one such
/// time, which has no fractions of a second. A server that does not know that it had one state only in that second ignores
/// Range (RFC 9110 §8.8.2.2).
pub fn has_range_without_tag(head: &RequestHead, bytes: &[u8]) -> bool {
    head.value(bytes, KnownField::IfRange).is_some_and(|value| EntityTag::parse_whole(value).is_none())
}

/// Evaluates the preconditions in the order of RFC 9110 §13.2.2.
///
/// The representation must exist, and the response without preconditions must be 200. `now` is the
/// current time.
pub fn evaluate<'a>(
    head: &RequestHead,
    bytes: &'a [u8],
    validators: &Validators<'a>,
    now: HttpDate,
) -> PreconditionResult {
    if !head.has_any(CONDITION_FIELDS) {
        return PreconditionResult::Proceed;
    }
    //= RFC 9110 §13.2.1: ignored where the method neither selects nor changes a representation
    if matches!(head.method, Method::Connect | Method::Options | Method::Trace) {
        return PreconditionResult::Proceed;
    }
    let is_get_or_head = matches!(head.method, Method::Get | Method::Head);
    let date =
        |field| head.value(bytes, field).filter(|_| !head.is_repeated(field)).and_then(|v| HttpDate::parse(v, now));
    let current = validators.etag.and_then(EntityTag::parse_whole);

    // Steps 1 and 2: If-Unmodified-Since applies only if If-Match is absent.
    if head.value_span(KnownField::IfMatch).is_some() {
        if !any_matches(head.values(bytes, KnownField::IfMatch), current, EntityTag::matches_strongly) {
            return PreconditionResult::Failed;
        }
    } else if let (Some(date), Some(modified)) = (date(KnownField::IfUnmodifiedSince), validators.last_modified)
        && modified > date
    {
        return PreconditionResult::Failed;
    }
    // Steps 3 and 4: If-Modified-Since applies only if If-None-Match is absent.
    if head.value_span(KnownField::IfNoneMatch).is_some() {
        if any_matches(head.values(bytes, KnownField::IfNoneMatch), current, EntityTag::matches_weakly) {
            return if is_get_or_head { PreconditionResult::NotModified } else { PreconditionResult::Failed };
        }
    } else if is_get_or_head
        && let (Some(date), Some(modified)) = (date(KnownField::IfModifiedSince), validators.last_modified)
        && modified <= date
    {
        return PreconditionResult::NotModified;
    }
    // Step 5. The result differs only for a request with Range.
    match head.value(bytes, KnownField::IfRange) {
        Some(_) if head.is_repeated(KnownField::IfRange) => PreconditionResult::ProceedIgnoringRange,
        Some(value) if !if_range_matches(value, current, validators.last_modified, now) => {
            PreconditionResult::ProceedIgnoringRange
        }
        _ => PreconditionResult::Proceed,
    }
}

/// Whether `*` or any tag of the lists matches. `*` matches any representation, with or without a tag.
///
/// Of a list with a syntax error, only the tags before the error are compared. All tags of a head
/// are compared, so the limit of the head bounds the work: a skipped tag would perform a method that
/// the client wants to fail (RFC 9110 §13.1.2).
fn any_matches<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    current: Option<EntityTag<'a>>,
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
            if current.is_some_and(|current| matches(current, tag)) {
                return true;
            }
            rest = tail;
        }
    }
    false
}

/// Whether the validator in If-Range matches the representation.
//= RFC 9110 §13.1.5: a tag is compared strongly, a date must be equal
fn if_range_matches(value: &[u8], current: Option<EntityTag<'_>>, modified: Option<HttpDate>, now: HttpDate) -> bool {
    match EntityTag::parse_whole(value) {
        Some(tag) => current.is_some_and(|current| current.matches_strongly(tag)),
        None => HttpDate::parse(value, now).is_some_and(|date| {
            //= RFC 9110 §8.8.2.2: a date is strong only if it is at least one second in the past
            modified == Some(date) && now.unix() > date.unix()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MessageLimits;
    use crate::http1::parse_request;

    const NOW: HttpDate = HttpDate::from_unix(1_790_000_000);

    /// Evaluates against a representation with the tag `"t"`, modified on 2020-01-01.
    fn check(method: &str, fields: &str, expected: PreconditionResult) {
        let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", fields.replace('|', "\r\n"));
        let mut head = RequestHead::default();
        assert_eq!(parse_request(text.as_bytes(), &MessageLimits::default(), &mut head), Ok(true), "{text}");
        let validators = Validators { etag: Some(b"\"t\""), last_modified: Some(HttpDate::from_unix(1_577_836_800)) };
        assert_eq!(evaluate(&head, text.as_bytes(), &validators, NOW), expected, "{text}");
    }

    #[test]
    fn if_range_has_a_tag_or_not() {
        for (value, expected) in [
            ("If-Range: \"t\"", false),
            ("If-Range: W/\"t\"", false),
            ("If-Range: Wed, 01 Jan 2020 00:00:00 GMT", true),
            ("If-Range: t", true),
            ("If-Match: t", false),
        ] {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{value}\r\n\r\n");
            let mut head = RequestHead::default();
            assert_eq!(parse_request(text.as_bytes(), &MessageLimits::default(), &mut head), Ok(true), "{text}");
            assert_eq!(has_range_without_tag(&head, text.as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn order_and_comparison_of_preconditions() {
        use PreconditionResult::{Failed, NotModified, Proceed, ProceedIgnoringRange};
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
            ("If-Range: W/\"t\"".to_owned(), ProceedIgnoringRange),
            ("If-Range: \"x\"".to_owned(), ProceedIgnoringRange),
            ("If-Range: *".to_owned(), ProceedIgnoringRange),
            ("If-Range: ".to_owned() + EQUAL, Proceed),
            ("If-Range: ".to_owned() + BEFORE, ProceedIgnoringRange),
        ] {
            check("GET", &fields, expected);
            check("HEAD", &fields, expected);
        }
        check("POST", &format!("If-Modified-Since: {EQUAL}"), Proceed);
        check("PUT", "If-None-Match: *", Failed);
        check("OPTIONS", "If-Match: \"x\"", Proceed);
    }
}
