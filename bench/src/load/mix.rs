//! The requests of the clients, prepared before the measurement.

use anyhow::{Context, Result};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Whether a connection persists after a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// The client sends the next request on the connection.
    KeepAlive,
    /// The server closes the connection, and the client opens a new one for the next request.
    Close,
}

/// Requests that are sent together: one request, or a batch of pipelined ones.
pub(crate) struct RequestBatch {
    /// The request heads.
    pub(crate) bytes: Vec<u8>,
    /// The content that follows the last head.
    pub(crate) upload: Option<Upload>,
    /// The expected length of the content of each response, if known. Another length is an error.
    pub(crate) response_bytes: Option<u64>,
}

impl RequestBatch {
    /// Creates a batch of these bytes that accepts responses of any length.
    pub(crate) fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, upload: None, response_bytes: None }
    }

    /// Returns the number of bytes to send.
    pub(crate) fn length(&self) -> u64 {
        self.bytes.len() as u64 + self.upload.as_ref().map_or(0, |upload| upload.bytes)
    }
}

/// Long content of a request. It is in a memfd once, and the kernel sends it from there without a copy for each
/// request.
pub(crate) struct Upload {
    pub(crate) file: OwnedFd,
    pub(crate) bytes: u64,
}

impl Upload {
    fn new(bytes: usize) -> io::Result<Self> {
        let mut file = File::from(rustix::fs::memfd_create("upload", MemfdFlags::CLOEXEC)?);
        file.write_all(&vec![b'u'; bytes])?;
        Ok(Self { file: file.into(), bytes: bytes as u64 })
    }
}

/// The requests, and the order in which they are sent.
#[derive(Clone)]
pub(crate) struct Mix {
    messages: Vec<Rc<RequestBatch>>,
    order: Vec<u32>,
    /// The number of requests that are sent together.
    pub(crate) pipelined: usize,
    pub(crate) persistence: Persistence,
}

impl Mix {
    /// Creates a mix that requests one path repeatedly.
    pub(crate) fn one(path: &str, persistence: Persistence) -> Self {
        let message = RequestBatch::plain(request(path, persistence));
        Self { messages: vec![message.into()], order: vec![0], pipelined: 1, persistence }
    }

    /// Creates a mix that requests one path repeatedly and expects content of this length.
    pub(crate) fn with_response_length(path: &str, response_bytes: usize) -> Self {
        Self::repeated(RequestBatch {
            response_bytes: Some(response_bytes as u64),
            ..RequestBatch::plain(request(path, Persistence::KeepAlive))
        })
    }

    /// Creates a mix that uploads content of this length repeatedly. The server responds with the length in decimal.
    pub(crate) fn upload(path: &str, bytes: usize) -> Result<Self> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: selvedge-bench\r\nAccept: */*\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
        );
        Ok(Self::repeated(RequestBatch {
            bytes: head.into_bytes(),
            upload: Some(Upload::new(bytes).context("cannot create the content of the uploads")?),
            response_bytes: Some(bytes.to_string().len() as u64),
        }))
    }

    fn repeated(message: RequestBatch) -> Self {
        Self { messages: vec![message.into()], order: vec![0], pipelined: 1, persistence: Persistence::KeepAlive }
    }

    /// Creates a mix that requests one path with `count` pipelined requests.
    pub(crate) fn pipelined(path: &str, count: usize) -> Self {
        let batch = request(path, Persistence::KeepAlive).repeat(count);
        Self { pipelined: count, ..Self::repeated(RequestBatch::plain(batch)) }
    }

    /// Creates a mix that requests many paths in this order, repeatedly.
    pub(crate) fn many(paths: &[String], order: Vec<u32>) -> Self {
        let messages =
            paths.iter().map(|path| RequestBatch::plain(request(path, Persistence::KeepAlive)).into()).collect();
        Self { messages, order, pipelined: 1, persistence: Persistence::KeepAlive }
    }

    /// Creates a mix of raw requests in this order.
    pub(crate) fn raw(requests: Vec<Vec<u8>>) -> Self {
        let order = (0..u32::try_from(requests.len()).expect("the list is shorter than 2^32")).collect();
        let messages = requests.into_iter().map(|bytes| RequestBatch::plain(bytes).into()).collect();
        Self { messages, order, pipelined: 1, persistence: Persistence::KeepAlive }
    }

    /// Returns the batch with this number in the order.
    pub(crate) fn message(&self, number: usize) -> &Rc<RequestBatch> {
        &self.messages[self.order[number % self.order.len()] as usize]
    }
}

/// Returns the request of every client: the fields that the clients of the Warp article sent, and no others.
pub(crate) fn request(path: &str, persistence: Persistence) -> Vec<u8> {
    let close = if persistence == Persistence::Close { "Connection: close\r\n" } else { "" };
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: selvedge-bench\r\nAccept: */*\r\n{close}\r\n")
        .into_bytes()
}
