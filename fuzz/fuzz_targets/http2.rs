//! Fuzzes an HTTP/2 connection of either role: it never panics, its events do not depend on how the bytes are split,
//! and what it writes is bounded by what it receives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_proto::StatusCode;
use selvedge_proto::http2::{
    Connection, ConnectionError, Content, End, Event, Http2Limits, Millis, ResetCause, Role, Section, StreamId,
};

/// What happened: pieces of content on one stream are joined.
#[derive(Debug, PartialEq)]
enum Observed {
    Content(StreamId, usize, End),
    Other(Event),
}

/// Bytes that a connection may write for each received one: RST_STREAM for each HEADERS without a block, and a
/// response for each request.
const WRITTEN_RATIO: usize = 8;

/// Bytes that a connection may write besides: its preface, and GOAWAY with its text.
const WRITTEN_BASE: usize = 400;

struct Driver {
    connection: Connection,
    out: Vec<u8>,
    observed: Vec<Observed>,
    open: Vec<StreamId>,
}

impl Driver {
    fn new(role: Role) -> Self {
        let mut limits = Http2Limits { streams_max: 5, stream_window_bytes: 100, ..Http2Limits::default() };
        limits.budget_points = 2_000;
        limits.section.section_bytes_max = 500;
        let mut driver = Self {
            connection: Connection::new(role, &limits, Millis(0)),
            out: Vec::new(),
            observed: Vec::new(),
            open: Vec::new(),
        };
        driver.connection.start(&mut driver.out);
        if role == Role::Client {
            for end in [End::Last, End::More, End::Last] {
                let opened = driver.connection.open(end, &mut driver.out, |block| block.field(b":method", b"GET"));
                driver.open.extend(opened);
            }
        } else {
            driver.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("the preface is valid");
        }
        driver
    }

    fn receive(&mut self, mut input: &[u8]) -> Result<(), ConnectionError> {
        loop {
            let step = self.connection.receive(input, Millis(0), &mut self.out)?;
            let Some(event) = step.event else {
                assert_eq!(step.consumed, input.len());
                return Ok(());
            };
            self.process(event);
            input = &input[step.consumed..];
        }
    }

    fn process(&mut self, event: Event) {
        match &event {
            Event::Headers { stream, .. } => {
                assert!(self.connection.fields().section_bytes() <= 500);
                // Every second stream gets its response at once; content waits for a window.
                let section = if stream.get() % 4 == 1 { Section::Head(End::Last) } else { Section::Head(End::More) };
                let _ =
                    self.connection.send_fields(*stream, section, &mut self.out, |block| block.status(StatusCode::OK));
                self.connection.set_content(*stream, Content::Ready);
                self.open.push(*stream);
            }
            Event::Data { stream, content, end } => {
                let mut length = content.len();
                if let Some(Observed::Content(last, before, End::More)) = self.observed.last()
                    && last == stream
                {
                    length += before;
                    self.observed.pop();
                }
                return self.observed.push(Observed::Content(*stream, length, *end));
            }
            Event::Reset { stream, cause, .. } => {
                assert_eq!(self.connection.sendable(*stream), 0);
                assert!(!matches!(cause, ResetCause::NotProcessed) || self.open.contains(stream));
            }
            Event::Trailers { .. } | Event::Writable | Event::GoAway { .. } | Event::PingAcknowledged { .. } => {}
        }
        self.observed.push(Observed::Other(event));
    }

    /// Sends what windows permit, a bounded number of times.
    fn send(&mut self) {
        for _ in 0..100 {
            let Some(turn) = self.connection.next_to_send() else { break };
            let end = if turn.bytes_max % 2 == 0 { End::More } else { End::Last };
            let sent = self.connection.begin_data(turn.stream, turn.bytes_max.min(7), end, &mut self.out);
            sent.expect("a turn permits it");
        }
    }
}

/// Receives the bytes in pieces. Returns what happened, the error, and what was written.
fn run(role: Role, bytes: &[u8], piece_bytes: usize) -> (Vec<Observed>, Option<ConnectionError>, Vec<u8>) {
    let mut driver = Driver::new(role);
    let error = bytes.chunks(piece_bytes).find_map(|piece| driver.receive(piece).err());
    let written = driver.out.clone();
    if error.is_none() {
        driver.send();
        for stream in std::mem::take(&mut driver.open) {
            driver.connection.consumed(stream, 50, &mut driver.out);
        }
        driver.connection.compact();
        driver.connection.begin_shutdown(Millis(1), &mut driver.out);
    }
    (driver.observed, error, written)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let role = if first % 2 == 0 { Role::Server } else { Role::Client };
    let whole = run(role, rest, rest.len().max(1));
    assert!(whole.2.len() <= WRITTEN_BASE + WRITTEN_RATIO * rest.len());
    assert_eq!(whole, run(role, rest, 1));
    assert_eq!(whole, run(role, rest, 10));
});
