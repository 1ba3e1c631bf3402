//! The rules of messages, one row for each.

use super::*;
use crate::field::KnownField;
use crate::head::{Expectation, RequestFraming, RequestHead, Scheme, Version};
use crate::http1::parse_request;
use crate::limits::MessageLimits;
use crate::method::Method;
use crate::reject::{Persistence, Reject};
use crate::status::StatusCode;
use crate::target::{Target, TargetForm};
use proptest::prelude::*;

/// Stores fields that are written as `name: value`, one on each line. A name may begin with a colon.
fn section(lines: &str) -> DecodedFields {
    let mut fields = DecodedFields::new();
    fields.begin(&SectionLimits::default());
    for line in lines.split('\n').filter(|line| !line.is_empty()) {
        let (name, value) = match line.strip_prefix(':') {
            Some(rest) => rest.split_once(": ").map(|(name, value)| (format!(":{name}"), value)),
            None => line.split_once(": ").map(|(name, value)| (name.to_owned(), value)),
        }
        .unwrap_or((line.to_owned(), ""));
        let text = [name.as_bytes(), value.replace("\\r", "\r").replace("\\n", "\n").as_bytes()].concat();
        let class = FieldClass::of_name(name.as_bytes());
        fields.push(&text, name.len(), FieldFacts::new(class, &text[name.len()..]));
    }
    fields
}

/// Builds a head of HTTP/2 behind other bytes. Returns its text and the length of the content.
fn build(
    lines: &str,
    end: StreamEnd,
    limits: &MessageLimits,
) -> Result<(String, Option<u64>, RequestHead), SectionError> {
    let (mut bytes, mut head) = (b"before".to_vec(), RequestHead::default());
    let rules = RequestRules { version: Version::Http2, limits, protocols: Protocols::Any };
    let length = build_request(&section(lines), end, &rules, &mut bytes, &mut head)?;
    let built = bytes.split_off(6);
    assert_eq!(built.len(), head.len);
    Ok((String::from_utf8(built).unwrap(), length, head))
}

const GET: &str = ":method: GET\n:scheme: https\n:path: /a?b\n:authority: example.com\n";
const CONNECT: &str = ":method: CONNECT\n:authority: example.com:443\n";
const WEBSOCKET: &str =
    ":method: CONNECT\n:protocol: websocket\n:scheme: https\n:path: /chat\n:authority: example.com\n";

#[test]
fn valid_requests_become_canonical_heads() {
    for (lines, text) in [
        (GET.to_owned(), "GET /a?b HTTP/2.0\r\nhost: example.com\r\n\r\n"),
        (
            format!("{GET}accept: a, b\nx-empty: "),
            "GET /a?b HTTP/2.0\r\nhost: example.com\r\naccept: a, b\r\nx-empty: \r\n\r\n",
        ),
        (format!("{GET}te: trailers"), "GET /a?b HTTP/2.0\r\nhost: example.com\r\nte: trailers\r\n\r\n"),
        (format!("{GET}host: Example.com"), "GET /a?b HTTP/2.0\r\nhost: example.com\r\n\r\n"),
        (
            ":path: /\n:scheme: http\n:method: GET\naccept: a\nhost: b:8080".to_owned(),
            "GET / HTTP/2.0\r\naccept: a\r\nhost: b:8080\r\n\r\n",
        ),
        (
            ":method: OPTIONS\n:scheme: https\n:path: *\n:authority: a".to_owned(),
            "OPTIONS * HTTP/2.0\r\nhost: a\r\n\r\n",
        ),
        (
            format!("{GET}cookie: a=1\naccept: b\ncookie: \ncookie: c=2\ncookie: d=3"),
            "GET /a?b HTTP/2.0\r\nhost: example.com\r\ncookie: a=1; c=2; d=3\r\naccept: b\r\n\r\n",
        ),
        (format!("{GET}cookie: "), "GET /a?b HTTP/2.0\r\nhost: example.com\r\ncookie: \r\n\r\n"),
        (CONNECT.to_owned(), "CONNECT example.com:443 HTTP/2.0\r\nhost: example.com:443\r\n\r\n"),
        (WEBSOCKET.to_owned(), "CONNECT /chat HTTP/2.0\r\nhost: example.com\r\nupgrade: websocket\r\n\r\n"),
    ] {
        let built = build(&lines, StreamEnd::Ended, &MessageLimits::default()).map(|(text, ..)| text);
        assert_eq!(built.as_deref(), Ok(text), "{lines}");
    }
}

#[test]
fn malformed_requests_are_recognized() {
    let request = |rest: &str| format!("{GET}{rest}");
    let long = format!("{GET}x: {}", "y\n".repeat(3));
    for (lines, malformed) in [
        (String::new(), MalformedMessage::PseudoFieldMissing),
        (GET.replace(":method: GET\n", ""), MalformedMessage::PseudoFieldMissing),
        (GET.replace(":scheme: https\n", ""), MalformedMessage::PseudoFieldMissing),
        (GET.replace(":path: /a?b\n", ""), MalformedMessage::PseudoFieldMissing),
        (":method: CONNECT".to_owned(), MalformedMessage::PseudoFieldMissing),
        (":method: CONNECT\n:authority: ".to_owned(), MalformedMessage::PseudoFieldMissing),
        (WEBSOCKET.replace(":path: /chat\n", ""), MalformedMessage::PseudoFieldMissing),
        (request(":method: GET"), MalformedMessage::PseudoFieldRepeated),
        (request(":path: /b"), MalformedMessage::PseudoFieldRepeated),
        (request(":authority: example.com"), MalformedMessage::PseudoFieldRepeated),
        (request(":status: 200"), MalformedMessage::PseudoFieldNotPermitted),
        (request(":x: 200"), MalformedMessage::PseudoFieldNotPermitted),
        (request(":Path: /"), MalformedMessage::PseudoFieldNotPermitted),
        (format!("accept: a\n{GET}"), MalformedMessage::PseudoFieldMissing),
        (request("accept: a\n:method: GET"), MalformedMessage::PseudoFieldMisplaced),
        (request("accept: a\n:x: b"), MalformedMessage::PseudoFieldMisplaced),
        (format!("{CONNECT}:path: /"), MalformedMessage::ConnectHasPath),
        (format!("{CONNECT}:scheme: https"), MalformedMessage::ConnectHasPath),
        (request(":protocol: websocket"), MalformedMessage::ProtocolInvalid),
        (WEBSOCKET.replace("websocket", "web socket"), MalformedMessage::ProtocolInvalid),
        (GET.replace("GET", ""), MalformedMessage::MethodInvalid),
        (GET.replace("GET", "GET /x HTTP/1.1"), MalformedMessage::MethodInvalid),
        (GET.replace("/a?b", ""), MalformedMessage::PathInvalid),
        (GET.replace("/a?b", "a"), MalformedMessage::PathInvalid),
        (GET.replace("/a?b", "?a"), MalformedMessage::PathInvalid),
        (GET.replace("/a?b", "*"), MalformedMessage::PathInvalid),
        (GET.replace("/a?b", "http://a/"), MalformedMessage::PathInvalid),
        (GET.replace("/a?b", "/\\r\\nx: y"), MalformedMessage::FieldValueInvalid),
        (GET.replace("/a?b", " /"), MalformedMessage::FieldValueInvalid),
        (request("Accept: a"), MalformedMessage::FieldNameInvalid),
        (request("accept\t: a"), MalformedMessage::FieldNameInvalid),
        (request("a b: a"), MalformedMessage::FieldNameInvalid),
        (request("x\u{e9}: a"), MalformedMessage::FieldNameInvalid),
        (request(": a").replace("\n: a", "\n\u{7f}"), MalformedMessage::FieldNameInvalid),
        (request("x: a\\r\\nb: c"), MalformedMessage::FieldValueInvalid),
        (request("x: a\\n"), MalformedMessage::FieldValueInvalid),
        (request("x: a\0"), MalformedMessage::FieldValueInvalid),
        (request("x:  a"), MalformedMessage::FieldValueInvalid),
        (request("x: a\t"), MalformedMessage::FieldValueInvalid),
        (request("cookie: a\ncookie: b\\n"), MalformedMessage::FieldValueInvalid),
        (request("connection: close"), MalformedMessage::ConnectionSpecificField),
        (request("keep-alive: 5"), MalformedMessage::ConnectionSpecificField),
        (request("proxy-connection: a"), MalformedMessage::ConnectionSpecificField),
        (request("transfer-encoding: chunked"), MalformedMessage::ConnectionSpecificField),
        (request("upgrade: websocket"), MalformedMessage::ConnectionSpecificField),
        (request("te: gzip"), MalformedMessage::ConnectionSpecificField),
        (request("te: trailers, gzip"), MalformedMessage::ConnectionSpecificField),
        (request("host: other.com"), MalformedMessage::HostDiffers),
        (request("host: example.com:80"), MalformedMessage::HostDiffers),
        (request("content-length: 1"), MalformedMessage::ContentMissing),
        (long.replace("y\ny\ny\n", "y\u{7f}"), MalformedMessage::FieldValueInvalid),
    ] {
        let built = build(&lines, StreamEnd::Ended, &MessageLimits::default()).map(|(text, ..)| text);
        assert_eq!(built, Err(SectionError::Malformed(malformed)), "{lines:?}");
    }
}

#[test]
fn requests_with_a_status_are_rejected() {
    let request = |rest: &str| format!("{GET}{rest}");
    let limits =
        MessageLimits { fields_max: 4, head_bytes_max: 500, request_line_bytes_max: 100, ..Default::default() };
    let long = "a".repeat(500);
    for (lines, reject) in [
        (GET.replace(":authority: example.com", ""), Reject::HostMissing),
        (GET.replace("example.com", ""), Reject::HostInvalid),
        (GET.replace("example.com", "user@example.com"), Reject::HostInvalid),
        (GET.replace("example.com", "a/b"), Reject::HostInvalid),
        (request("host: example.com\nhost: example.com"), Reject::HostRepeated),
        (GET.replace(":authority: example.com", "host: a\nhost: a"), Reject::HostRepeated),
        (GET.replace("https", "ftp"), Reject::TargetInvalid),
        (GET.replace("/a?b", "/a#b"), Reject::TargetInvalid),
        (GET.replace("/a?b", "/a\\b"), Reject::TargetInvalid),
        (GET.replace("/a?b", "/a b"), Reject::TargetInvalid),
        (CONNECT.replace(":443", ""), Reject::TargetFormInvalid),
        (GET.replace("/a?b", &format!("/{long}")), Reject::RequestLineTooLong),
        (GET.replace("GET", &long), Reject::MethodTooLong),
        (request(&format!("x: {long}")), Reject::HeadTooLarge),
        (request(&format!("cookie: {long}\ncookie: b")), Reject::HeadTooLarge),
        (request("a: b\na: b\na: b\na: b"), Reject::TooManyFields),
        (request("content-length: +1"), Reject::ContentLengthInvalid),
        (request("content-length: 1\ncontent-length: 1"), Reject::ContentLengthRepeated),
        (request("expect: something"), Reject::ExpectationNotSupported),
        (request(&"a: b\n".repeat(97)), Reject::TooManyFields),
    ] {
        let built = build(&lines, StreamEnd::Open, &limits).map(|(text, ..)| text);
        assert_eq!(built, Err(SectionError::Rejected(reject)), "{lines:?}");
    }
    // Crumbs count as fields when they are decoded, so 100 bytes of a block cannot become 4,000 crumbs.
    let crumbs = section(&format!("{GET}{}", "cookie: a\n".repeat(97)));
    assert_eq!((crumbs.len(), crumbs.exceeded()), (100, Some(SectionLimit::Fields)));
}

#[test]
fn head_has_the_facts_of_the_request() {
    let limits = MessageLimits::default();
    let built = |rest: &str, end| build(&format!("{GET}{rest}"), end, &limits).unwrap();
    let (text, length, head) = built("expect: 100-continue", StreamEnd::Open);
    assert_eq!((length, head.framing), (None, RequestFraming::UntilStreamEnd));
    assert_eq!((head.expectation, head.persistence), (Expectation::Continue, Persistence::KeepAlive));
    assert_eq!((head.version, head.method, head.target.form), (Version::Http2, Method::Get, TargetForm::Origin));
    let bytes = text.as_bytes();
    assert_eq!(head.request_line.of(bytes), b"GET /a?b HTTP/2.0");
    assert_eq!(head.target.path.of(bytes), b"/a");
    assert_eq!(head.authority.map(|span| span.of(bytes)), Some(&b"example.com"[..]));
    assert_eq!((head.target.authority, head.scheme), (head.authority, Some(Scheme::Https)));
    assert!(!head.is_extended_connect());
    assert_eq!(head.value(bytes, KnownField::Expect), Some(&b"100-continue"[..]));
    for (rest, end, length, framing) in [
        ("", StreamEnd::Ended, None, RequestFraming::None),
        ("content-length: 0", StreamEnd::Ended, Some(0), RequestFraming::None),
        ("content-length: 0", StreamEnd::Open, Some(0), RequestFraming::None),
        ("content-length: 12", StreamEnd::Open, Some(12), RequestFraming::Length(12)),
        ("", StreamEnd::Open, None, RequestFraming::UntilStreamEnd),
    ] {
        let (_, got, head) = built(rest, end);
        assert_eq!((got, head.framing), (length, framing), "{rest} {end:?}");
    }
    let (text, _, head) = build(CONNECT, StreamEnd::Open, &limits).unwrap();
    assert_eq!((head.method, head.target.form), (Method::Connect, TargetForm::Authority));
    assert_eq!(head.authority.map(|span| span.of(text.as_bytes())), Some(&b"example.com:443"[..]));
    assert_eq!((head.scheme, head.is_extended_connect()), (None, false));
    let (text, _, head) = build(WEBSOCKET, StreamEnd::Open, &limits).unwrap();
    assert_eq!((head.method, head.target.form), (Method::Connect, TargetForm::Origin));
    assert!(head.is_extended_connect());
    assert_eq!(head.target.path.of(text.as_bytes()), b"/chat");
    assert_eq!(head.value(text.as_bytes(), KnownField::Upgrade), Some(&b"websocket"[..]));
    let host_alone = ":method: GET\n:scheme: http\n:path: /\nhost: a\n";
    let (text, _, head) = build(host_alone, StreamEnd::Open, &limits).unwrap();
    assert_eq!((head.target.authority, head.scheme), (None, Some(Scheme::Http)));
    assert_eq!(head.authority.map(|span| span.of(text.as_bytes())), Some(&b"a"[..]));
}

/// Lines of a section: those of a valid request, and others that change or spoil it.
fn generated_lines() -> impl Strategy<Value = String> {
    let lines = [
        ":method: GET",
        ":method: OPTIONS",
        ":scheme: http",
        ":path: /a?b",
        ":path: *",
        ":authority: a",
        "host: a",
        "cookie: a=1",
        "cookie: ",
        "content-length: 3",
        "expect: 100-continue",
        "te: trailers",
        "accept: a, b",
        "x: y\tz",
        "x: y\\r\\nz: a",
        "X: y",
        "connection: close",
    ];
    let other = prop::collection::vec(prop::sample::select(lines.to_vec()), 0..8);
    (any::<bool>(), other).prop_map(|(has_request, other)| {
        let request = if has_request { ":method: POST\n:scheme: https\n:path: /\n:authority: a\n" } else { "" };
        format!("{request}{}", other.join("\n"))
    })
}

proptest! {
    /// Behind a gateway, the text must have one meaning.
    #[test]
    fn text_of_a_built_head_is_parsed_to_its_fields(lines in generated_lines()) {
        let limits = MessageLimits::default();
        if let Ok((text, _, head)) = build(&lines, StreamEnd::Open, &limits) {
            let text = text.replacen(" HTTP/2.0\r\n", " HTTP/1.1\r\n", 1);
            let mut parsed = RequestHead::default();
            prop_assert_eq!(parse_request(text.as_bytes(), &limits, &mut parsed), Ok(true));
            // A text of HTTP/1.1 has the authority in Host alone.
            let target = Target { authority: None, ..head.target };
            prop_assert_eq!((parsed.len, parsed.method, parsed.target), (text.len(), head.method, target));
            let fields = |head: &RequestHead| {
                head.fields(text.as_bytes()).map(|(name, value)| [name, b"=", value].concat()).collect::<Vec<_>>()
            };
            prop_assert_eq!(fields(&parsed), fields(&head));
            prop_assert_eq!(parsed.authority, head.authority);
        }
    }
}

#[test]
fn protocol_is_refused_unless_it_was_offered() {
    let (mut bytes, mut head, limits) = (Vec::new(), RequestHead::default(), MessageLimits::default());
    let rules = RequestRules { version: Version::Http3, limits: &limits, protocols: Protocols::None };
    let result = build_request(&section(WEBSOCKET), StreamEnd::Open, &rules, &mut bytes, &mut head);
    assert_eq!(result, Err(SectionError::Malformed(MalformedMessage::PseudoFieldNotPermitted)));
}

#[test]
fn repeated_request_keeps_its_head_and_decides_only_the_content() {
    let limits = MessageLimits::default();
    let (text, _, mut head) = build(&format!("{GET}expect: 100-continue"), StreamEnd::Ended, &limits).unwrap();
    assert!(!head.is_cached_section());
    assert_eq!(repeat_request(text.as_bytes(), &mut head, StreamEnd::Open), Ok(None));
    assert!(head.is_cached_section());
    assert_eq!((head.framing, head.expectation), (RequestFraming::UntilStreamEnd, Expectation::Continue));
    assert_eq!(repeat_request(text.as_bytes(), &mut head, StreamEnd::Ended), Ok(None));
    assert_eq!((head.framing, head.expectation), (RequestFraming::None, Expectation::None));
    let (mut copied_text, mut copy) = (b"before".to_vec(), RequestHead::default());
    assert_eq!(copy_request((text.as_bytes(), &head), StreamEnd::Open, &mut copied_text, &mut copy), Ok(None));
    assert_eq!((&copied_text[6..], copy.is_cached_section()), (text.as_bytes(), true));
    assert_eq!((copy.framing, copy.expectation), (RequestFraming::UntilStreamEnd, Expectation::Continue));
    assert_eq!((copy.target, copy.authority, copy.len), (head.target, head.authority, head.len));
    assert!(copy.fields(text.as_bytes()).eq(head.fields(text.as_bytes())) && copy.fields(text.as_bytes()).count() > 1);
    let (text, _, mut head) = build(&format!("{GET}content-length: 5"), StreamEnd::Open, &limits).unwrap();
    assert_eq!(repeat_request(text.as_bytes(), &mut head, StreamEnd::Open), Ok(Some(5)));
    assert_eq!(
        repeat_request(text.as_bytes(), &mut head, StreamEnd::Ended),
        Err(SectionError::Malformed(MalformedMessage::ContentMissing))
    );
}

#[test]
fn responses_are_checked() {
    let check = |lines: &str| check_response(&section(lines), StreamEnd::Open);
    let status = |code| StatusCode::new(code).unwrap();
    for (lines, code, content_length) in [
        (":status: 200\ncontent-length: 5\nx: y", 200, Some(5)),
        (":status: 103\nlink: a", 103, None),
        (":status: 599", 599, None),
        (":status: 204\ncontent-length: 0", 204, Some(0)),
        (":status: 304\ncontent-length: 5", 304, Some(5)),
    ] {
        assert_eq!(check(lines), Ok(ResponseSection { status: status(code), content_length }), "{lines}");
    }
    for (lines, malformed) in [
        ("x: y", MalformedMessage::PseudoFieldMissing),
        (":status: 200\n:status: 200", MalformedMessage::PseudoFieldRepeated),
        (":status: 200\n:path: /", MalformedMessage::PseudoFieldNotPermitted),
        (":method: GET", MalformedMessage::PseudoFieldNotPermitted),
        ("x: y\n:status: 200", MalformedMessage::PseudoFieldMisplaced),
        (":status: 101", MalformedMessage::StatusInvalid),
        (":status: 099", MalformedMessage::StatusInvalid),
        (":status: 600", MalformedMessage::StatusInvalid),
        (":status: 20", MalformedMessage::StatusInvalid),
        (":status: 0200", MalformedMessage::StatusInvalid),
        (":status: +20", MalformedMessage::StatusInvalid),
        (":status: ", MalformedMessage::StatusInvalid),
        (":status: 200\nX: y", MalformedMessage::FieldNameInvalid),
        (":status: 200\nx: y\\r", MalformedMessage::FieldValueInvalid),
        (":status: 200\nconnection: close", MalformedMessage::ConnectionSpecificField),
        (":status: 200\nte: trailers", MalformedMessage::ConnectionSpecificField),
        (":status: 204\ncontent-length: 5", MalformedMessage::ContentNotPermitted),
        (":status: 103\ncontent-length: 5", MalformedMessage::ContentNotPermitted),
    ] {
        assert_eq!(check(lines), Err(SectionError::Malformed(malformed)), "{lines}");
    }
    for (lines, reject) in [
        (":status: 200\ncontent-length: -1", Reject::ContentLengthInvalid),
        (":status: 200\ncontent-length: 1\ncontent-length: 1", Reject::ContentLengthRepeated),
    ] {
        assert_eq!(check(lines), Err(SectionError::Rejected(reject)), "{lines}");
    }
    assert_eq!(
        check_response(&section(":status: 100"), StreamEnd::Ended),
        Err(SectionError::Malformed(MalformedMessage::InterimEndsStream))
    );
}

#[test]
fn trailers_are_checked() {
    let limits = MessageLimits { trailer_bytes_max: 30, ..MessageLimits::default() };
    let read = |lines: &str| read_trailers(&section(lines), &limits).map(|trailers| trailers.lines().to_vec());
    assert_eq!(read("x: y\netag: \"a\""), Ok(b"x: y\r\netag: \"a\"\r\n".to_vec()));
    assert_eq!(read(""), Ok(Vec::new()));
    assert_eq!(read("x: 1234567890\ny: 1234567890").map(|lines| lines.len()), Ok(30), "as long as the limit");
    for (lines, error) in [
        (":status: 200", SectionError::Malformed(MalformedMessage::PseudoFieldNotPermitted)),
        (":x: y", SectionError::Malformed(MalformedMessage::PseudoFieldNotPermitted)),
        ("X: y", SectionError::Malformed(MalformedMessage::FieldNameInvalid)),
        ("x: y\\n", SectionError::Malformed(MalformedMessage::FieldValueInvalid)),
        ("connection: x", SectionError::Malformed(MalformedMessage::ConnectionSpecificField)),
        ("content-length: 1", SectionError::Rejected(Reject::TrailerForbidden)),
        ("host: a", SectionError::Rejected(Reject::TrailerForbidden)),
        ("server: a", SectionError::Rejected(Reject::TrailerForbidden)),
        ("x: 1234567890\ny: 12345678901", SectionError::Rejected(Reject::TrailersTooLarge)),
    ] {
        assert_eq!(read(lines), Err(error), "{lines}");
    }
}

#[test]
fn connection_specific_fields_of_a_response_are_not_sent() {
    for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te", ":status", "A"] {
        assert!(!is_sent_in_streams(name.as_bytes()), "{name}");
    }
    for name in ["content-type", "trailer", "host", "set-cookie", "x-upgrade"] {
        assert!(is_sent_in_streams(name.as_bytes()), "{name}");
    }
}

#[test]
fn every_reason_has_a_sentence() {
    for malformed in MalformedMessage::ALL {
        assert!(malformed.message().len() > 10 && !malformed.name().is_empty());
        assert_eq!(malformed.to_string(), SectionError::Malformed(*malformed).to_string());
    }
}
