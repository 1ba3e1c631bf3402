//! A client of few words: what every test over sockets needs.
#![allow(dead_code, reason = "each test binary needs another part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Nothing that works takes this long; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// What came and was not looked at.
    read: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time is set");
        stream.set_write_timeout(Some(PATIENCE)).expect("a time is set");
        stream.set_nodelay(true).expect("an option is set");
        Self { stream, read: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Where the server sees it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.stream.local_addr().expect("it is connected")
    }

    /// Sends to a server that may have ended already.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// The next answer with a Content-Length: its head and its content.
    pub(crate) fn reply(&mut self) -> (String, String) {
        let head = self.head();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap_or("0");
        let length: usize = length.parse().expect("a length is a number");
        self.read_until(|read| (read.len() >= length).then_some(()));
        let content = String::from_utf8(self.read.drain(..length).collect()).expect("tests send text");
        (head, content)
    }

    /// The head of the next answer, whose content is read as the rest.
    pub(crate) fn head(&mut self) -> String {
        let head_end = self.read_until(|read| read.windows(4).position(|four| four == b"\r\n\r\n"));
        String::from_utf8(self.read.drain(..head_end + 4).collect()).expect("a head is text")
    }

    /// Asks for a path: the content of the answer.
    pub(crate) fn get(&mut self, path: &str) -> String {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.reply().1
    }

    /// Everything until the server ends; a reset is an end too.
    pub(crate) fn rest(mut self) -> Vec<u8> {
        if let Err(error) = self.stream.read_to_end(&mut self.read) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server ends");
        }
        self.read
    }

    /// Says that nothing more is sent.
    pub(crate) fn finish(&self) {
        // The server may be gone already.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    fn read_until<T>(&mut self, is_enough: impl Fn(&[u8]) -> Option<T>) -> T {
        let mut piece = [0; 64 * 1024];
        loop {
            if let Some(enough) = is_enough(&self.read) {
                return enough;
            }
            let count = self.stream.read(&mut piece).expect("the server answers");
            assert!(count > 0, "the server ended after {:?}", String::from_utf8_lossy(&self.read));
            self.read.extend_from_slice(&piece[..count]);
        }
    }
}
