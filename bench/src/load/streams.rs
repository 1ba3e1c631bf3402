//! Clients of server-sent events: each sends one request, waits for the first event, and stays connected.

use super::mix::{Persistence, request};
use anyhow::{Context, Result, ensure};
use memchr::memmem;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The first event that every application sends.
const FIRST_EVENT: &[u8] = b"data: first\n\n";
/// The maximum length of a head and one event.
const RESPONSE_BYTES_MAX: usize = 4_096;
/// How long to wait for the first event.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// The event streams of one server.
pub(crate) struct EventStreams {
    address: SocketAddr,
    request: Vec<u8>,
    open: Vec<TcpStream>,
}

impl EventStreams {
    /// Creates clients of this path without connecting them.
    pub(crate) fn new(address: SocketAddr, path: &str) -> Self {
        Self { address, request: request(path, Persistence::KeepAlive), open: Vec::new() }
    }

    /// Opens streams until `count` are open, and waits for the first event of each.
    pub(crate) fn open_until(&mut self, count: usize) -> Result<()> {
        while self.open.len() < count {
            let stream =
                self.open_stream().with_context(|| format!("cannot open stream {} of {count}", self.open.len()))?;
            self.open.push(stream);
        }
        Ok(())
    }

    fn open_stream(&self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(FIRST_EVENT_TIMEOUT))?;
        stream.write_all(&self.request)?;
        let (mut response, mut length) = ([0; RESPONSE_BYTES_MAX], 0);
        while memmem::find(&response[..length], FIRST_EVENT).is_none() {
            let count = stream.read(&mut response[length..])?;
            ensure!(count > 0, "no first event in {:?}", String::from_utf8_lossy(&response[..length]));
            length += count;
        }
        ensure!(response.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&response[..length]));
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Returns the number of streams that the server has closed or sent more bytes on.
    pub(crate) fn not_silent_count(&self) -> usize {
        let is_silent =
            |stream: &&TcpStream| stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.open.len() - self.open.iter().filter(is_silent).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn closed_streams_are_distinguished_from_silent_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut streams = EventStreams::new(listener.local_addr().unwrap(), "/events");
        let server = std::thread::spawn(move || {
            let accept = || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 1_024];
                assert!(stream.read(&mut head).unwrap() > 0);
                stream.write_all(&[b"HTTP/1.1 200 OK\r\n\r\n", FIRST_EVENT].concat()).unwrap();
                stream
            };
            let (stays, ends) = (accept(), accept());
            drop(ends);
            stays
        });
        streams.open_until(2).unwrap();
        let _stays = server.join().unwrap();
        // The FIN was sent; it is seen once it is received.
        while streams.not_silent_count() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(streams.not_silent_count(), 1);
    }
}
