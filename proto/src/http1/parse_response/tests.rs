use super::*;

const GET: RequestContext = RequestContext { method: Method::Get, upgrade: UpgradeOffer::None };
const HEAD: RequestContext = RequestContext { method: Method::Head, upgrade: UpgradeOffer::None };
const OFFER: RequestContext = RequestContext { method: Method::Get, upgrade: UpgradeOffer::Offered };

/// What a complete head means: status code, framing, persistence and its length.
type Meaning = (u16, ResponseFraming, Persistence, usize);

/// Parses bytes that arrive up to each of the positions in `arrivals` in turn.
fn parse_at(
    bytes: &[u8],
    context: RequestContext,
    arrivals: impl Iterator<Item = usize>,
) -> Result<Option<Meaning>, MalformedResponse> {
    let mut head = ResponseHead::default();
    for received in arrivals {
        if parse_response(&bytes[..received], context, &MessageLimits::default(), &mut head)? {
            return Ok(Some((head.status.code(), head.framing, head.persistence, head.len)));
        }
        assert_eq!((head.len, head.fields(bytes).count()), (0, 0), "an incomplete head shows no fields");
    }
    Ok(None)
}

/// Parses the bytes whole, byte by byte, and at random splits, and checks that the results are equal.
fn parse(bytes: &[u8], context: RequestContext) -> Result<Option<Meaning>, MalformedResponse> {
    let whole = parse_at(bytes, context, std::iter::once(bytes.len()));
    let shown = bytes.escape_ascii();
    assert_eq!(whole, parse_at(bytes, context, 0..=bytes.len()), "byte by byte: {shown}");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20 {
        let splits = (0..=bytes.len()).filter(|&at| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 62 == 0 || at == bytes.len()
        });
        assert_eq!(whole, parse_at(bytes, context, splits), "at random splits: {shown}");
    }
    whole
}

#[test]
fn framing_and_persistence_of_valid_responses() {
    use Persistence::{Close, KeepAlive};
    use ResponseFraming::{Chunked, Length, None, UntilClose, Upgraded};
    for (context, bytes, status, framing, persistence) in [
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, Length(5), KeepAlive),
        (GET, "HTTP/1.1 200 OK\r\ncontent-length:5 \r\nx:\r\n\r\n", 200, Length(5), KeepAlive),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, None, KeepAlive),
        (GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", 200, Chunked, KeepAlive),
        (GET, "HTTP/1.1 200 OK\r\n\r\n", 200, UntilClose, Close),
        (GET, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, None, KeepAlive),
        (GET, "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", 200, None, KeepAlive),
        (GET, "HTTP/1.1 299 \t\u{e9} 2 3\r\nContent-Length: 0\r\n\r\n", 299, None, KeepAlive),
        (GET, "HTTP/1.9 404 Not Found\r\nContent-Length: 1\r\n\r\n", 404, Length(1), KeepAlive),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\n", 200, Length(5), Close),
        (GET, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive, close\r\n\r\n", 200, Length(5), Close),
        (GET, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", 200, Length(5), Close),
        (GET, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: Keep-Alive\r\n\r\n", 200, Length(5), KeepAlive),
        (GET, "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", 200, UntilClose, Close),
        (GET, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200", 100, None, KeepAlive),
        (GET, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 103, None, KeepAlive),
        (GET, "HTTP/1.1 204 No Content\r\n\r\n", 204, None, KeepAlive),
        (GET, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", 204, None, KeepAlive),
        (GET, "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", 205, None, KeepAlive),
        (GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, None, KeepAlive),
        (GET, "HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 304, None, KeepAlive),
        (HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 200, None, KeepAlive),
        (HEAD, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, None, KeepAlive),
        (HEAD, "HTTP/1.1 200 OK\r\n\r\n", 200, None, KeepAlive),
        (OFFER, "HTTP/1.1 101 \r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x01", 101, Upgraded, Close),
        (OFFER, "HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n", 200, Length(1), KeepAlive),
    ] {
        let len = bytes.find("\r\n\r\n").unwrap() + 4;
        assert_eq!(parse(bytes.as_bytes(), context), Ok(Some((status, framing, persistence, len))), "{bytes:?}");
    }
}

#[test]
fn incomplete_heads_need_more_bytes() {
    for bytes in
        ["", "H", "HTTP/1.1", "HTTP/1.1 2", "HTTP/1.1 200", "HTTP/1.1 200 OK\r", "HTTP/1.1 200 OK\r\nA: b\r\n\r"]
    {
        assert_eq!(parse(bytes.as_bytes(), GET), Ok(None), "{bytes:?}");
    }
}

#[test]
fn malformed_status_lines_and_field_lines() {
    use MalformedResponse::*;
    for (bytes, reason) in [
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", StatusLineInvalid),
        (" HTTP/1.1 200 OK\r\n\r\n", StatusLineInvalid),
        ("HTTP/1.1  200 OK\r\n\r\n", StatusInvalid),
        ("HTTP/1.1\t200 OK\r\n\r\n", StatusLineInvalid),
        ("HTTP/1.1\r\n\r\n", StatusLineInvalid),
        ("http/1.1 200 OK\r\n\r\n", StatusLineInvalid),
        ("HTTP/11 200 OK\r\n\r\n", StatusLineInvalid),
        ("ICY 200 OK\r\n\r\n", StatusLineInvalid),
        ("<!doctype html>", StatusLineInvalid),
        ("\x16\x03\x01", StatusLineInvalid),
        ("HTTP/2.0 200 OK\r\n\r\n", VersionNotSupported),
        ("HTTP/0.9 200 OK\r\n\r\n", VersionNotSupported),
        ("HTTP/1.1 20\r\n\r\n", StatusInvalid),
        ("HTTP/1.1 2000 OK\r\n\r\n", StatusInvalid),
        ("HTTP/1.1 099 OK\r\n\r\n", StatusInvalid),
        ("HTTP/1.1 600 OK\r\n\r\n", StatusInvalid),
        ("HTTP/1.1 +20 OK\r\n\r\n", StatusInvalid),
        ("HTTP/1.1 200\tOK\r\n\r\n", StatusInvalid),
        ("HTTP/1.1 200 O\0K\r\n\r\n", ReasonPhraseInvalid),
        ("HTTP/1.1 200 O\x7fK\r\n\r\n", ReasonPhraseInvalid),
        ("HTTP/1.1 200 OK\n\n", BareLineFeed),
        ("HTTP/1.1 200\n", BareLineFeed),
        ("HTTP/1.1 200 OK\rX", BareCarriageReturn),
        ("HTTP/1.1 200 OK\r\r\n", BareCarriageReturn),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", BareLineFeed),
        ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", BareCarriageReturn),
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", FieldLineFolded),
        ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", WhitespaceBeforeColon),
        ("HTTP/1.1 200 OK\r\nA\r\n\r\n", ColonMissing),
        ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", FieldNameInvalid),
        ("HTTP/1.1 200 OK\r\nA\0: b\r\n\r\n", FieldNameInvalid),
        ("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", FieldValueInvalid),
    ] {
        assert_eq!(parse(bytes.as_bytes(), GET), Err(reason), "{bytes:?}");
    }
}

#[test]
fn doubtful_framing_is_malformed() {
    use MalformedResponse::*;
    for (context, status, fields, reason) in [
        (GET, 200, "Content-Length: 3\r\nTransfer-Encoding: chunked", ContentLengthWithTransferEncoding),
        (GET, 200, "Transfer-Encoding: chunked\r\nContent-Length: 3", ContentLengthWithTransferEncoding),
        (HEAD, 200, "Transfer-Encoding: chunked\r\nContent-Length: 3", ContentLengthWithTransferEncoding),
        (GET, 304, "Transfer-Encoding: chunked\r\nContent-Length: 3", ContentLengthWithTransferEncoding),
        (GET, 200, "Content-Length: 3\r\nContent-Length: 3", ContentLengthRepeated),
        (GET, 200, "Content-Length: 3\r\ncontent-length: 4", ContentLengthRepeated),
        (GET, 200, "Content-Length: 3, 3", ContentLengthInvalid),
        (GET, 200, "Content-Length:", ContentLengthInvalid),
        (GET, 200, "Content-Length: +3", ContentLengthInvalid),
        (GET, 200, "Content-Length: -1", ContentLengthInvalid),
        (GET, 200, "Content-Length: 0x3", ContentLengthInvalid),
        (GET, 200, "Content-Length: 03", ContentLengthInvalid),
        (GET, 200, "Content-Length: 18446744073709551616", ContentLengthInvalid),
        (HEAD, 200, "Content-Length: 3 3", ContentLengthInvalid),
        (GET, 304, "Content-Length: x", ContentLengthInvalid),
        (GET, 200, "Transfer-Encoding: gzip, chunked", TransferEncodingNotSupported),
        (GET, 200, "Transfer-Encoding: chunked, chunked", TransferEncodingInvalid),
        (GET, 200, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", TransferEncodingInvalid),
        (GET, 200, "Transfer-Encoding: identity", TransferEncodingInvalid),
        (GET, 200, "Transfer-Encoding: gzip", TransferEncodingInvalid),
        (GET, 200, "Transfer-Encoding:", TransferEncodingInvalid),
        (GET, 200, "Transfer-Encoding: \x0bchunked", FieldValueInvalid),
        (GET, 204, "Content-Length: 1", ContentNotPermitted),
        (GET, 204, "Transfer-Encoding: chunked", ContentNotPermitted),
        (HEAD, 204, "Content-Length: 1", ContentNotPermitted),
        (GET, 100, "Content-Length: 1", ContentNotPermitted),
        (GET, 103, "Transfer-Encoding: chunked", ContentNotPermitted),
        (OFFER, 101, "Upgrade: websocket\r\nContent-Length: 1", ContentNotPermitted),
        (GET, 101, "Upgrade: websocket\r\nConnection: upgrade", UpgradeNotOffered),
        (HEAD, 101, "Upgrade: websocket\r\nConnection: upgrade", UpgradeNotOffered),
        (OFFER, 101, "Connection: upgrade", UpgradeInvalid),
        (OFFER, 101, "Connection: upgrade\r\nUpgrade:", UpgradeInvalid),
        (OFFER, 101, "Upgrade: websocket\r\nUpgrade: h2c", UpgradeInvalid),
    ] {
        let bytes = format!("HTTP/1.1 {status} x\r\n{fields}\r\n\r\n");
        assert_eq!(parse(bytes.as_bytes(), context), Err(reason), "{bytes:?}");
    }
    assert_eq!(parse(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", GET), Err(TransferEncodingInHttp10));
    let connect = RequestContext { method: Method::Connect, ..GET };
    assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n", connect), Err(TunnelNotSupported));
    assert!(matches!(parse(b"HTTP/1.1 400 x\r\n\r\n", connect), Ok(Some((400, ResponseFraming::UntilClose, ..)))));
}

#[test]
fn limits_are_exact() {
    let limits = MessageLimits { head_bytes_max: 44, fields_max: 2, ..MessageLimits::default() };
    let parse = |bytes: &str| {
        let results = [bytes.len(), 1].map(|piece| {
            let (mut head, mut received) = (ResponseHead::default(), 0);
            loop {
                received = (received + piece).min(bytes.len());
                match parse_response(&bytes.as_bytes()[..received], GET, &limits, &mut head) {
                    Ok(false) if received < bytes.len() => {}
                    result => return result,
                }
            }
        });
        assert_eq!(results[0], results[1], "{bytes:?}");
        results[0]
    };
    assert_eq!(parse("HTTP/1.1 200 OK\r\na: 1\r\nContent-Length: 0\r\n\r\n"), Ok(true));
    assert_eq!(parse("HTTP/1.1 200 OK\r\na: 12\r\nContent-Length: 0\r\n\r\n"), Err(MalformedResponse::HeadTooLarge));
    assert_eq!(parse("HTTP/1.1 200 OK\r\na:1\r\nb:2\r\n\r\n"), Ok(true));
    assert_eq!(parse("HTTP/1.1 200 OK\r\na:1\r\nb:2\r\nc:3\r\n\r\n"), Err(MalformedResponse::TooManyFields));
    assert_eq!(parse(&format!("HTTP/1.1 200 {}", "x".repeat(99))), Err(MalformedResponse::HeadTooLarge));
    let huge = format!("HTTP/1.1 200 OK\r\na: {}", "x".repeat(70_000));
    let limits = MessageLimits { head_bytes_max: usize::MAX, fields_max: usize::MAX, ..limits };
    let result = parse_response(huge.as_bytes(), GET, &limits, &mut ResponseHead::default());
    assert_eq!(result, Err(MalformedResponse::HeadTooLarge));
    for (count, expected) in
        [(RESPONSE_FIELDS_CEILING, Ok(true)), (RESPONSE_FIELDS_CEILING + 1, Err(MalformedResponse::TooManyFields))]
    {
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        let mut head = ResponseHead::default();
        assert_eq!(parse_response(many.as_bytes(), GET, &limits, &mut head), expected, "{count}");
        assert!(expected.is_err() || head.fields(many.as_bytes()).count() == count);
    }
}

#[test]
fn fields_are_found_and_a_head_is_reused() {
    let limits = MessageLimits::default();
    let mut head = ResponseHead::default();
    for (fields, timeout) in [
        ("Keep-Alive: timeout=5, max=100", Some(5)),
        ("Keep-Alive: max=100 , Timeout = 75", Some(75)),
        ("Keep-Alive: timeout=0", Some(0)),
        ("Keep-Alive: timeout=", None),
        ("Keep-Alive: timeout=-1", None),
        ("Keep-Alive: timeout=9999999999", None),
        ("Keep-Alive: 300", None),
        ("Keep-Alive:", None),
        ("X: timeout=5", None),
    ] {
        let bytes = format!("HTTP/1.1 204 \r\nSet-Cookie: a\r\n{fields}\r\nset-cookie: b\r\n\r\n");
        head.clear();
        assert_eq!(parse_response(bytes.as_bytes(), GET, &limits, &mut head), Ok(true));
        assert_eq!(head.keep_alive_timeout(bytes.as_bytes()), timeout, "{fields}");
        assert_eq!(head.get(bytes.as_bytes(), "set-cookie"), Some(&b"a"[..]));
        assert_eq!(head.fields(bytes.as_bytes()).last(), Some((&b"set-cookie"[..], &b"b"[..])));
        assert_eq!(head.upgrade(bytes.as_bytes()), None);
    }
    let bytes = b"HTTP/1.1 101 \r\nUpgrade: websocket\r\n\r\n";
    head.clear();
    assert_eq!(parse_response(bytes, OFFER, &limits, &mut head), Ok(true));
    assert_eq!(head.upgrade(bytes), Some(&b"websocket"[..]));
    let bytes = b"HTTP/1.1 304 \r\nContent-Length: 7\r\n\r\n";
    head.clear();
    assert_eq!(parse_response(bytes, GET, &limits, &mut head), Ok(true));
    assert_eq!((head.framing, head.content_length), (ResponseFraming::None, Some(7)));
}

#[test]
fn each_reason_has_a_name_and_a_message() {
    for reason in MalformedResponse::ALL {
        assert_eq!(format!("{reason:?}"), reason.name());
        assert_eq!(reason.to_string(), reason.message());
        assert!(!reason.message().is_empty());
    }
    // The decoder of chunked content returns reasons of requests, which keep their names.
    for reject in [Reject::ChunkSizeInvalid, Reject::TrailerForbidden, Reject::TrailersTooLarge] {
        assert_eq!(MalformedResponse::from(reject).name(), reject.name());
    }
}
