//! Scripts of a connection: frames of the peer, calls of the driver, and a transcript of what happens.
//!
//! Steps are separated by line ends or `;`. A step that begins with `>` is a call of the driver; all others are frames:
//!
//! ```text
//! headers 1 end              > respond 1 end
//! data 3 10 pad=4            > reset 1 CANCEL
//! ```

use super::random::Random;
use selvedge_proto::http2::hpack::BlockEncoder;
use selvedge_proto::http2::{
    Connection, ConnectionError, Content, End, ErrorCode, Event, FieldSection, Http2Limits, Millis, Priority,
    ResetCause, Role, Section, StreamId,
};
use selvedge_proto::status::StatusCode;
use std::collections::HashMap;

/// A request without references to the dynamic table: GET, http, `/`, authority `a`.
pub(super) const GET: &str = "828684010161";
/// POST, http, `/`, authority `a`.
pub(super) const POST: &str = "838684010161";
/// The field `x: y`.
const TRAILERS: &str = "0001780179";
/// Status 200.
const OK: &str = "88";
/// Status 100.
const CONTINUE: &str = "0803313030";

/// The preface of a client.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns the bytes of a frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The words of one step: positional ones, flags, and `name=value`.
struct Words<'a> {
    positional: Vec<&'a str>,
    named: HashMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn parse(step: &'a str) -> Self {
        let (named, positional): (Vec<_>, Vec<_>) = step.split_whitespace().partition(|word| word.contains('='));
        Self { positional, named: named.iter().map(|word| word.split_once('=').unwrap()).collect() }
    }

    fn number(&self, index: usize) -> u32 {
        self.positional[index].parse().unwrap_or_else(|_| panic!("{:?}", self.positional))
    }

    fn has(&self, flag: &str) -> bool {
        self.positional.contains(&flag)
    }

    fn end(&self) -> End {
        if self.has("end") { End::Last } else { End::More }
    }

    /// Returns 0x1 if the frame ends its stream.
    fn end_stream(&self) -> u8 {
        u8::from(self.has("end"))
    }

    /// Puts padding around a payload. Returns it with the flag.
    fn pad(&self, payload: &[u8]) -> (u8, Vec<u8>) {
        let Some(pad) = self.named.get("pad") else {
            return (0, payload.to_vec());
        };
        let pad: u8 = pad.parse().unwrap();
        let present = self.named.get("present").map_or(pad, |present| present.parse().unwrap());
        let padded = [&[pad], payload, &vec![0; usize::from(present)][..]].concat();
        (0x8, padded)
    }
}

fn block_named(words: &Words<'_>, default: &str) -> Vec<u8> {
    match words.named.get("block").copied() {
        None => hex(default),
        Some("get") => hex(GET),
        Some("post") => hex(POST),
        Some("trailers") => hex(TRAILERS),
        Some("ok") => hex(OK),
        Some("continue") => hex(CONTINUE),
        Some(digits) => hex(digits),
    }
}

/// Returns the bytes of a frame in words.
fn frame_in_words(step: &str) -> Vec<u8> {
    let words = Words::parse(step);
    let stream = |index| words.number(index);
    match words.positional[0] {
        "headers" => {
            let mut payload = Vec::new();
            let mut flags = words.end_stream() | if words.has("open") { 0 } else { 0x4 };
            if let Some(dependency) = words.named.get("dep") {
                payload.extend_from_slice(&dependency.parse::<u32>().unwrap().to_be_bytes());
                payload.push(15);
                flags |= 0x20;
            }
            payload.extend_from_slice(&block_named(&words, if words.has("end") { GET } else { POST }));
            let (padded, payload) = words.pad(&payload);
            frame(1, flags | padded, stream(1), &payload)
        }
        "trailers" => frame(1, 0x4 | words.end_stream(), stream(1), &block_named(&words, TRAILERS)),
        "continuation" => frame(9, if words.has("open") { 0 } else { 0x4 }, stream(1), &block_named(&words, "")),
        "data" => {
            let (padded, payload) = words.pad(&vec![b'x'; words.number(2) as usize]);
            frame(0, words.end_stream() | padded, stream(1), &payload)
        }
        "settings" => {
            let mut payload = Vec::new();
            for (identifier, value) in &words.named {
                payload.extend_from_slice(&identifier.parse::<u16>().unwrap().to_be_bytes());
                payload.extend_from_slice(&value.parse::<u32>().unwrap().to_be_bytes());
            }
            frame(4, 0, 0, &payload)
        }
        "settings-ack" => frame(4, 1, 0, &[]),
        "ping" => frame(6, 0, 0, b"01234567"),
        "ping-ack" => frame(6, 1, 0, words.positional[1].as_bytes()),
        "goaway" => frame(7, 0, 0, &[stream(1).to_be_bytes(), stream(2).to_be_bytes()].concat()),
        "window" => frame(8, 0, stream(1), &stream(2).to_be_bytes()),
        "rst" => frame(3, 0, stream(1), &stream(2).to_be_bytes()),
        "priority" => frame(2, 0, stream(1), &[&stream(2).to_be_bytes()[..], &[7]].concat()),
        "priority-update" => {
            frame(0x10, 0, 0, &[&stream(1).to_be_bytes()[..], step.splitn(3, ' ').nth(2).unwrap().as_bytes()].concat())
        }
        // frame TYPE FLAGS STREAM [HEX], with numbers in hexadecimal.
        "frame" => {
            let byte = |index: usize| u8::from_str_radix(words.positional[index], 16).unwrap();
            let payload = words.positional.get(4).map_or(Vec::new(), |digits| hex(digits));
            frame(byte(1), byte(2), stream(3), &payload)
        }
        "raw" => hex(words.positional[1]),
        "content" => vec![b'x'; words.number(1) as usize],
        "text" => words.positional[1].as_bytes().to_vec(),
        other => panic!("unknown frame {other}"),
    }
}

/// How the bytes of frames reach the connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Split {
    /// All frames between two calls of the driver at once.
    Whole,
    /// In pieces whose sizes repeat.
    Pieces(&'static [usize]),
    /// In pieces of random sizes, which depend only on the seed.
    Random(Random),
}

/// A connection with its transcript.
pub(super) struct Script {
    pub(super) connection: Connection,
    pub(super) now: Millis,
    pub(super) out: Vec<u8>,
    streams: HashMap<u32, StreamId>,
    transcript: Vec<String>,
    pub(super) error: Option<ConnectionError>,
    split: Split,
}

impl Script {
    /// Creates a connection whose preface is exchanged.
    pub(super) fn new(role: Role, limits: &Http2Limits, split: Split) -> Self {
        let mut script = Self::before_preface(role, limits, split);
        let preface = if role == Role::Server { PREFACE } else { &[] };
        script.receive(&[preface, &frame(4, 0, 0, &[]), &frame(4, 1, 0, &[])].concat());
        assert_eq!(script.take_transcript(), "SETTINGS ACK");
        script
    }

    pub(super) fn before_preface(role: Role, limits: &Http2Limits, split: Split) -> Self {
        let mut out = Vec::new();
        let mut connection = Connection::new(role, limits, Millis(0));
        connection.start(&mut out);
        out.clear();
        let (streams, transcript) = (HashMap::new(), Vec::new());
        Self { connection, now: Millis(0), out, streams, transcript, error: None, split }
    }

    /// Executes the steps.
    pub(super) fn run(&mut self, steps: &str) {
        let mut frames = Vec::new();
        for step in steps.split(['\n', ';']).map(str::trim).filter(|step| !step.is_empty()) {
            match step.strip_prefix('>') {
                None => frames.extend(frame_in_words(step)),
                Some(call) => {
                    self.receive(&std::mem::take(&mut frames));
                    self.call(call);
                }
            }
        }
        self.receive(&frames);
    }

    /// Receives bytes in the pieces of the split.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        for round in 0.. {
            if rest.is_empty() {
                break;
            }
            let size = match &mut self.split {
                Split::Whole => rest.len(),
                Split::Pieces(sizes) => sizes[round % sizes.len()],
                Split::Random(random) => 1 + random.below(48),
            };
            let (piece, after) = rest.split_at(size.min(rest.len()));
            self.receive_piece(piece);
            rest = after;
        }
    }

    fn receive_piece(&mut self, mut input: &[u8]) {
        while self.error.is_none() {
            let step = self.connection.receive(input, self.now, &mut self.out);
            self.record_written();
            match step {
                Ok(step) => {
                    let consumed = step.consumed;
                    let Some(event) = step.event else {
                        assert_eq!(consumed, input.len(), "all input is consumed");
                        return;
                    };
                    self.record_event(event, input);
                    input = &input[consumed..];
                }
                Err(error) => {
                    self.transcript.push(format!("error {}", error.name()));
                    self.error = Some(error);
                    assert_eq!(self.connection.receive(b"", self.now, &mut self.out), Err(error), "errors stay");
                }
            }
        }
    }

    fn call(&mut self, call: &str) {
        let words = Words::parse(call);
        match words.positional[0] {
            "respond" | "interim" | "trailers" | "data" => self.send(&words),
            "next" | "sendable" | "finished" => self.query(&words),
            "time" => self.pass_time(words.number(1)),
            _ => self.control(&words, call.rsplit(' ').next().unwrap_or_default()),
        }
        self.record_written();
    }

    fn stream(&self, words: &Words<'_>) -> StreamId {
        self.streams[&words.number(1)]
    }

    fn send(&mut self, words: &Words<'_>) {
        let (stream, connection, out) = (self.stream(words), &mut self.connection, &mut self.out);
        let status = |block: &mut BlockEncoder<'_>| block.status(StatusCode::OK);
        let interim = |block: &mut BlockEncoder<'_>| block.field(b":status", b"103");
        let trailers = |block: &mut BlockEncoder<'_>| block.field(b"content-language", b"a");
        let result = match words.positional[0] {
            "respond" => connection.send_fields(stream, Section::Head(words.end()), out, status),
            "interim" => connection.send_fields(stream, Section::Interim, out, interim),
            "trailers" => connection.send_fields(stream, Section::Trailers, out, trailers),
            _ => connection.begin_data(stream, words.number(2) as usize, words.end(), out),
        };
        if let Err(error) = result {
            self.transcript.push(format!("not sent {error:?}"));
        }
    }

    fn query(&mut self, words: &Words<'_>) {
        let line = match words.positional[0] {
            "next" => match self.connection.next_to_send() {
                Some(turn) => format!("next {} {}", turn.stream, turn.bytes_max),
                None => "next none".into(),
            },
            "sendable" => format!("sendable {}", self.connection.sendable(self.stream(words))),
            _ => format!("finished {}", self.connection.is_finished()),
        };
        self.transcript.push(line);
    }

    fn pass_time(&mut self, milliseconds: u32) {
        self.now = Millis(u64::from(milliseconds));
        if self.connection.deadline().is_some_and(|deadline| deadline <= self.now)
            && let Err(error) = self.connection.expired(self.now, &mut self.out)
        {
            self.transcript.push(format!("error {}", error.name()));
            self.error = Some(error);
        }
    }

    fn control(&mut self, words: &Words<'_>, call_value: &str) {
        let (connection, out) = (&mut self.connection, &mut self.out);
        let stream = || self.streams[&words.number(1)];
        match words.positional[0] {
            "reset" => connection.reset(stream(), ErrorCode(words.number(2)), out),
            "expect" => {
                if let Err(error) = connection.expect_content(stream(), u64::from(words.number(2)), out) {
                    self.transcript.push(format!("refused {}", error.name()));
                }
            }
            "consume" => connection.consumed(stream(), words.number(2) as usize, out),
            "priority" => connection.set_priority(stream(), Priority::parse(call_value.as_bytes())),
            "ready" => connection.set_content(stream(), Content::Ready),
            "wait" => connection.set_content(stream(), Content::Waiting),
            "open" => match connection.open(words.end(), out, |block| block.field(b":method", b"GET")) {
                Ok(stream) => drop(self.streams.insert(stream.get(), stream)),
                Err(error) => self.transcript.push(format!("not opened {error:?}")),
            },
            "ping" => connection.ping(*b"76543210", out),
            "shutdown" => connection.begin_shutdown(self.now, out),
            "compact" => connection.compact(),
            other => panic!("unknown call {other}"),
        }
    }

    fn record_event(&mut self, event: Event, input: &[u8]) {
        let end_word = |end| if end == End::Last { " end" } else { "" };
        let section_word = |section| match section {
            FieldSection::New => "",
            FieldSection::Repeated => " repeated",
            FieldSection::TooLarge(_) => " too-large",
        };
        let line = match event {
            Event::Headers { stream, end, section } => {
                self.streams.insert(stream.get(), stream);
                format!("head {stream}{}{}", end_word(end), section_word(section))
            }
            Event::Data { stream, content, end } => {
                assert!(input[content.clone()].iter().all(|&b| b == b'x'), "only content is delivered");
                // Pieces of content are joined, so the transcript does not depend on how input is split.
                let before = self.transcript.last().and_then(|last| {
                    let before = last.strip_prefix(&format!("data {stream} "))?;
                    before.parse::<usize>().ok()
                });
                if before.is_some() {
                    self.transcript.pop();
                }
                format!("data {stream} {}{}", before.unwrap_or(0) + content.len(), end_word(end))
            }
            Event::Trailers { stream, section } => format!("trailers {stream}{}", section_word(section)),
            Event::Reset { stream, code, cause } => match cause {
                ResetCause::Peer => format!("reset {stream} {code} by peer"),
                ResetCause::Violation(error) => format!("reset {stream} {}", error.name()),
                ResetCause::NotProcessed => format!("not processed {stream}"),
            },
            Event::Writable => "writable".into(),
            Event::GoAway { last_stream, code } => format!("goaway {last_stream} {code}"),
            Event::PingAcknowledged { payload } => format!("pong {}", String::from_utf8_lossy(&payload)),
        };
        self.transcript.push(line);
    }

    /// Records the frames that were written. Content is not written, so DATA is its header alone.
    fn record_written(&mut self) {
        let out = std::mem::take(&mut self.out);
        let mut rest = &out[..];
        while !rest.is_empty() {
            let (header, after) = rest.split_at(9);
            let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
            let stream = u32::from_be_bytes(header[5..9].try_into().unwrap());
            let has = |flag| header[4] & flag != 0;
            let payload = if header[3] == 0 { &[][..] } else { &after[..length] };
            rest = &after[payload.len()..];
            let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
            let end_word = if matches!(header[3], 0 | 1) && has(1) { " END" } else { "" };
            self.transcript.push(match header[3] {
                0 => format!("DATA {stream} {length}{end_word}"),
                1 => format!("HEADERS {stream}{end_word}"),
                3 => format!("RST_STREAM {stream} {}", ErrorCode(number(0))),
                4 if has(1) => "SETTINGS ACK".into(),
                4 => "SETTINGS".into(),
                6 if has(1) => format!("PING ACK {}", String::from_utf8_lossy(payload)),
                6 => format!("PING {}", String::from_utf8_lossy(payload)),
                7 => format!("GOAWAY {} {}", number(0), ErrorCode(number(4))),
                8 => format!("WINDOW_UPDATE {stream} {}", number(0)),
                9 => format!("CONTINUATION {stream}"),
                other => panic!("frame of type {other} written"),
            });
        }
    }

    /// Returns what happened since the last call, in lines joined by `; `.
    pub(super) fn take_transcript(&mut self) -> String {
        std::mem::take(&mut self.transcript).join("; ")
    }
}
