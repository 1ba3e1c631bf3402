//! Parses all rows of the case files: whole, byte by byte, and split at random positions.
//!
//! A server cannot choose how a peer's bytes are split, so no split may change a verdict.

use selvedge_cases::{Case, check, load_cases, read};
use selvedge_proto::field::KnownField;
use selvedge_proto::head::{RequestFraming, RequestHead};
use selvedge_proto::http1::parse_request;
use selvedge_proto::target::Span;
use selvedge_proto::{HeadBuilder, MessageLimits, RequestLine};
use std::num::NonZero;
use std::thread;

/// Random splits of each row.
const SPLITS: u64 = 32;

/// If fewer rows are loaded, files are missing.
const ROWS_MIN: usize = 340;

/// If fewer requests are built, the rows are not read.
const BUILT_MIN: usize = 200;

/// A generator whose numbers depend only on its seed, so that a failure can be reproduced.
pub(crate) struct Xorshift(u64);

impl Xorshift {
    /// Seeds the generator with the row's name, so that a row that moves keeps its splits.
    pub(crate) fn seeded(name: &str, round: u64) -> Self {
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self((hash ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Splits the bytes into pieces of random lengths.
///
/// The bound of the lengths is random too, so that some rounds have many pieces and some have few.
pub(crate) fn split_at_random(mut rest: &[u8], mut random: Xorshift) -> Vec<&[u8]> {
    let bound = 2 + random.below(rest.len().max(1));
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at((1 + random.below(bound)).min(rest.len()));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

fn run(case: &Case) -> Result<(), String> {
    let whole = read([&case.raw[..]]);
    check(case, &whole)?;
    let expect_equal = |how: String, got: Vec<String>| match got == whole {
        true => Ok(()),
        false => Err(check(case, &got).err().unwrap_or_else(|| case.to_string()) + &format!("  when read {how}\n")),
    };
    expect_equal("byte by byte".to_owned(), read(case.raw.chunks(1)))?;
    for round in 0..SPLITS {
        let random = Xorshift::seeded(&case.name, round);
        let how = format!("in pieces, seed {:#x}", random.0);
        expect_equal(how, read(split_at_random(&case.raw, random)))?;
    }
    Ok(())
}

#[test]
fn rows_hold_for_all_splits() {
    let cases = load_cases();
    // Long rows, read byte by byte, take most of the time, so the rows are distributed to all cores.
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = &|first: usize| -> Vec<String> {
        cases.iter().skip(first).step_by(threads).filter_map(|case| run(case).err()).collect()
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        started.into_iter().flat_map(|thread| thread.join().expect("no row panics")).collect()
    });
    assert!(failures.is_empty(), "{} of {} rows\n{}", failures.len(), cases.len(), failures.join("\n"));
    assert!(cases.len() >= ROWS_MIN, "only {} rows", cases.len());
}

/// The content of a head, as text without positions.
fn describe(bytes: &[u8], head: &RequestHead) -> String {
    let text = |span: Span| span.of(bytes).escape_ascii().to_string();
    let known =
        [KnownField::Host, KnownField::Connection, KnownField::AcceptEncoding, KnownField::Range].map(|field| {
            let values: Vec<_> = head.values(bytes, field).map(|value| value.escape_ascii().to_string()).collect();
            (head.is_repeated(field), values)
        });
    let fields: Vec<_> =
        head.fields(bytes).map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii())).collect();
    let target = &head.target;
    format!(
        "{:?} {} {:?} {:?} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {fields:?} {known:?}",
        head.method,
        text(head.method_span),
        head.version,
        target.form,
        text(target.raw),
        text(target.path),
        target.query.map(text),
        target.authority.map(text),
        head.authority.map(text),
        head.framing,
        head.expectation,
        head.persistence,
    )
}

/// The positions of a head.
fn positions(head: &RequestHead) -> String {
    let RequestHead { method_span, target, authority, request_line, len, .. } = head;
    let values = [KnownField::Host, KnownField::Connection].map(|field| head.value_span(field));
    format!("{method_span:?} {target:?} {authority:?} {request_line:?} {len} {values:?}")
}

/// Builds each request of a row from its parts, with a head that is used again, until content without a
/// known length. Returns how many.
fn rebuild(case: &Case, built_head: &mut RequestHead) -> usize {
    let limits = MessageLimits::default();
    let (mut rest, mut count) = (&case.raw[..], 0);
    loop {
        let mut head = RequestHead::default();
        let Ok(true) = parse_request(rest, &limits, &mut head) else { return count };
        let line =
            RequestLine { method: head.method_span.of(rest), target: head.target.raw.of(rest), version: head.version };
        // The builder appends to a buffer that already has bytes.
        let mut bytes = b"GET ".to_vec();
        let mut builder = HeadBuilder::new(&mut bytes, built_head, &limits, line).expect("a valid request line");
        for (name, value) in head.fields(rest) {
            builder.field(name, value).expect("a valid field");
        }
        builder.finish().expect("a valid head");
        let built = &bytes[4..];
        assert_eq!(describe(built, built_head), describe(rest, &head), "{case}");
        let mut parsed = RequestHead::default();
        assert_eq!(parse_request(built, &limits, &mut parsed), Ok(true), "{case}");
        assert_eq!(positions(built_head), positions(&parsed), "{case}");
        count += 1;
        let content = match head.framing {
            RequestFraming::None => 0,
            RequestFraming::Length(length) => usize::try_from(length).unwrap_or(usize::MAX),
            RequestFraming::Chunked | RequestFraming::UntilStreamEnd => return count,
        };
        match rest.get(head.len.saturating_add(content)..) {
            Some(next) => rest = next,
            None => return count,
        }
    }
}

#[test]
fn built_heads_equal_parsed_ones() {
    let mut head = RequestHead::default();
    let count: usize = load_cases().iter().map(|case| rebuild(case, &mut head)).sum();
    assert!(count >= BUILT_MIN, "only {count} requests");
}
