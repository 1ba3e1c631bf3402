//! Clients of streams of events: each asks once, waits for the first event, and stays.

use super::mix::{Afterwards, request};
use anyhow::{Context, Result, ensure};
use memchr::memmem;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The first event, as every application sends it.
const FIRST: &[u8] = b"data: first\n\n";
/// A head and one event are shorter than this.
const ANSWER_BYTES_MAX: usize = 4_096;
/// An event that is sent at once is here before that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The streams to one server.
pub(crate) struct Streams {
    address: SocketAddr,
    request: Vec<u8>,
    open: Vec<TcpStream>,
}

impl Streams {
    /// Will ask for this path.
    pub(crate) fn new(address: SocketAddr, path: &str) -> Self {
        Self { address, request: request(path, Afterwards::KeepAlive), open: Vec::new() }
    }

    /// Opens streams until there are so many, each with its first event.
    pub(crate) fn open_until(&mut self, count: usize) -> Result<()> {
        while self.open.len() < count {
            let stream = self.begin().with_context(|| format!("stream {} of {count}", self.open.len()))?;
            self.open.push(stream);
        }
        Ok(())
    }

    fn begin(&self) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&self.request)?;
        let (mut answer, mut length) = ([0; ANSWER_BYTES_MAX], 0);
        while memmem::find(&answer[..length], FIRST).is_none() {
            let count = stream.read(&mut answer[length..])?;
            ensure!(count > 0, "no first event in {:?}", String::from_utf8_lossy(&answer[..length]));
            length += count;
        }
        ensure!(answer.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&answer[..length]));
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// How many are not silent any more: the server has ended them, or sent what it was not to.
    pub(crate) fn disturbed(&self) -> usize {
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
    fn streams_that_end_are_told_from_those_that_are_silent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut streams = Streams::new(listener.local_addr().unwrap(), "/events");
        let server = std::thread::spawn(move || {
            let answer = || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = [0; 1_024];
                assert!(stream.read(&mut head).unwrap() > 0);
                stream.write_all(&[b"HTTP/1.1 200 OK\r\n\r\n", FIRST].concat()).unwrap();
                stream
            };
            let (stays, ends) = (answer(), answer());
            drop(ends);
            stays
        });
        streams.open_until(2).unwrap();
        let _stays = server.join().unwrap();
        // Its end has been sent; when it is here, it is seen.
        while streams.disturbed() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(streams.disturbed(), 1);
    }
}
