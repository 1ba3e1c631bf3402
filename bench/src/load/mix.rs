//! What the clients ask for, prepared before the clock runs.

use anyhow::{Context, Result};
use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// What becomes of a connection after its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// It asks again.
    KeepAlive,
    /// It ends, and a new one is made for the next request.
    Close,
}

/// What is sent at once: a request, or a batch of them.
pub(crate) struct Message {
    /// The heads.
    pub(crate) bytes: Vec<u8>,
    /// What follows the last of them.
    pub(crate) upload: Option<Upload>,
    /// How long the content of each answer has to be, where that is known; another length is an error.
    pub(crate) answer_bytes: Option<u64>,
}

impl Message {
    /// These bytes, whatever is answered.
    pub(crate) fn plain(bytes: Vec<u8>) -> Self {
        Self { bytes, upload: None, answer_bytes: None }
    }

    /// How much there is to send.
    pub(crate) fn length(&self) -> u64 {
        self.bytes.len() as u64 + self.upload.as_ref().map_or(0, |upload| upload.bytes)
    }
}

/// Long content of a request. It is in memory once, and the kernel sends it from there: no request
/// makes a copy of it.
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

/// The requests, and the order in which they are made.
#[derive(Clone)]
pub(crate) struct Mix {
    messages: Vec<Rc<Message>>,
    order: Vec<u32>,
    /// So many requests are sent at once.
    pub(crate) pipelined: usize,
    pub(crate) afterwards: Afterwards,
}

impl Mix {
    /// One path, over and over.
    pub(crate) fn one(path: &str, afterwards: Afterwards) -> Self {
        let message = Message::plain(request(path, afterwards));
        Self { messages: vec![message.into()], order: vec![0], pipelined: 1, afterwards }
    }

    /// One path, over and over, whose content has this length.
    pub(crate) fn exactly(path: &str, answer_bytes: usize) -> Self {
        Self::always(Message {
            answer_bytes: Some(answer_bytes as u64),
            ..Message::plain(request(path, Afterwards::KeepAlive))
        })
    }

    /// So much content, sent over and over; the answer says how much came.
    pub(crate) fn upload(path: &str, bytes: usize) -> Result<Self> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: selvedge-bench\r\nAccept: */*\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
        );
        Ok(Self::always(Message {
            bytes: head.into_bytes(),
            upload: Some(Upload::new(bytes).context("memory for what is uploaded")?),
            answer_bytes: Some(bytes.to_string().len() as u64),
        }))
    }

    fn always(message: Message) -> Self {
        Self { messages: vec![message.into()], order: vec![0], pipelined: 1, afterwards: Afterwards::KeepAlive }
    }

    /// One path, so many times at once.
    pub(crate) fn pipelined(path: &str, count: usize) -> Self {
        let batch = request(path, Afterwards::KeepAlive).repeat(count);
        Self { pipelined: count, ..Self::always(Message::plain(batch)) }
    }

    /// Many paths, in this order, again and again.
    pub(crate) fn many(paths: &[String], order: Vec<u32>) -> Self {
        let messages = paths.iter().map(|path| Message::plain(request(path, Afterwards::KeepAlive)).into()).collect();
        Self { messages, order, pipelined: 1, afterwards: Afterwards::KeepAlive }
    }

    /// Requests as they are, in this order.
    pub(crate) fn raw(requests: Vec<Vec<u8>>) -> Self {
        let order = (0..u32::try_from(requests.len()).expect("a short list")).collect();
        let messages = requests.into_iter().map(|bytes| Message::plain(bytes).into()).collect();
        Self { messages, order, pipelined: 1, afterwards: Afterwards::KeepAlive }
    }

    /// The message with this number in the order.
    pub(crate) fn message(&self, number: usize) -> &Rc<Message> {
        &self.messages[self.order[number % self.order.len()] as usize]
    }
}

/// The request every client sends: what the article's clients sent, and nothing more.
pub(crate) fn request(path: &str, afterwards: Afterwards) -> Vec<u8> {
    let close = if afterwards == Afterwards::Close { "Connection: close\r\n" } else { "" };
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: selvedge-bench\r\nAccept: */*\r\n{close}\r\n")
        .into_bytes()
}
