//! A collector of OpenTelemetry: it accepts batches of spans over HTTP, and decodes what tests look at.

use super::wait::wait_until;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// What a collector does with a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    #[default]
    Accept,
    /// Responds with this status, and to retry after this number of seconds.
    Refuse(u16, u32),
    /// Does not respond.
    Hang,
}

/// A span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    /// The attribute `service.name` of its resource.
    pub(crate) service: String,
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    /// Empty for none.
    pub(crate) parent: String,
    pub(crate) state: String,
    pub(crate) name: String,
    /// 2: server, 3: client.
    pub(crate) kind: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// 2: error.
    pub(crate) status: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Span {
    /// Returns an attribute; an empty text if it has none of this name.
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

#[derive(Debug, Default)]
struct State {
    verdict: Verdict,
    /// The heads of all requests, with names in lower case.
    heads: Vec<String>,
    /// The spans of accepted batches.
    spans: Vec<Span>,
}

/// A running collector.
pub(crate) struct Collector {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Collector {
    pub(crate) fn start(verdict: Verdict) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(Mutex::new(State { verdict, ..State::default() }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    /// Returns the URL for traces.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }

    pub(crate) fn set_verdict(&self, verdict: Verdict) {
        self.state().verdict = verdict;
    }

    /// Returns the heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.state().heads.clone()
    }

    /// Waits for as many spans, and returns all.
    pub(crate) fn spans(&self, count: usize) -> Vec<Span> {
        wait_until(&format!("{count} spans arrive"), || {
            let state = self.state();
            (state.spans.len() >= count).then(|| state.spans.clone())
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it has the lock")
    }
}

/// Serves a connection until its end.
fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut input = BufReader::new(stream.try_clone().expect("the socket can be shared"));
    let lock = || state.lock().expect("no thread panics while it has the lock");
    while let Some(head) = read_head(&mut input) {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut content = vec![0; length.expect("a batch has a length")];
        if input.read_exact(&mut content).is_err() {
            return;
        }
        lock().heads.push(head);
        let verdict = lock().verdict;
        let response = match verdict {
            Verdict::Accept => {
                lock().spans.extend(decode(&content));
                "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            Verdict::Refuse(status, seconds) => {
                format!("HTTP/1.1 {status} Refused\r\nRetry-After: {seconds}\r\nContent-Length: 0\r\n\r\n")
            }
            Verdict::Hang => continue,
        };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the next head, with names in lower case; `None` at the end.
fn read_head(input: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|&count| count > 0)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => head += &format!("{}: {value}\n", name.to_ascii_lowercase()),
            None if line == "\r\n" => return Some(head),
            None => head += &line.replace('\r', ""),
        }
    }
}

/// Decodes `ExportTraceServiceRequest`.
fn decode(request: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    for resource_spans in messages(request, 1) {
        let resource = messages(resource_spans, 1).flat_map(|resource| messages(resource, 1)).map(key_value);
        let resource: BTreeMap<_, _> = resource.collect();
        for scope_spans in messages(resource_spans, 2) {
            for span in messages(scope_spans, 2) {
                spans.push(Span { service: resource["service.name"].clone(), ..decode_span(span) });
            }
        }
    }
    spans
}

fn decode_span(bytes: &[u8]) -> Span {
    let mut span = Span::default();
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Value::Bytes(id)) => span.trace_id = hexadecimal(id),
            (2, Value::Bytes(id)) => span.span_id = hexadecimal(id),
            (3, Value::Bytes(state)) => span.state = text(state),
            (4, Value::Bytes(id)) => span.parent = hexadecimal(id),
            (5, Value::Bytes(name)) => span.name = text(name),
            (6, Value::Number(kind)) => span.kind = kind,
            (7, Value::Number(time)) => span.start = time,
            (8, Value::Number(time)) => span.end = time,
            (9, Value::Bytes(attribute)) => {
                let (key, value) = key_value(attribute);
                assert!(span.attributes.insert(key, value).is_none(), "an attribute is repeated");
            }
            (15, Value::Bytes(status)) => {
                span.status = fields(status).into_iter().map(|(_, value)| value.number()).sum();
            }
            (16, Value::Number(_)) => {}
            _ => panic!("an unknown field {field}"),
        }
    }
    span
}

fn key_value(bytes: &[u8]) -> (String, String) {
    let mut pair = (String::new(), String::new());
    for (field, value) in fields(bytes) {
        match (field, value) {
            (1, Value::Bytes(key)) => pair.0 = text(key),
            (2, Value::Bytes(any)) => {
                pair.1 = match fields(any)[..] {
                    [(1, Value::Bytes(value))] => text(value),
                    [(3, Value::Number(number))] => number.cast_signed().to_string(),
                    [(4, Value::Number(bits))] => f64::from_bits(bits).to_string(),
                    _ => panic!("an unknown value"),
                };
            }
            _ => panic!("an unknown field {field}"),
        }
    }
    pair
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

impl Value<'_> {
    fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => panic!("no number"),
        }
    }
}

/// Returns the messages in fields of a number.
fn messages(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter_map(move |(field, value)| match value {
        Value::Bytes(bytes) if field == number => Some(bytes),
        _ => None,
    })
}

/// Returns the fields of a message.
fn fields(mut message: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message);
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)),
            1 => Value::Number(u64::from_le_bytes(take(8, &mut message).try_into().expect("eight bytes"))),
            2 => {
                let length = usize::try_from(varint(&mut message)).expect("it is short");
                Value::Bytes(take(length, &mut message))
            }
            5 => Value::Number(u32::from_le_bytes(take(4, &mut message).try_into().expect("four bytes")).into()),
            other => panic!("an unknown type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

/// Takes bytes from the front.
fn take<'m>(length: usize, bytes: &mut &'m [u8]) -> &'m [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0).expect("it ends") + 1;
    let number = take(length, bytes);
    number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("a text is UTF-8")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
