//! Reads all rows of `cases/proxy/` as a client does: whole, byte by byte, and split at random positions.
//!
//! `checks/proxy.py` runs these rows against the program, too; `checks/proxy_rows.py` describes their format.

use crate::cases::{Xorshift, split_at_random};
use selvedge_cases::escape::unescape;
use selvedge_proto::http1::MalformedResponse;
use selvedge_proto::http1::chunked::{ChunkEvent, ChunkedDecoder};
use selvedge_proto::http1::parse_response::{
    RequestContext, ResponseFraming, ResponseHead, UpgradeOffer, parse_response,
};
use selvedge_proto::limits::RESPONSE_FIELDS_CEILING;
use selvedge_proto::method::Method;
use selvedge_proto::{MessageLimits, Persistence};
use std::fs;
use std::path::Path;

/// Random splits of each row.
const SPLITS: u64 = 16;

/// If fewer rows are loaded, files are missing.
const ROWS_MIN: usize = 110;

/// Longer rows are not read byte by byte.
const BYTE_BY_BYTE_MAX: usize = 20_000;

/// Interim responses that a client accepts.
const INTERIM_MAX: usize = 8;

/// A row: what the upstream sends, and what has to become of it.
struct Row {
    name: String,
    context: RequestContext,
    sent: Vec<u8>,
    verdict: String,
}

fn parse_row(lines: &[&str]) -> Row {
    let name = lines[0].split("  ").next().unwrap().to_owned();
    let mut row = Row { name, context: RequestContext::default(), sent: Vec::new(), verdict: String::new() };
    for line in &lines[1..] {
        if let Some(verdict) = line.strip_prefix("= ") {
            row.verdict = verdict.to_owned();
        } else if let Some(bytes) = line.strip_prefix("<- ") {
            row.sent.extend(unescape(bytes).unwrap());
        } else if let Some(field) = line.strip_prefix("> Upgrade") {
            assert!(field.starts_with(": "));
            row.context.upgrade = UpgradeOffer::Offered;
        } else if let Some(method) = line.strip_prefix("> ") {
            if !method.contains(':') {
                row.context.method = Method::from_token(method.as_bytes());
            }
        } else if let Some(text) = line.strip_prefix('<')
            && !text.starts_with('!')
        {
            row.sent.extend(unescape(text.strip_prefix(' ').unwrap_or(text)).unwrap());
            row.sent.extend(b"\r\n");
        }
    }
    assert!(!row.verdict.is_empty(), "{}: no verdict", row.name);
    row
}

fn load_rows() -> Vec<Row> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases/proxy");
    let mut rows = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for block in text.split("\n\n") {
            let lines: Vec<&str> = block.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            if !lines.is_empty() {
                rows.push(parse_row(&lines));
            }
        }
    }
    rows
}

/// How reading ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The response is complete; this many bytes follow it.
    Complete {
        rest: usize,
        persistence: Persistence,
    },
    Malformed(MalformedResponse),
    /// More bytes are needed. The end of the connection is then the end of the content, or an error.
    Unfinished(ResponseFraming),
    /// More interim responses than a client accepts.
    InterimTooMany,
}

/// What a client has read. The status is 0 until the head is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    status: u16,
    content: Vec<u8>,
    end: End,
}

struct Reader<'a> {
    row: &'a Row,
    head: ResponseHead,
    /// Whether the head of the final response is complete.
    has_head: bool,
    interim: usize,
    decoder: ChunkedDecoder,
    at: usize,
    content: Vec<u8>,
}

impl Reader<'_> {
    /// Reads on in the bytes that are received. Returns how the response ends, or `None` if more bytes are needed.
    fn read(&mut self, received: &[u8]) -> Option<End> {
        // That of a client.
        let limits = MessageLimits { fields_max: RESPONSE_FIELDS_CEILING, ..MessageLimits::default() };
        while !self.has_head {
            match parse_response(&received[self.at..], self.row.context, &limits, &mut self.head) {
                Ok(false) => return None,
                Err(malformed) => return Some(End::Malformed(malformed)),
                Ok(true) => {}
            }
            self.at += self.head.len;
            self.has_head = !self.head.status.is_interim() || self.head.framing == ResponseFraming::Upgraded;
            if !self.has_head {
                self.interim += 1;
                if self.interim > INTERIM_MAX {
                    return Some(End::InterimTooMany);
                }
                self.head.clear();
            }
        }
        match self.head.framing {
            ResponseFraming::None | ResponseFraming::Upgraded => return Some(self.complete(received)),
            ResponseFraming::Length(length) => {
                let wanted = length as usize - self.content.len();
                self.take(received, wanted.min(received.len() - self.at));
                if self.content.len() as u64 == length {
                    return Some(self.complete(received));
                }
            }
            ResponseFraming::UntilClose => self.take(received, received.len() - self.at),
            ResponseFraming::Chunked => loop {
                match self.decoder.decode_next(&received[self.at..], &limits) {
                    Ok(ChunkEvent::Data { start, end }) => {
                        self.content.extend(&received[self.at + start..self.at + end]);
                        self.at += end;
                    }
                    Ok(ChunkEvent::NeedMore { consumed }) => {
                        self.at += consumed;
                        return None;
                    }
                    Ok(ChunkEvent::Done { consumed }) => {
                        self.at += consumed;
                        return Some(self.complete(received));
                    }
                    Err(reject) => return Some(End::Malformed(reject.into())),
                }
            },
        }
        None
    }

    fn take(&mut self, received: &[u8], count: usize) {
        self.content.extend(&received[self.at..self.at + count]);
        self.at += count;
    }

    fn complete(&self, received: &[u8]) -> End {
        End::Complete { rest: received.len() - self.at, persistence: self.head.persistence }
    }
}

/// Reads the bytes of a row in pieces.
fn read<'a>(row: &Row, pieces: impl Iterator<Item = &'a [u8]>) -> Outcome {
    let decoder = ChunkedDecoder::new();
    let (head, content) = (ResponseHead::default(), Vec::new());
    let mut reader = Reader { row, head, has_head: false, interim: 0, decoder, at: 0, content };
    let (mut received, mut end) = (0, None);
    for piece in pieces {
        received += piece.len();
        end = reader.read(&row.sent[..received]);
        if end.is_some() {
            break;
        }
    }
    // The bytes behind a response count, whether they arrive with it or later.
    let end = match end {
        Some(End::Complete { persistence, .. }) => End::Complete { rest: row.sent.len() - reader.at, persistence },
        Some(end) => end,
        None => End::Unfinished(if reader.has_head { reader.head.framing } else { ResponseFraming::None }),
    };
    let status = if reader.has_head { reader.head.status.code() } else { 0 };
    Outcome { status, content: reader.content, end }
}

/// Compares what a client read with the verdict of the row.
fn check(row: &Row, outcome: &Outcome) {
    let shown = || format!("{}: {:?} {}", row.name, outcome.end, outcome.content.escape_ascii());
    let body = row.verdict.split_once("body=\"").map(|(_, rest)| unescape(rest.split_once('"').unwrap().0).unwrap());
    let words: Vec<&str> = row.verdict.split(' ').collect();
    match (words[0], &outcome.end) {
        ("502", End::Malformed(malformed)) => {
            assert_eq!((words[1], outcome.status), (malformed.name(), 0), "{}", shown());
        }
        ("502", End::InterimTooMany | End::Unfinished(ResponseFraming::None)) => {
            assert_eq!(words[1], "close", "{}", shown());
        }
        // The proxy compares the protocol with the offered one.
        ("502", End::Complete { .. }) => assert!(row.name.contains("another protocol"), "{}", shown()),
        ("abort", End::Malformed(_) | End::Unfinished(ResponseFraming::Length(_) | ResponseFraming::Chunked)) => {
            assert_eq!(words[1], outcome.status.to_string(), "{}", shown());
            assert!(body.is_none_or(|body| body == outcome.content), "{}", shown());
        }
        (status, End::Complete { rest, persistence }) => {
            assert_eq!((status, &body.unwrap()), (&*outcome.status.to_string(), &outcome.content), "{}", shown());
            let is_reused = *rest == 0 && *persistence == Persistence::KeepAlive;
            assert_eq!(row.verdict.ends_with("reuse"), is_reused, "{}", shown());
        }
        (status, End::Unfinished(ResponseFraming::UntilClose)) => {
            assert_eq!((status, &body.unwrap()), (&*outcome.status.to_string(), &outcome.content), "{}", shown());
            assert!(row.verdict.ends_with("close"), "{}", shown());
        }
        _ => panic!("{}", shown()),
    }
}

#[test]
fn rows_of_responses_hold_for_all_splits() {
    let rows = load_rows();
    assert!(rows.len() >= ROWS_MIN, "{} rows", rows.len());
    for row in &rows {
        let whole = read(row, std::iter::once(&row.sent[..]));
        check(row, &whole);
        if row.sent.len() <= BYTE_BY_BYTE_MAX {
            assert_eq!(whole, read(row, row.sent.chunks(1)), "{}: byte by byte", row.name);
        }
        for round in 0..SPLITS {
            let pieces = split_at_random(&row.sent, Xorshift::seeded(&row.name, round));
            assert_eq!(whole, read(row, pieces.into_iter()), "{}: split {round}", row.name);
        }
    }
}
