//! Two parsers, one reading: what this crate takes, `httparse` takes as well and in the same
//! way; what only `httparse` takes is refused here for a reason that is on a list.
//!
//! A second opinion finds what rows cannot: the case that nobody thought of.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::Config;
use selvedge_cases::read;
use selvedge_proto::field::{Fields, Known};
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::http1::chunked::{Decoder, Step};
use selvedge_proto::http1::parse_request;
use selvedge_proto::http1::write::{write_chunk_size, write_last_chunk};
use selvedge_proto::{Limits, Reject};

/// More field lines than any input here has, so that the other parser never runs out of room.
const FIELDS_MAX: usize = 512;

/// At least so many inputs for each property; `PROPTEST_CASES` asks for more.
const INPUTS_MIN: u32 = 2_000;

/// No files of past failures: a failure becomes a row.
fn config() -> Config {
    let asked = Config::default();
    Config { cases: asked.cases.max(INPUTS_MIN), failure_persistence: None, ..asked }
}

/// Why this crate refuses what `httparse`, which knows neither hosts nor framing nor limits, takes.
fn is_deliberate(reject: Reject, bytes: &[u8]) -> bool {
    match reject {
        // RFC 9112 §2.2 allows a recipient to take a bare LF; two recipients then differ.
        Reject::BareLineFeed => bytes.contains(&b'\n'),
        // One empty line before the request line is ignored, not many.
        Reject::RequestLineMalformed => bytes.starts_with(b"\r\n\r\n") || bytes.starts_with(b"\r\n\n"),
        // RFC 9112 §3.2: octets and forms of a target.
        Reject::TargetMalformed | Reject::TargetFormWrong => true,
        // RFC 9112 §3.2: the host.
        Reject::HostMissing | Reject::HostRepeated | Reject::HostInvalid => true,
        // RFC 9112 §6: the framing.
        Reject::TwoFramings | Reject::ContentLengthInvalid | Reject::ContentLengthRepeated => true,
        Reject::TransferEncodingInHttp10 | Reject::TransferEncodingInvalid | Reject::TransferEncodingUnknown => true,
        // RFC 9110 §10.1.1
        Reject::ExpectationUnknown => true,
        // The limits, each only where it is reached.
        Reject::MethodTooLong => bytes.len() > 32,
        Reject::RequestLineTooLong => bytes.len() > 8_192,
        Reject::HeadTooLarge => bytes.len() >= 16_384,
        Reject::TooManyFields => bytes.iter().filter(|&&b| b == b':').count() > 100,
        _ => false,
    }
}

/// What a parser makes of a head: its line, its fields and its length.
#[derive(Debug, PartialEq)]
struct Parsed {
    method: Vec<u8>,
    target: Vec<u8>,
    minor: u8,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    len: usize,
}

fn ours(bytes: &[u8]) -> Result<Option<(Parsed, RequestHead)>, Reject> {
    let mut head = RequestHead::default();
    let is_complete = parse_request(bytes, &Limits::default(), &mut head)?;
    Ok(is_complete.then(|| (parsed(bytes, &head), head)))
}

fn parsed(bytes: &[u8], head: &RequestHead) -> Parsed {
    Parsed {
        method: head.method_span.of(bytes).to_vec(),
        target: head.target.whole.of(bytes).to_vec(),
        minor: u8::from(head.version == Version::Http11),
        fields: head.fields(bytes).map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        len: head.len,
    }
}

/// All that a head says of a request, in words.
fn said(bytes: &[u8], limits: &Limits, head: &mut RequestHead) -> String {
    match parse_request(bytes, limits, head) {
        Ok(true) => {
            let known = [Known::Host, Known::Connection, Known::Expect, Known::ContentLength].map(|known| {
                let values: Vec<_> =
                    head.values(bytes, known).map(<[u8]>::escape_ascii).map(|v| v.to_string()).collect();
                (head.value_span(known), head.is_repeated(known), values)
            });
            let RequestHead { method, target, authority, framing, expectation, persistence, line, .. } = &*head;
            let decided = (method, target, authority, framing, expectation, persistence, line);
            format!("{decided:?} {known:?} {:?}", parsed(bytes, head))
        }
        other => format!("{other:?}"),
    }
}

fn theirs(bytes: &[u8]) -> Option<Parsed> {
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
    match ours(bytes) {
        Ok(Some((parsed, head))) => {
            // `httparse` knows no version after 1.1, so it reads such a line as one of 1.1.
            let mut known = bytes.to_vec();
            let minor = usize::from(head.line.start) + usize::from(head.line.len) - 1;
            if known[minor] != b'0' {
                known[minor] = b'1';
            }
            prop_assert_eq!(Some(parsed), theirs(&known), "{}", shown);
        }
        Ok(None) => prop_assert_eq!(None, theirs(bytes), "only waited for: {}", shown),
        Err(reject) if theirs(bytes).is_some() => {
            prop_assert!(is_deliberate(reject, bytes), "{:?} is on no list: {}", reject, shown);
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

/// A request that is nearly always well-formed, with content or another request behind it.
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

/// One change to some bytes.
#[derive(Clone, Debug)]
enum Mutation {
    Flip(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Repeat(Index, Index),
    Cut(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let doubtful = prop_oneof![
        6 => select(b"\r\n\0 \t:,;/#\\\x0b\x0c\x7f\x80\xff%\"".to_vec()),
        1 => any::<u8>(),
    ];
    prop_oneof![
        3 => (any::<Index>(), 1u8..).prop_map(|(at, mask)| Mutation::Flip(at, mask)),
        6 => (any::<Index>(), doubtful).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        3 => any::<Index>().prop_map(Mutation::Remove),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Mutation::Repeat(from, to)),
        1 => any::<Index>().prop_map(Mutation::Cut),
    ]
}

fn mutate(mut bytes: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        if bytes.is_empty() {
            break;
        }
        let place = |at: &Index| at.index(bytes.len());
        match mutation {
            Mutation::Flip(at, mask) => {
                let at = place(at);
                bytes[at] ^= mask;
            }
            Mutation::Insert(at, byte) => bytes.insert(place(at), *byte),
            Mutation::Remove(at) => {
                bytes.remove(place(at));
            }
            Mutation::Repeat(a, b) => {
                let (a, b) = (place(a), place(b));
                let part = bytes[a.min(b)..a.max(b)].to_vec();
                bytes.extend(part);
            }
            Mutation::Cut(at) => bytes.truncate(place(at)),
        }
    }
    bytes
}

/// The bytes in pieces of the lengths given, over and over.
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

/// The content and the length of a body in chunks, which has to be whole.
fn decode(bytes: &[u8]) -> Result<(Vec<u8>, Fields, usize), Reject> {
    let (mut decoder, mut content, mut at) = (Decoder::new(), Vec::new(), 0);
    loop {
        match decoder.step(&bytes[at..], &Limits::default())? {
            Step::Data { start, end } => {
                content.extend_from_slice(&bytes[at + start..at + end]);
                at += end;
            }
            Step::NeedMore { .. } => panic!("the content is not whole"),
            Step::Done { consumed } => return Ok((content, decoder.trailers().clone(), at + consumed)),
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn requests_are_read_alike(bytes in request()) {
        compare(&bytes)?;
    }

    #[test]
    fn broken_requests_are_read_alike(bytes in request(), mutations in vec(mutation(), 1..4)) {
        compare(&mutate(bytes, &mutations))?;
    }

    #[test]
    fn every_prefix_is_waited_for_or_read_alike(bytes in request(), cut in any::<Index>()) {
        compare(&bytes[..cut.index(bytes.len())])?;
    }

    #[test]
    fn no_cut_changes_a_verdict(
        bytes in request(),
        mutations in vec(mutation(), 0..4),
        lengths in vec(1usize..40, 1..8),
    ) {
        let bytes = mutate(bytes, &mutations);
        let whole = read([&bytes[..]]);
        prop_assert_eq!(&read(bytes.chunks(1)), &whole, "byte by byte: {}", bytes.escape_ascii());
        prop_assert_eq!(&read(pieces(&bytes, &lengths)), &whole, "{:?}: {}", lengths, bytes.escape_ascii());
    }

    // A client says the same again and again, and a head remembers what it made of it.
    #[test]
    fn a_head_in_use_again_reads_as_a_new_one(
        sections in vec((select(vec!["Host: a\r\n", "host: b\r\n", ""]), vec(field(), 0..4)), 1..4),
        requests in vec((method(), target(), select(vec!["1.1", "1.1", "1.1", "1.0"]), any::<Index>(), any::<Index>()), 2..12),
        cuts in vec(prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)], 12),
        limits in vec(prop_oneof![3 => Just((16_384, 100)), 1 => Just((60, 100)), 1 => Just((16_384, 2))], 12),
    ) {
        let mut head = RequestHead::default();
        for ((method, target, version, section, rest), (cut, (head_bytes_max, fields_max))) in
            requests.iter().zip(cuts.iter().zip(limits))
        {
            let limits = Limits { head_bytes_max, fields_max, ..Limits::default() };
            let (host, fields) = section.get(&sections);
            let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
            let rest = rest.get(&["", "\r\n", "x", "GET / HTTP/1.1\r\nHost: b\r\n\r\n"]);
            let bytes = format!("{method} {target} HTTP/{version}\r\n{host}{fields}\r\n{rest}").into_bytes();
            head.clear();
            prop_assert!(head.fields(&[]).next().is_none() && head.value(&[], Known::Host).is_none());
            if let Some(cut) = cut
                && parse_request(&bytes[..cut.index(bytes.len())], &limits, &mut head) != Ok(false)
            {
                head.clear();
            }
            let again = said(&bytes, &limits, &mut head);
            prop_assert_eq!(again, said(&bytes, &limits, &mut RequestHead::default()), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn no_bytes_panic(bytes in vec(any::<u8>(), 0..200), lengths in vec(1usize..40, 1..8)) {
        compare(&bytes)?;
        prop_assert_eq!(read(pieces(&bytes, &lengths)), read([&bytes[..]]));
    }

    #[test]
    fn no_chunks_panic(
        text in "([0-9a-fA-F]{0,3}(;[a-z=\" ;]{0,6})?(\r\n|\n|\r)?[a-z:\r\n ]{0,6}){0,6}",
        lengths in vec(1usize..9, 1..8),
    ) {
        let bytes = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{text}").into_bytes();
        prop_assert_eq!(read(pieces(&bytes, &lengths)), read([&bytes[..]]), "{}", bytes.escape_ascii());
    }

    #[test]
    fn what_is_written_in_chunks_is_read(chunks in vec(vec(any::<u8>(), 1..50), 0..12), trailer in "[ -~]{0,20}") {
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
    fn a_chunk_size_is_the_number_that_it_writes(text in "[0-9a-fA-F]{1,18}[ \t;+_xg]{0,2}(\r\n|\n)[\r\n]?") {
        let mut decoder = Decoder::new();
        if let Ok(step) = decoder.step(text.as_bytes(), &Limits::default())
            && text.contains('\n')
        {
            let Ok(httparse::Status::Complete((at, size))) = httparse::parse_chunk_size(text.as_bytes()) else {
                panic!("{} is no size to the other parser", text.escape_default());
            };
            match step {
                Step::Data { start, end } => prop_assert!(start == at && end - start <= size as usize),
                // A size of zero leads to trailers, whose first bytes may have been read.
                Step::NeedMore { .. } | Step::Done { .. } => prop_assert!(size == 0 || text.len() == at),
            }
        }
    }
}

/// The list above is worth something only while the generators reach both sides of it.
#[test]
fn the_generators_reach_what_they_are_for() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let strategy = (request(), vec(mutation(), 0..3));
    let (mut accepted, mut refused_alone) = (0, std::collections::HashSet::new());
    const ROUNDS: usize = 20_000;
    for _ in 0..ROUNDS {
        let (bytes, mutations) = strategy.new_tree(&mut runner).unwrap().current();
        let bytes = mutate(bytes, &mutations);
        match ours(&bytes) {
            Ok(Some(_)) => accepted += 1,
            Err(reject) if theirs(&bytes).is_some() => {
                refused_alone.insert(reject);
            }
            _ => {}
        }
    }
    assert!(accepted > ROUNDS / 10, "only {accepted} of {ROUNDS} are accepted");
    for reject in [
        Reject::BareLineFeed,
        Reject::RequestLineMalformed,
        Reject::MethodTooLong,
        Reject::TargetMalformed,
        Reject::TargetFormWrong,
        Reject::HostMissing,
        Reject::HostRepeated,
        Reject::HostInvalid,
        Reject::TwoFramings,
        Reject::ContentLengthInvalid,
        Reject::ContentLengthRepeated,
        Reject::TransferEncodingInHttp10,
        Reject::TransferEncodingInvalid,
        Reject::TransferEncodingUnknown,
        Reject::ExpectationUnknown,
        Reject::TooManyFields,
    ] {
        assert!(refused_alone.contains(&reject), "{reject:?} is never reached");
    }
}
