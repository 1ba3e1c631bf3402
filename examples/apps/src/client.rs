//! A minimal HTTP client for tests, and a server on a free port.

use selvedge::{Application, RunningServer, Server};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The maximum wait for bytes of the server.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves an application on a free port.
///
/// # Panics
/// If it cannot bind the port or start threads.
pub fn serve<K>(app: impl Application<K> + Clone + Send) -> RunningServer {
    Server::bind("127.0.0.1:0").and_then(|server| server.serve(app)).expect("cannot serve on a free port")
}

/// A response.
#[derive(Debug)]
pub struct ClientResponse {
    /// The status code.
    pub status: u16,
    /// The field lines of the head, in lower case.
    pub fields: Vec<String>,
    /// The content.
    pub content: Vec<u8>,
}

impl ClientResponse {
    /// Returns the content as text.
    ///
    /// # Panics
    /// If the content is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.content).expect("the content is UTF-8")
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client(BufReader<TcpStream>);

impl Client {
    /// Opens a connection.
    ///
    /// # Panics
    /// If no server listens at the address.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(READ_TIMEOUT)).expect("cannot set the read timeout");
        Self(BufReader::new(stream))
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Sends a request with content, and returns the response.
    pub fn request(&mut self, line: &str, fields: &str, content: impl AsRef<[u8]>) -> ClientResponse {
        let content = content.as_ref();
        let length = if content.is_empty() { String::new() } else { format!("content-length: {}\r\n", content.len()) };
        self.send(format!("{line} HTTP/1.1\r\nhost: test\r\n{fields}{length}\r\n"));
        self.send(content);
        self.read_response()
    }

    /// Sends a GET request for a path, and returns the response.
    pub fn get(&mut self, path: &str) -> ClientResponse {
        self.request(&format!("GET {path}"), "", "")
    }

    /// Reads the next line, and returns it in lower case without its end.
    ///
    /// # Panics
    /// If the server has closed the connection.
    pub fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server sends");
        assert!(line.ends_with("\r\n") || line.ends_with('\n'), "the connection was closed after {line:?}");
        line.trim_end().to_ascii_lowercase()
    }

    /// Reads the head of the next response.
    ///
    /// # Panics
    /// If the server sends no valid response.
    pub fn read_head(&mut self) -> ClientResponse {
        let line = self.read_line();
        let status =
            line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("the first line is a status line");
        let fields = std::iter::from_fn(|| Some(self.read_line()).filter(|line| !line.is_empty())).collect();
        ClientResponse { status, fields, content: Vec::new() }
    }

    /// Reads the next response completely.
    ///
    /// # Panics
    /// If the server sends no valid response.
    pub fn read_response(&mut self) -> ClientResponse {
        let mut response = self.read_head();
        let length = response.fields.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if response.fields.iter().any(|line| line == "transfer-encoding: chunked") {
            while let size @ 1.. = usize::from_str_radix(&self.read_line(), 16).expect("the line is a chunk size") {
                response.content.extend(self.read_bytes(size));
                assert_eq!(self.read_line(), "");
            }
            assert_eq!(self.read_line(), "");
        } else {
            response.content = self.read_bytes(length.unwrap_or(0));
        }
        response
    }

    fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("the server sends");
        bytes
    }
}
