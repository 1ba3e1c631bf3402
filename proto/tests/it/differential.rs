//! Compares this crate with the parser `httparse` on generated requests.
//!
//! `httparse` must accept each request that this crate accepts, with an equal result. If only
//! `httparse` accepts a request, this crate must refuse it for a listed reason. The comparison finds
//! cases that no row of the case files covers.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::Config;
use selvedge_cases::read;
use selvedge_proto::field::{Fields, KnownField};
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::http1::parse_request;
use selvedge_proto::http1::write::{write_chunk_size, write_last_chunk};
use selvedge_proto::{MessageLimits, Reject};

/// Field lines for which `httparse` has space: more than any generated request has.
const FIELDS_MAX: usize = 512;

/// Fewest inputs of each property. `PROPTEST_CASES` sets a larger number.
const INPUTS_MIN: u32 = 2_000;

/// Returns the configuration. It stores no failures in files: a failure becomes a row of a case file.
fn config() -> Config {
    let default = Config::default();
    Config { cases: default.cases.max(INPUTS_MIN), failure_persistence: None, ..default }
}

/// Whether this crate may refuse, for this reason, a request that `httparse` accepts. `httparse`
/// checks neither hosts nor framing nor limits.
fn is_deliberate(reject: Reject, bytes: &[u8]) -> bool {
    match reject {
        // RFC 9112 §2.2 allows a recipient to accept a bare LF; two recipients then differ.
        Reject::BareLineFeed => bytes.contains(&b'\n'),
        // One empty line before the request line is ignored; more are refused.
        Reject::RequestLineInvalid => bytes.starts_with(b"\r\n\r\n") || bytes.starts_with(b"\r\n\n"),
        // RFC 9112 §3.2: the bytes and the form of the target.
        Reject::TargetInvalid | Reject::TargetFormInvalid => true,
        // RFC 9112 §3.2: the host.
        Reject::HostMissing | Reject::HostRepeated | Reject::HostInvalid => true,
        // RFC 9112 §6: the framing.
        Reject::ContentLengthWithTransferEncoding | Reject::ContentLengthInvalid | Reject::ContentLengthRepeated => {
            true
        }
        Reject::TransferEncodingInHttp10 | Reject::TransferEncodingInvalid | Reject::TransferEncodingNotSupported => {
            true
        }
        // RFC 9110 §10.1.1
        Reject::ExpectationNotSupported => true,
        // Limits, each only if it is reached.
        Reject::MethodTooLong => bytes.len() > 32,
        Reject::RequestLineTooLong => bytes.len() > 8_192,
        Reject::HeadTooLarge => bytes.len() >= 16_384,
        Reject::TooManyFields => bytes.iter().filter(|&&b| b == b':').count() > 100,
        _ => false,
    }
}

/// The results that both parsers have: request line, fields and length.
#[derive(Debug, PartialEq)]
struct Parsed {
    method: Vec<u8>,
    target: Vec<u8>,
    minor: u8,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    len: usize,
}

fn parse_with_proto(bytes: &[u8]) -> Result<Option<(Parsed, RequestHead)>, Reject> {
    let mut head = RequestHead::default();
    let is_complete = parse_request(bytes, &MessageLimits::default(), &mut head)?;
    Ok(is_complete.then(|| (parsed(bytes, &head), head)))
}

fn parsed(bytes: &[u8], head: &RequestHead) -> Parsed {
    Parsed {
        method: head.method_span.of(bytes).to_vec(),
        target: head.target.raw.of(bytes).to_vec(),
        minor: u8::from(head.version == Version::Http11),
        fields: head.fields(bytes).map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        len: head.len,
    }
}

/// Returns the whole result of parsing a head, as text.
fn describe_result(bytes: &[u8], limits: &MessageLimits, head: &mut RequestHead) -> String {
    match parse_request(bytes, limits, head) {
        Ok(true) => {
            let fields = [KnownField::Host, KnownField::Connection, KnownField::Expect, KnownField::ContentLength];
            let fields = fields.map(|field| {
                let values: Vec<_> =
                    head.values(bytes, field).map(<[u8]>::escape_ascii).map(|v| v.to_string()).collect();
                (head.value_span(field), head.is_repeated(field), values)
            });
            let RequestHead {
                method, target, authority, framing, expectation, persistence, request_line: line, ..
            } = &*head;
            let decided = (method, target, authority, framing, expectation, persistence, line);
            format!("{decided:?} {fields:?} {:?}", parsed(bytes, head))
        }
        other => format!("{other:?}"),
    }
}

fn parse_with_httparse(bytes: &[u8]) -> Option<Parsed> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let Ok(httparse::Status::Complete(len)) = request.parse(bytes) else { return None };
    Some(Parsed {
        method: request.method?.as_bytes().to_vec(),
        target: request.path?.as_bytes().to_vec(),
        minor: request.version?,
        fields: request.headers.iter().map(|field| (field.name.as_bytes().to_vec(), field.value.to_vec())).collect(),
        len,
    })
}

fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let shown = bytes.escape_ascii();
    match parse_with_proto(bytes) {
        Ok(Some((parsed, head))) => {
            // `httparse` supports no version after 1.1, so the comparison replaces it by 1.1.
            let mut supported = bytes.to_vec();
            let minor = usize::from(head.request_line.start) + usize::from(head.request_line.len) - 1;
            if supported[minor] != b'0' {
                supported[minor] = b'1';
            }
            prop_assert_eq!(Some(parsed), parse_with_httparse(&supported), "{}", shown);
        }
        Ok(None) => prop_assert_eq!(None, parse_with_httparse(bytes), "more bytes are needed: {}", shown),
        Err(reject) if parse_with_httparse(bytes).is_some() => {
            prop_assert!(is_deliberate(reject, bytes), "{:?} is not listed: {}", reject, shown);
        }
        Err(_) => {}
    }
    Ok(())
}

fn method() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => select(vec!["GET", "HEAD", "POST", "PUT", "OPTIONS", "CONNECT", "TRACE"]).prop_map(str::to_owned),
        2 => "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}",
        1 => "[A-Z]{30,40}",
    ]
}

fn target() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "/[a-z0-9/._~%?=&;-]{0,40}",
        2 => "/[!-~]{0,20}",
        1 => "https?://[a-z.@:0-9\\[\\]]{0,12}[/?]?[a-z]{0,5}",
        1 => select(vec!["*", "a:443", "a", "[::1]:1", "http://a", "//", "/é"]).prop_map(str::to_owned),
    ]
}

fn field() -> impl Strategy<Value = String> {
    let framing = select(vec![
        "Content-Length: 3",
        "content-length:0",
        "Content-Length: 03",
        "Content-Length: 3, 3",
        "Content-Length:",
        "Transfer-Encoding: chunked",
        "transfer-encoding: gzip, chunked",
        "Transfer-Encoding: identity",
        "Expect: 100-continue",
        "Expect: tea",
        "Connection: close",
        "Connection: keep-alive, x",
        "Host: b",
        "Host: a b",
        "Range: bytes=0-1",
    ]);
    prop_oneof![
        3 => framing.prop_map(str::to_owned),
        6 => "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}:[ \t]{0,3}[ -~\téÿ]{0,30}",
        1 => "[ -~]{0,20}",
    ]
}

/// Generates a request that is nearly always valid, followed by content or another request.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let version = prop_oneof![8 => Just("1.1"), 2 => Just("1.0"), 1 => Just("1.7"), 1 => Just("2.0"), 1 => Just("1.x")];
    let start = prop_oneof![8 => Just(""), 1 => Just("\r\n"), 1 => Just("\r\n\r\n"), 1 => Just("\n")];
    let host = prop_oneof![12 => Just("Host: a\r\n"), 1 => Just("")];
    let fields = prop_oneof![12 => vec(field(), 0..6), 1 => vec("x:y".prop_map(String::from), 95..105)];
    let rest =
        select(vec!["", "abc", "3\r\nabc\r\n0\r\n\r\n", "0\r\nt: u\r\n\r\n", "GET / HTTP/1.1\r\nHost: b\r\n\r\n"]);
    (start, method(), target(), version, host, fields, rest).prop_map(
        |(start, method, target, version, host, fields, rest)| {
            let fields: String = fields.into_iter().map(|field| field + "\r\n").collect();
            format!("{start}{method} {target} HTTP/{version}\r\n{host}{fields}\r\n{rest}").into_bytes()
        },
    )
}

/// One change of a byte string.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Repeat(Index, Index),
    Truncate(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let unusual_byte = prop_oneof![
        6 => select(b"\r\n\0 \t:,;/#\\\x0b\x0c\x7f\x80\xff%\"".to_vec()),
        1 => any::<u8>(),
    ];
    prop_oneof![
        3 => (any::<Index>(), 1u8..).prop_map(|(at, mask)| Mutation::Flip(at, mask)),
        6 => (any::<Index>(), unusual_byte).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        3 => any::<Index>().prop_map(Mutation::Remove),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
        1 => any::<Index>().prop_map(Mutation::Truncate),
    ]
}

fn mutate(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        if bytes.is_empty() {
            break;
        }
        let position = |at: &Index| at.index(bytes.len());
        match mutation {
            Mutation::Flip(at, mask) => {
                let at = position(at);
                bytes[at] ^= mask;
            }
            Mutation::Insert(at, byte) => bytes.insert(position(at), *byte),
            Mutation::Remove(at) => {
                bytes.remove(position(at));
            }
            Mutation::Repeat(a, b) => {
                let (a, b) = (position(a), position(b));
                let part = bytes[a.min(b)..a.max(b)].to_vec();
                bytes.extend(part);
            }
            Mutation::Truncate(at) => bytes.truncate(position(at)),
        }
    }
    bytes
}

/// Splits the bytes into pieces. `lengths` is used in a cycle.
fn pieces<'a>(bytes: &'a [u8], lengths: &'a [usize]) -> Vec<&'a [u8]> {
    let (mut rest, mut out) = (bytes, Vec::new());
    for length in lengths.iter().cycle() {
        let (piece, tail) = rest.split_at((*length).min(rest.len()));
        out.push(piece);
        rest = tail;
        if rest.is_empty() {
            break;
        }
    }
    out
}

/// Decodes complete chunked content. Returns content, trailers and length in bytes.
fn decode(bytes: &[u8]) -> Result<(Vec<u8>, Fields, usize), Reject> {
    let (mut decoder, mut content, mut at) = (ChunkedDecoder::new(), Vec::new(), 0);
    loop {
        match decoder.decode_next(&bytes[at..], &MessageLimits::default())? {
            ChunkEvent::Data { start, end } => {
                content.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            ChunkEvent::NeedMore { .. } => panic!("the content is not complete"),
            ChunkEvent::Done { consumed } => return Ok((content, decoder.trailers().clone(), at + consumed)),
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn both_parsers_agree_on_requests(bytes in request()) {
        compare(&bytes)?;
    }

    #[test]
    fn both_parsers_agree_on_mutated_requests(bytes in request(), mutations in vec(mutation(), 1..4)) {
        compare(&mutate(bytes, &mutations))?;
    }

    #[test]
    fn both_parsers_agree_on_prefixes(bytes in request(), length in any::<Index>()) {
        compare(&bytes[..length.index(bytes.len())])?;
    }

    #[test]
    fn splits_do_not_change_a_verdict(
        bytes in request(),
        mutations in vec(mutation(), 0..4),
        lengths in vec(1usize..40, 1..8),
    ) {
        let bytes = mutate(bytes, &mutations);
        let whole = read([&bytes[..]]);
        prop_assert_eq!(&read(bytes.chunks(1)), &whole, "byte by byte: {}", bytes.escape_ascii());
        prop_assert_eq!(&read(pieces(&bytes, &lengths)), &whole, "{:?}: {}", lengths, bytes.escape_ascii());
    }

    // A client repeats its field section, and a head caches the results of parsing it.
    #[test]
    fn reused_head_parses_like_a_new_one(
        sections in vec((select(vec!["Host: a\r\n", "host: b\r\n", ""]), vec(field(), 0..4)), 1..4),
        requests in vec((method(), target(), select(vec!["1.1", "1.1", "1.1", "1.0"]), any::<Index>(), any::<Index>()), 2..12),
        cuts in vec(prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)], 12),
        limits in vec(prop_oneof![3 => Just((16_384, 100)), 1 => Just((60, 100)), 1 => Just((16_384, 2))], 12),
    ) {
        let mut head = RequestHead::default();
        for ((method, target, version, section, rest), (cut, (head_bytes_max, fields_max))) in
            requests.iter().zip(cuts.iter().zip(limits))
        {
            let limits = MessageLimits { head_bytes_max, fields_max, ..MessageLimits::default() };
            let (host, fields) = section.get(&sections);
            let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            let rest = rest.get(&["", "\r\n", "x", "GET / HTTP/1.1\r\nHost: b\r\n\r\n"]);
            let bytes = format!("{method} {target} HTTP/{version}\r\n{host}{fields}\r\n{rest}").into_bytes();
            head.clear();
            prop_assert!(head.fields(&[]).next().is_none() && head.value(&[], KnownField::Host).is_none());
            if let Some(cut) = cut
                && parse_request(&bytes[..cut.index(bytes.len())], &limits, &mut head) != Ok(false)
            {
                head.clear();
            }
            let reused = describe_result(&bytes, &limits, &mut head);
            let new = describe_result(&bytes, &limits, &mut RequestHead::default());
            prop_assert_eq!(reused, new, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn no_input_panics(bytes in vec(any::<u8>(), 0..200), lengths in vec(1usize..40, 1..8)) {
        compare(&bytes)?;
        prop_assert_eq!(read(pieces(&bytes, &lengths)), read([&bytes[..]]));
    }

    #[test]
    fn no_chunked_content_panics(
        text in "([0-9a-fA-F]{0,3}(;[a-z=\" ;]{0,6})?(\r\n|\n|\r)?[a-z:\r\n ]{0,6}){0,6}",
        lengths in vec(1usize..9, 1..8),
    ) {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{text}").into_bytes();
        prop_assert_eq!(read(pieces(&bytes, &lengths)), read([&bytes[..]]), "{}", bytes.escape_ascii());
    }

    #[test]
    fn written_chunks_decode_to_the_original(chunks in vec(vec(any::<u8>(), 1..50), 0..12), trailer in "[ -~]{0,20}") {
        let mut trailers = Fields::new();
        trailers.append("x-trailer", &trailer).unwrap();
        let mut bytes = Vec::new();
        for chunk in &chunks {
            write_chunk_size(chunk.len(), &mut bytes);
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        write_last_chunk(&trailers, &mut bytes);
        let len = bytes.len();
        bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
        prop_assert_eq!(decode(&bytes), Ok((chunks.concat(), trailers, len)));
    }

    #[test]
    fn both_parsers_agree_on_chunk_sizes(text in "[0-9a-fA-F]{1,18}[ \t;+_xg]{0,2}(\r\n|\n)[\r\n]?") {
        let mut decoder = ChunkedDecoder::new();
        if let Ok(step) = decoder.decode_next(text.as_bytes(), &MessageLimits::default())
            && text.contains('\n')
        {
            let Ok(httparse::Status::Complete((at, size))) = httparse::parse_chunk_size(text.as_bytes()) else {
                panic!("httparse refuses the chunk size {}", text.escape_default());
            };
            match step {
                ChunkEvent::Data { start, end } => prop_assert!(start == at && end - start <= size as usize),
                // After a size of zero, the decoder may have consumed bytes of the trailer section.
                ChunkEvent::NeedMore { .. } | ChunkEvent::Done { .. } => prop_assert!(size == 0 || text.len() == at),
            }
        }
    }
}

/// The comparison is useful only if the generators produce both accepted requests and requests that
/// only this crate refuses.
#[test]
fn generators_reach_accepted_and_refused_requests() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = (request(), vec(mutation(), 0..3));
    let (mut accepted, mut refused_alone) = (0, std::collections::HashSet::new());
    const ROUNDS: usize = 20_000;
    for _ in 0..ROUNDS {
        let (bytes, mutations) = strategy.new_tree(&mut runner).unwrap().current();
        let bytes = mutate(bytes, &mutations);
        match parse_with_proto(&bytes) {
            Ok(Some(_)) => accepted += 1,
            Err(reject) if parse_with_httparse(&bytes).is_some() => {
                refused_alone.insert(reject);
            }
            _ => {}
        }
    }
    assert!(accepted > ROUNDS / 10, "only {accepted} of {ROUNDS} are accepted");
    for reject in [
        Reject::BareLineFeed,
        Reject::RequestLineInvalid,
        Reject::MethodTooLong,
        Reject::TargetInvalid,
        Reject::TargetFormInvalid,
        Reject::HostMissing,
        Reject::HostRepeated,
        Reject::HostInvalid,
        Reject::ContentLengthWithTransferEncoding,
        Reject::ContentLengthInvalid,
        Reject::ContentLengthRepeated,
        Reject::TransferEncodingInHttp10,
        Reject::TransferEncodingInvalid,
        Reject::TransferEncodingNotSupported,
        Reject::ExpectationNotSupported,
        Reject::TooManyFields,
    ] {
        assert!(refused_alone.contains(&reject), "{reject:?} is never reached");
    }
}
