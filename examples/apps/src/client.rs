//! A client of few words, and a server on a free port for it.

use selvedge::{Application, Running, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Nothing that works takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Serves an application on a free port.
///
/// # Panics
/// When it cannot.
pub fn serve<K>(app: impl Application<K> + Clone + Send) -> Running {
    Server::bind("127.0.0.1:0").and_then(|server| server.serve(app)).expect("a port and threads can be had")
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The lines of the head after the first, in lower case.
    pub fields: Vec<String>,
    /// The content.
    pub content: Vec<u8>,
}

impl Answer {
    /// The content as text.
    ///
    /// # Panics
    /// When it is none.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is text")
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time is set");
        Self(BufReader::new(stream))
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the server is gone.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends a request with content of a type; the answer.
    pub fn ask(&mut self, line: &str, fields: &str, content: impl AsRef<[u8]>) -> Answer {
        let content = content.as_ref();
        let length = if content.is_empty() { String::new() } else { format!("content-length: {}\r\n", content.len()) };
        self.send(format!("{line} HTTP/1.1\r\nhost: test\r\n{fields}{length}\r\n"));
        self.send(content);
        self.answer()
    }

    /// Asks for a path; the answer.
    pub fn get(&mut self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "", "")
    }

    /// The next line, in lower case, without its end.
    ///
    /// # Panics
    /// When the server has ended.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        assert!(line.ends_with("\r\n") || line.ends_with('\n'), "the server ended after {line:?}");
        line.trim_end().to_ascii_lowercase()
    }

    /// The head of the next answer.
    ///
    /// # Panics
    /// When it is none.
    pub fn head(&mut self) -> Answer {
        let line = self.line();
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        let fields = std::iter::from_fn(|| Some(self.line()).filter(|line| !line.is_empty())).collect();
        Answer { status, fields, content: Vec::new() }
    }

    /// The next answer, all of it.
    ///
    /// # Panics
    /// When it is none.
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        let length = answer.fields.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if answer.fields.iter().any(|line| line == "transfer-encoding: chunked") {
            while let size @ 1.. = usize::from_str_radix(&self.line(), 16).expect("a chunk's size") {
                answer.content.extend(self.take(size));
                assert_eq!(self.line(), "");
            }
            assert_eq!(self.line(), "");
        } else {
            answer.content = self.take(length.unwrap_or(0));
        }
        answer
    }

    fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("the server answers");
        bytes
    }
}
