//! Serves requests in memory, to count what HTTP/2 costs without I/O: frames, fields, head, response.
//!
//! The instructions of one request are the difference of two runs under callgrind:
//!
//! ```text
//! valgrind --tool=callgrind target/release/examples/http2_exchange indexed 1000
//! valgrind --tool=callgrind target/release/examples/http2_exchange indexed 11000
//! ```
//!
//! `repeated`: all requests and responses are equal. `indexed`: two of each alternate, whose fields are in the tables.

use selvedge_proto::date::HttpDate;
use selvedge_proto::field::Fields;
use selvedge_proto::field_section::{Protocols, RequestRules, build_request, repeat_request};
use selvedge_proto::head::{RequestHead, Version};
use selvedge_proto::http1::write::CommonFields;
use selvedge_proto::http2::hpack::Encoder;
use selvedge_proto::http2::{Connection, Content, End, Event, FieldSection, Http2Limits, Millis, Role, Section};
use selvedge_proto::{MessageLimits, StatusCode};
use std::error::Error;
use std::ops::Range;

/// Length of the content of a response, in bytes.
const CONTENT: [u8; 151] = [b'x'; 151];

/// Requests between two WINDOW_UPDATE frames, as a client with the initial window sends them.
const REQUESTS_OF_WINDOW: usize = 200;

/// Requests until all fields are in the tables, so that a client's blocks do not change.
const CHANGING_REQUESTS: u32 = 8;

/// Where a frame has its stream.
const STREAM: Range<usize> = 5..9;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns the block of a request with five fields besides the pseudo-fields.
fn request_block(encoder: &mut Encoder, path: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut fields = encoder.begin_block(&mut block);
    let names = [
        (&b":method"[..], &b"GET"[..]),
        (b":scheme", b"https"),
        (b":authority", b"www.example.com"),
        (b":path", path),
        (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
        (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
        (b"accept-language", b"en-US,en;q=0.5"),
        (b"accept-encoding", b"gzip, deflate, br, zstd"),
    ];
    names.iter().for_each(|(name, value)| fields.field(name, value));
    block
}

/// A server and what it keeps between requests.
struct ExampleServer {
    connection: Connection,
    limits: MessageLimits,
    head_bytes: Vec<u8>,
    head: RequestHead,
    out: Vec<u8>,
    common_fields: CommonFields,
    responses: [Fields; 2],
}

/// Returns the fields of a response.
fn response_fields(etag: &str) -> Result<Fields, Box<dyn Error>> {
    let mut fields = Fields::new();
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("last-modified", "Fri, 27 Nov 2026 08:00:00 GMT"),
        ("etag", etag),
    ] {
        fields.append(name, value)?;
    }
    Ok(fields)
}

impl ExampleServer {
    /// Processes input, and responds to its requests.
    #[inline(never)]
    fn exchange(&mut self, mut input: &[u8]) -> Result<(), Box<dyn Error>> {
        self.out.clear();
        loop {
            let step = self.connection.receive(input, Millis(0), &mut self.out)?;
            match step.event {
                Some(Event::Headers { stream, end, section }) => {
                    if section == FieldSection::Repeated {
                        repeat_request(&self.head_bytes, &mut self.head, end.into())?;
                    } else {
                        self.head_bytes.clear();
                        let rules =
                            RequestRules { version: Version::Http2, limits: &self.limits, protocols: Protocols::None };
                        let fields = self.connection.fields();
                        build_request(fields, end.into(), &rules, &mut self.head_bytes, &mut self.head)?;
                    }
                    self.connection.send_fields(stream, Section::Head(End::More), &mut self.out, |block| {
                        block.status(StatusCode::OK);
                        let fields = &self.responses[stream.get() as usize / 2 % 2];
                        block.common_fields(&self.common_fields, fields);
                        block.fields(fields);
                        block.field(b"content-length", b"151");
                    })?;
                    self.connection.set_content(stream, Content::Ready);
                }
                Some(_) => {}
                None => break,
            }
            input = &input[step.consumed..];
        }
        while let Some(turn) = self.connection.next_to_send() {
            self.connection.begin_data(turn.stream, CONTENT.len(), End::Last, &mut self.out)?;
            self.out.extend_from_slice(&CONTENT);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().ok_or("usage: http2_exchange repeated|indexed REQUESTS")?;
    let requests: u32 = arguments.next().ok_or("the number of requests is missing")?.parse()?;
    let etags = if kind == "repeated" { ["\"a\""; 2] } else { ["\"a\"", "\"b\""] };
    let mut server = ExampleServer {
        connection: Connection::new(Role::Server, &Http2Limits::default(), Millis(0)),
        limits: MessageLimits::default(),
        head_bytes: Vec::new(),
        head: RequestHead::default(),
        out: Vec::new(),
        common_fields: CommonFields::new(HttpDate::from_unix(1_795_000_000)),
        responses: [response_fields(etags[0])?, response_fields(etags[1])?],
    };
    server.connection.start(&mut server.out);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    server.exchange(&[preface, &frame(4, 0, 0, &[])[..], &frame(4, 1, 0, &[])].concat())?;
    let mut client = Encoder::new();
    let paths: [&[u8]; 2] = if kind == "repeated" { [b"/", b"/"] } else { [b"/", b"/index.html"] };
    let window_update = frame(8, 0, 0, &(CONTENT.len() as u32 * REQUESTS_OF_WINDOW as u32).to_be_bytes());
    let mut inputs = [Vec::new(), Vec::new()];
    for request in 0..requests {
        let input = &mut inputs[request as usize % 2];
        if request < CHANGING_REQUESTS {
            *input = frame(1, 5, 0, &request_block(&mut client, paths[request as usize % 2]));
        }
        input[STREAM].copy_from_slice(&(2 * request + 1).to_be_bytes());
        server.exchange(input)?;
        if (request as usize).is_multiple_of(REQUESTS_OF_WINDOW) {
            server.exchange(&window_update)?;
        }
    }
    Ok(())
}
