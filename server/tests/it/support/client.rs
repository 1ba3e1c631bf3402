//! A client that sends raw bytes and checks all responses.
//!
//! It asserts the rules for every response (RFC 9110 §6.6.1, RFC 9112 §6): one status line, a Date, one framing, and
//! no field twice.

use super::tls::{TlsClient, TlsStream};
use super::wait::WAIT_TIMEOUT;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A connection.
pub(crate) struct Client {
    stream: Stream,
    input: Vec<u8>,
}

/// The bytes of a connection.
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<TlsStream>),
}

/// A response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
}

/// A connection that was closed before the end of the response.
#[derive(Debug)]
pub(crate) struct Aborted {
    /// The received content.
    pub(crate) content: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self { stream: Stream::Plain(socket(address)), input: Vec::new() }
    }

    /// Connects with TLS. The handshake is part of the first exchange.
    pub(crate) fn connect_over_tls(address: SocketAddr, tls: &TlsClient) -> Self {
        let stream = tls.stream(socket(address), &address.ip().to_string()).expect("an address is a server name");
        Self { stream: Stream::Encrypted(Box::new(stream)), input: Vec::new() }
    }

    /// Sends raw bytes.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Encrypted(stream) => stream.write_all(bytes),
        }
        .expect("the program reads");
    }

    /// Sends a request. `fields` are field lines in addition to Host.
    pub(crate) fn send_request(&mut self, method: &str, target: &str, fields: &str) {
        let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    }

    /// Sends a request and receives the complete response.
    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.try_request(method, target, fields).unwrap_or_else(|cut| {
            panic!("{method} {target}: the connection was closed after {} bytes of content", cut.content.len())
        })
    }

    /// Sends a request and receives the response, or returns [`Aborted`] if the connection is closed before its end.
    pub(crate) fn try_request(&mut self, method: &str, target: &str, fields: &str) -> Result<Response, Aborted> {
        self.send_request(method, target, fields);
        self.receive(method)
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    pub(crate) fn get_with(&mut self, target: &str, fields: &str) -> Response {
        self.request("GET", target, fields)
    }

    /// Receives the response to a request with this method.
    pub(crate) fn receive(&mut self, method: &str) -> Result<Response, Aborted> {
        let Some(mut response) = self.receive_head() else { return Err(Aborted { content: Vec::new() }) };
        if method != "HEAD" {
            self.receive_content(&mut response)?;
        }
        Ok(response)
    }

    /// Receives the head of a response. Returns `None` if the connection is closed before its end.
    pub(crate) fn receive_head(&mut self) -> Option<Response> {
        let end = loop {
            match self.input.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end,
                None if self.read_more() == 0 => return None,
                None => {}
            }
        };
        let head: Vec<u8> = self.input.drain(..end + 4).collect();
        Some(parse_head(&head[..end]))
    }

    /// Receives content of the length in the response's head, or in chunks.
    pub(crate) fn receive_content(&mut self, response: &mut Response) -> Result<(), Aborted> {
        if response.field("transfer-encoding").is_none() {
            response.content = self.receive_bytes(response.length())?;
            return Ok(());
        }
        loop {
            let line = loop {
                match self.input.windows(2).position(|window| window == b"\r\n") {
                    Some(end) => break self.receive_bytes(end + 2)?,
                    None if self.read_more() == 0 => return Err(Aborted { content: Vec::new() }),
                    None => {}
                }
            };
            let size = std::str::from_utf8(&line).expect("a size is a number").trim_end();
            let size = usize::from_str_radix(size, 16).expect("a size is a number");
            let mut chunk = self.receive_bytes(size + 2)?;
            assert!(chunk.ends_with(b"\r\n"), "a chunk has its end");
            chunk.truncate(size);
            response.content.append(&mut chunk);
            if size == 0 {
                return Ok(());
            }
        }
    }

    fn receive_bytes(&mut self, length: usize) -> Result<Vec<u8>, Aborted> {
        while self.input.len() < length {
            if self.read_more() == 0 {
                return Err(Aborted { content: std::mem::take(&mut self.input) });
            }
        }
        let rest = self.input.split_off(length);
        Ok(std::mem::replace(&mut self.input, rest))
    }

    /// Receives until the text, and drops what was received up to its end.
    pub(crate) fn receive_past(&mut self, text: &str) {
        let text = text.as_bytes();
        loop {
            match self.input.windows(text.len()).position(|window| window == text) {
                Some(start) => return drop(self.input.drain(..start + text.len())),
                None => assert!(self.read_more() > 0, "the connection was closed before {text:?}"),
            }
        }
    }

    /// Receives past the text, and returns what follows up to the end of its line.
    pub(crate) fn receive_line_past(&mut self, text: &str) -> String {
        self.receive_past(text);
        loop {
            if let Some(end) = self.input.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                return String::from_utf8(line).expect("the line is UTF-8").trim_end().to_owned();
            }
            assert!(self.read_more() > 0, "the connection was closed in a line after {text:?}");
        }
    }

    /// Asserts that the program closes the connection without sending more bytes.
    pub(crate) fn assert_closed(&mut self) {
        assert_eq!(self.read_more(), 0, "received bytes instead of the close");
    }

    /// Whether the program has closed the connection. Consumes no received bytes.
    pub(crate) fn was_closed(&self) -> bool {
        let Stream::Plain(stream) = &self.stream else { panic!("messages of TLS cannot be told from content") };
        stream.set_nonblocking(true).expect("the stream is a socket");
        let ended = match stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        stream.set_nonblocking(false).expect("the stream is a socket");
        ended
    }

    /// Receives available bytes and returns their number; 0 if the connection was closed or reset.
    fn read_more(&mut self) -> usize {
        let mut piece = [0; 64 * 1024];
        loop {
            let received = match &mut self.stream {
                Stream::Plain(stream) => stream.read(&mut piece),
                Stream::Encrypted(stream) => stream.read(&mut piece),
            };
            match received {
                Ok(count) => {
                    self.input.extend_from_slice(&piece[..count]);
                    return count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => {
                    return 0;
                }
                Err(error) => panic!("cannot receive: {error}"),
            }
        }
    }
}

fn socket(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("the program accepts connections");
    socket.set_read_timeout(Some(WAIT_TIMEOUT)).expect("the timeout is not zero");
    socket.set_nodelay(true).expect("the stream is a socket");
    socket
}

impl Response {
    /// Returns the value of a field. `name` is in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the entity tag. Asserts that it is strong.
    pub(crate) fn etag(&self) -> &str {
        let etag = self.field("etag").expect("a file's response has an ETag");
        assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "not a strong ETag: {etag}");
        etag
    }

    /// Returns the Content-Length, or 0 if the status implies no content.
    pub(crate) fn length(&self) -> usize {
        self.field("content-length").map_or(0, |length| length.parse().expect("Content-Length is a number"))
    }

    /// Returns the content as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is UTF-8")
    }
}

fn parse_head(head: &[u8]) -> Response {
    let text = std::str::from_utf8(head).expect("a head is ASCII");
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let (status, reason) = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_at_checked(3)).expect(line);
    assert!(reason.starts_with(' '), "not a status line: {line}");
    let fields: Vec<(String, String)> = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").expect(line);
            let is_printable = |text: &str| text.bytes().all(|b| (0x20..0x7f).contains(&b));
            assert!(
                !name.contains(' ') && is_printable(name) && is_printable(value) && value.trim() == value,
                "not a field line: {line}"
            );
            (name.to_ascii_lowercase(), value.to_owned())
        })
        .collect();
    for (index, (name, _)) in fields.iter().enumerate() {
        let is_repeated = fields[..index].iter().any(|(other, _)| other == name);
        assert!(!is_repeated || name == "set-cookie", "{name} is repeated in {text}");
    }
    let response = Response { status: status.parse().expect("the status is a number"), fields, content: Vec::new() };
    assert_eq!(response.field("date").map(str::len), Some("Sun, 06 Nov 1994 08:49:37 GMT".len()), "{text}");
    // Only content that is compressed while it is sent has no length, and a stream of events.
    let is_chunked = response.field("transfer-encoding") == Some("chunked");
    let has_no_length = matches!(response.status, 204 | 304) || is_chunked;
    assert_eq!(response.field("content-length").is_none(), has_no_length, "{text}");
    let is_streamed = response.field("content-encoding").is_some() || text.contains("content-type: text/event-stream");
    assert!(!is_chunked || is_streamed, "the response has no Content-Length: {text}");
    response
}
