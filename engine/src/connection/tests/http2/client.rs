//! A client of HTTP/2 that does what a test tells it, also if that is slow, wrong or hostile.
//!
//! It reads frames independently of the code that writes them; only field blocks are decoded by the project's decoder.

use super::super::scenario::{Client, TestServer, settle};
use selvedge_proto::field_section::SectionLimits;
use selvedge_proto::http2::hpack::Decoder;
use std::collections::BTreeMap;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const PRIORITY_UPDATE: u8 = 16;

/// END_STREAM of HEADERS and DATA, ACK of SETTINGS and PING.
pub(super) const LAST: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

pub(super) const NO_ERROR: u32 = 0;
pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const INTERNAL_ERROR: u32 = 2;
pub(super) const FLOW_CONTROL_ERROR: u32 = 3;
pub(super) const REFUSED_STREAM: u32 = 7;
pub(super) const CANCEL: u32 = 8;

/// The setting of the initial window of streams.
pub(super) const INITIAL_WINDOW: u16 = 4;
pub(super) const WINDOW_MAX: u32 = (1 << 31) - 1;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// To which frames the client replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replies {
    /// It acknowledges SETTINGS and PING, and opens windows by what it has received.
    All,
    /// It acknowledges SETTINGS and PING.
    NoWindows,
    /// None.
    Nothing,
}

/// A frame of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

/// The response on a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamResponse {
    pub(super) interim: Vec<u16>,
    pub(super) status: u16,
    pub(super) fields: Vec<(String, String)>,
    pub(super) content: Vec<u8>,
    pub(super) trailers: Vec<(String, String)>,
    pub(super) is_complete: bool,
    /// The code of RST_STREAM.
    pub(super) reset: Option<u32>,
}

impl StreamResponse {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("tests send text")
    }
}

pub(super) struct Http2Client<'a> {
    pub(super) client: Client<'a>,
    pub(super) replies: Replies,
    /// What is to be sent next.
    output: Vec<u8>,
    decoder: Decoder,
    read_len: usize,
    frames: Vec<Frame>,
    streams: BTreeMap<u32, StreamResponse>,
    next_stream: u32,
}

impl<'a> Http2Client<'a> {
    /// Opens a connection whose client does all that it should.
    pub(super) async fn connect(server: &'a TestServer) -> Self {
        Self::connect_with(server, Replies::All, &[]).await
    }

    /// Opens a connection with settings of the client.
    pub(super) async fn connect_with(server: &'a TestServer, replies: Replies, settings: &[(u16, u32)]) -> Self {
        let mut client = Self {
            client: server.connect(),
            replies,
            output: PREFACE.to_vec(),
            decoder: Decoder::new(4096),
            read_len: 0,
            frames: Vec::new(),
            streams: BTreeMap::new(),
            next_stream: 1,
        };
        let settings = settings.iter().flat_map(|(setting, value)| {
            setting.to_be_bytes().into_iter().chain(value.to_be_bytes()).collect::<Vec<u8>>()
        });
        client.frame(SETTINGS, 0, 0, &settings.collect::<Vec<u8>>());
        client.send().await;
        client
    }

    /// Adds a frame to what is to be sent.
    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
        self.output.extend_from_slice(&length[1..]);
        self.output.extend_from_slice(&[kind, flags]);
        self.output.extend_from_slice(&stream.to_be_bytes());
        self.output.extend_from_slice(payload);
    }

    /// Returns the stream of the next request.
    pub(super) fn next_stream(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    /// Adds a request. Returns its stream.
    pub(super) fn request(&mut self, flags: u8, method: &str, path: &str, fields: &[(&str, &str)]) -> u32 {
        let stream = self.next_stream();
        let pseudo = [(":method", method), (":scheme", "http"), (":authority", "test"), (":path", path)];
        self.frame(HEADERS, flags | END_HEADERS, stream, &block(pseudo.iter().chain(fields)));
        stream
    }

    /// Adds a request without content.
    pub(super) fn get(&mut self, path: &str) -> u32 {
        self.request(LAST, "GET", path, &[])
    }

    /// Adds a request whose content follows.
    pub(super) fn post(&mut self, path: &str) -> u32 {
        self.request(0, "POST", path, &[])
    }

    /// Adds content in frames of usual length.
    pub(super) fn data(&mut self, flags: u8, stream: u32, content: &[u8]) {
        let count = content.chunks(16_384).len();
        for (at, piece) in content.chunks(16_384).enumerate() {
            self.frame(DATA, if at + 1 == count { flags } else { 0 }, stream, piece);
        }
        if count == 0 {
            self.frame(DATA, flags, stream, &[]);
        }
    }

    /// Adds trailers.
    pub(super) fn trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        self.frame(HEADERS, LAST | END_HEADERS, stream, &block(fields.iter()));
    }

    pub(super) fn open_window(&mut self, stream: u32, bytes: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    /// Sends what was added and the replies, and reads until nothing more happens at once.
    pub(super) async fn send(&mut self) {
        loop {
            let output = std::mem::take(&mut self.output);
            match output.is_empty() || self.client.closed().is_some() {
                true => settle().await,
                false => self.client.send(output).await,
            }
            if !self.read() && self.output.is_empty() {
                return;
            }
        }
    }

    /// Sends what was added, and lets nothing follow yet.
    pub(super) fn push(&mut self) {
        self.client.pipe.push(&std::mem::take(&mut self.output));
    }

    /// Requests a path, and returns the response.
    pub(super) async fn fetch(&mut self, path: &str) -> StreamResponse {
        let stream = self.get(path);
        self.send().await;
        self.response(stream).clone()
    }

    /// Returns what has arrived of a response.
    pub(super) fn response(&self, stream: u32) -> &StreamResponse {
        self.streams.get(&stream).unwrap_or_else(|| panic!("nothing has arrived on stream {stream}"))
    }

    /// Whether anything has arrived on a stream.
    pub(super) fn has_response(&self, stream: u32) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Returns the frames of a kind.
    pub(super) fn frames(&self, kind: u8) -> Vec<&Frame> {
        self.frames.iter().filter(|frame| frame.kind == kind).collect()
    }

    /// Returns the last stream and the code of each GOAWAY.
    pub(super) fn goaways(&self) -> Vec<(u32, u32)> {
        let number = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().expect("it has four bytes"));
        self.frames(GOAWAY).iter().map(|frame| (number(&frame.payload), number(&frame.payload[4..]))).collect()
    }

    /// Returns the statuses in the reports on streams, which have one each.
    pub(super) fn reported(&self) -> BTreeMap<u64, u16> {
        let mut reported = BTreeMap::new();
        for finished in self.client.finished() {
            let before = reported.insert(finished.stream, finished.status);
            assert_eq!(before, None, "stream {} is reported once", finished.stream);
        }
        reported
    }

    /// Reads the frames that have arrived. Returns whether any have.
    fn read(&mut self) -> bool {
        let all = self.client.pipe.outgoing();
        let before = self.read_len;
        while let Some(header) = all[self.read_len..].first_chunk::<9>() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let start = self.read_len + header.len();
            let Some(payload) = all.get(start..start + length) else { break };
            self.read_len = start + length;
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            self.on_frame(Frame { kind: header[3], flags: header[4], stream, payload: payload.to_vec() });
        }
        self.read_len > before
    }

    fn on_frame(&mut self, frame: Frame) {
        match frame.kind {
            DATA => self.on_data(&frame),
            HEADERS => self.on_block(&frame),
            RST_STREAM => {
                let code = u32::from_be_bytes(*frame.payload.first_chunk().expect("it has a code"));
                let reset = &mut self.streams.entry(frame.stream).or_default().reset;
                assert_eq!(reset.replace(code), None, "stream {} is reset once", frame.stream);
            }
            SETTINGS | PING if frame.flags & LAST == 0 && self.replies != Replies::Nothing => {
                let payload: &[u8] = if frame.kind == PING { &frame.payload } else { &[] };
                self.frame(frame.kind, LAST, 0, payload);
            }
            _ => {}
        }
        self.frames.push(frame);
    }

    fn on_data(&mut self, frame: &Frame) {
        let response = self.streams.get_mut(&frame.stream).expect("a head precedes content");
        assert!(!response.is_complete && response.reset.is_none(), "no content follows the end");
        response.content.extend_from_slice(&frame.payload);
        response.is_complete = frame.flags & LAST != 0;
        let (length, is_complete) = (frame.payload.len() as u32, response.is_complete);
        if self.replies == Replies::All && length > 0 {
            self.open_window(0, length);
            if !is_complete {
                self.open_window(frame.stream, length);
            }
        }
    }

    fn on_block(&mut self, frame: &Frame) {
        assert_ne!(frame.flags & END_HEADERS, 0, "heads of tests are short");
        self.decoder.decode_block(&frame.payload, &SectionLimits::default()).expect("a block is valid");
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("tests send text");
        let fields = self.decoder.fields().iter().map(|field| (text(field.name), text(field.value)));
        let mut fields: Vec<(String, String)> = fields.collect();
        let response = self.streams.entry(frame.stream).or_default();
        assert!(!response.is_complete && response.reset.is_none(), "nothing follows the end");
        response.is_complete = frame.flags & LAST != 0;
        if response.status != 0 {
            assert!(response.is_complete, "trailers end the stream");
            response.trailers = fields;
            return;
        }
        let (name, status) = fields.remove(0);
        assert_eq!(name, ":status");
        match status.parse().expect("a status is a number") {
            interim @ 100..200 => response.interim.push(interim),
            status => (response.status, response.fields) = (status, fields),
        }
    }
}

/// Encodes fields without compression.
pub(super) fn block<'f>(fields: impl Iterator<Item = &'f (&'f str, &'f str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            // The prefix of the integer has seven bits (RFC 7541 §5.1).
            let mut rest = text.len();
            if rest < 127 {
                block.push(rest as u8);
            } else {
                block.push(127);
                rest -= 127;
                while rest >= 128 {
                    block.push(rest as u8 | 128);
                    rest >>= 7;
                }
                block.push(rest as u8);
            }
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
