//! A blocking HTTP/1 client.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout of reads and writes; a test that waits longer fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One connection of a client.
pub(crate) struct Client {
    stream: TcpStream,
    /// Received bytes that no method has returned yet.
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("the timeout is set");
        stream.set_write_timeout(Some(TIMEOUT)).expect("the timeout is set");
        stream.set_nodelay(true).expect("the option is set");
        Self { stream, received: Vec::new() }
    }

    /// Returns a client of this connection, which has received nothing.
    pub(crate) fn try_clone(&self) -> Self {
        Self { stream: self.stream.try_clone().expect("a descriptor is left"), received: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Returns the client's address, which the server sees as its peer.
    pub(crate) fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("the stream is connected")
    }

    /// Sends to a server that may have closed the connection.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Reads the next response, which must have a Content-Length. Returns its head and its content.
    pub(crate) fn read_response(&mut self) -> (String, String) {
        let head = self.read_head();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or("0");
        let length: usize = length.parse().expect("the length is a number");
        self.read_until(|received| (received.len() >= length).then_some(()));
        let content = String::from_utf8(self.received.drain(..length).collect()).expect("the content is text");
        (head, content)
    }

    /// Reads content of this length, after its head.
    pub(crate) fn read_content(&mut self, length: usize) -> Vec<u8> {
        self.read_until(|received| (received.len() >= length).then_some(()));
        self.received.drain(..length).collect()
    }

    /// Reads the head of the next response, but not its content.
    pub(crate) fn read_head(&mut self) -> String {
        let head_end = self.read_until(|received| received.windows(4).position(|four| four == b"\r\n\r\n"));
        String::from_utf8(self.received.drain(..head_end + 4).collect()).expect("the head is text")
    }

    /// Reads until the text, and drops what was received up to its end.
    pub(crate) fn read_past(&mut self, text: &str) {
        let text = text.as_bytes();
        let start = self.read_until(|received| received.windows(text.len()).position(|part| part == text));
        self.received.drain(..start + text.len());
    }

    /// Sends a GET request for `path`. Returns the content of the response.
    pub(crate) fn get(&mut self, path: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.read_response().1
    }

    /// Reads all bytes until the server closes or resets the connection.
    pub(crate) fn read_until_close(mut self) -> Vec<u8> {
        if let Err(error) = self.stream.read_to_end(&mut self.received) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server closes the connection");
        }
        self.received
    }

    /// Reads all bytes until the end of the connection. Returns whether a reset ended it.
    pub(crate) fn read_until_reset(mut self) -> bool {
        let end = self.stream.read_to_end(&mut self.received);
        end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    }

    /// Shuts down the sending side of the connection.
    pub(crate) fn shutdown_write(&self) {
        // The server may have closed the connection already.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Reads until the received bytes satisfy `is_enough`. Returns its value.
    fn read_until<T>(&mut self, is_enough: impl Fn(&[u8]) -> Option<T>) -> T {
        let mut piece = [0; 64 * 1024];
        loop {
            if let Some(enough) = is_enough(&self.received) {
                return enough;
            }
            let count = self.stream.read(&mut piece).expect("the server responds");
            assert!(count > 0, "the server closed the connection after {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend_from_slice(&piece[..count]);
        }
    }
}
