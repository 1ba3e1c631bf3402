//! A client of raw bytes: it sends what it is told to and takes nothing on trust.
//!
//! Every answer is held against what all answers owe (RFC 9110 §6.6.1, RFC 9112 §6): one
//! status line, a Date, one framing, no field twice.

use super::wait::PATIENCE;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: Vec<u8>,
}

/// A connection that ended before the answer did.
#[derive(Debug)]
pub(crate) struct Cut {
    /// Content that had come.
    pub(crate) content: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the program takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
        stream.set_nodelay(true).expect("it is a socket");
        Self { stream, input: Vec::new() }
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the program takes what is sent");
    }

    /// Sends a request. `fields` are lines, without the ones that every request has.
    pub(crate) fn send_request(&mut self, method: &str, target: &str, fields: &str) {
        let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    }

    /// Sends a request and receives its answer, whole.
    pub(crate) fn ask(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.try_ask(method, target, fields).unwrap_or_else(|cut| {
            panic!("{method} {target}: the connection ended after {} bytes of content", cut.content.len())
        })
    }

    /// The same, where the connection may end before the answer does.
    pub(crate) fn try_ask(&mut self, method: &str, target: &str, fields: &str) -> Result<Response, Cut> {
        self.send_request(method, target, fields);
        self.receive(method)
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.ask("GET", target, "")
    }

    pub(crate) fn get_with(&mut self, target: &str, fields: &str) -> Response {
        self.ask("GET", target, fields)
    }

    /// Receives the answer to a request with that method.
    pub(crate) fn receive(&mut self, method: &str) -> Result<Response, Cut> {
        let Some(mut response) = self.receive_head() else { return Err(Cut { content: Vec::new() }) };
        if method != "HEAD" {
            self.receive_content(&mut response)?;
        }
        Ok(response)
    }

    /// Receives the head of an answer, or `None` when the connection ends instead.
    pub(crate) fn receive_head(&mut self) -> Option<Response> {
        let end = loop {
            match self.input.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end,
                None if self.receive_more() == 0 => return None,
                None => {}
            }
        };
        let head: Vec<u8> = self.input.drain(..end + 4).collect();
        Some(parse_head(&head[..end]))
    }

    /// Receives the content that a head has announced.
    pub(crate) fn receive_content(&mut self, response: &mut Response) -> Result<(), Cut> {
        let length = response.length();
        while self.input.len() < length {
            if self.receive_more() == 0 {
                return Err(Cut { content: std::mem::take(&mut self.input) });
            }
        }
        let rest = self.input.split_off(length);
        response.content = std::mem::replace(&mut self.input, rest);
        Ok(())
    }

    /// Asserts that the program ends the connection, and that nothing came before that.
    pub(crate) fn is_closed(&mut self) {
        assert_eq!(self.receive_more(), 0, "bytes came where the end was due");
    }

    /// Whether the program has ended the connection by now. Takes nothing of what has come.
    pub(crate) fn has_ended(&self) -> bool {
        self.stream.set_nonblocking(true).expect("it is a socket");
        let ended = match self.stream.peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        self.stream.set_nonblocking(false).expect("it is a socket");
        ended
    }

    /// Receives what is there; 0 at the end, however the connection ends.
    fn receive_more(&mut self) -> usize {
        let mut piece = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(count) => {
                    self.input.extend_from_slice(&piece[..count]);
                    return count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return 0,
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }
}

impl Response {
    /// The value of a field; its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The entity tag, which is strong.
    pub(crate) fn etag(&self) -> &str {
        let etag = self.field("etag").expect("a file's answer has an ETag");
        assert!(etag.len() > 2 && etag.starts_with('"') && etag.ends_with('"'), "a strong ETag: {etag}");
        etag
    }

    /// The length that was announced; 0 where the status says that there is no content.
    pub(crate) fn length(&self) -> usize {
        self.field("content-length").map_or(0, |length| length.parse().expect("a length is a number"))
    }

    /// The content as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is UTF-8")
    }
}

fn parse_head(head: &[u8]) -> Response {
    let text = std::str::from_utf8(head).expect("a head is ASCII");
    let mut lines = text.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let (status, reason) = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_at_checked(3)).expect(line);
    assert!(reason.starts_with(' '), "a status line: {line}");
    let fields: Vec<(String, String)> = lines
        .map(|line| {
            let (name, value) = line.split_once(": ").expect(line);
            let tame = |text: &str| text.bytes().all(|b| (0x20..0x7f).contains(&b));
            assert!(!name.contains(' ') && tame(name) && tame(value) && value.trim() == value, "a field line: {line}");
            (name.to_ascii_lowercase(), value.to_owned())
        })
        .collect();
    for (place, (name, _)) in fields.iter().enumerate() {
        assert!(fields[..place].iter().all(|(other, _)| other != name), "{name} stands twice in {text}");
    }
    let response = Response { status: status.parse().expect("a status is a number"), fields, content: Vec::new() };
    assert_eq!(response.field("date").map(str::len), Some("Sun, 06 Nov 1994 08:49:37 GMT".len()), "{text}");
    let has_no_content = matches!(response.status, 204 | 304);
    assert_eq!(response.field("content-length").is_none(), has_no_content, "{text}");
    assert_eq!(response.field("transfer-encoding"), None, "every answer's length is known: {text}");
    response
}
