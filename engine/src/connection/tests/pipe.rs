//! An in-memory stream. Every fault of a client or network is a setting of it.

use crate::buffer::Buffer;
use crate::net::connection_table::ConnectionId;
use crate::net::epoll::EpollSocket;
use crate::net::link::xor_session::Keystream;
use crate::net::raw::{FilePart, FileSource, SendMode, ShutdownMode};
use crate::net::stream::{Detach, Stream};
use crate::net::worker::Worker;
use crate::splice_pipe::SplicePipe;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What follows the bytes that the client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientEnd {
    /// Possibly more.
    Open,
    /// The end of the stream.
    Ended,
    /// A failure of both directions.
    Reset,
}

/// Both directions of a connection, as the network sees them.
pub(super) struct Pipe {
    /// Sent by the client and not received yet.
    incoming: RefCell<Vec<u8>>,
    client_end: Cell<ClientEnd>,
    /// Most bytes that one receive returns.
    pub(super) receive_bytes_max: Cell<usize>,
    /// Most bytes that one send accepts.
    pub(super) send_bytes_max: Cell<usize>,
    /// Bytes that are accepted before a send would block.
    window: Cell<usize>,
    /// Accepted bytes that the client has not read.
    pub(super) notsent_bytes: Cell<usize>,
    /// The limit of unsent bytes, if set.
    pub(super) notsent_lowat: Cell<Option<i32>>,
    /// Bytes sent to the client.
    outgoing: RefCell<Vec<u8>>,
    /// The length of each send.
    sends: RefCell<Vec<usize>>,
    /// The last send waits for more.
    is_held_back: Cell<bool>,
    finished: Cell<bool>,
    resets_on_close: Cell<bool>,
    closed: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    watcher: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
    /// Set while the connection is parked.
    parked: RefCell<Option<(Rc<Worker>, ConnectionId)>>,
    /// Encodes the client's bytes, if the connection has a session.
    keystream: Cell<Option<Keystream>>,
}

impl Pipe {
    /// Creates a pipe without faults.
    pub(super) fn new(keystream: Option<Keystream>) -> Rc<Self> {
        Rc::new(Self {
            incoming: RefCell::default(),
            client_end: Cell::new(ClientEnd::Open),
            receive_bytes_max: Cell::new(usize::MAX),
            send_bytes_max: Cell::new(usize::MAX),
            window: Cell::new(usize::MAX),
            notsent_bytes: Cell::new(0),
            notsent_lowat: Cell::new(None),
            outgoing: RefCell::default(),
            sends: RefCell::default(),
            is_held_back: Cell::new(false),
            finished: Cell::new(false),
            resets_on_close: Cell::new(false),
            closed: Cell::new(false),
            reader: RefCell::default(),
            watcher: RefCell::default(),
            writer: RefCell::default(),
            parked: RefCell::default(),
            keystream: Cell::new(keystream),
        })
    }

    /// Sends bytes as the client.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        self.keystream.set(self.keystream.get().map(|mut keystream| {
            keystream.apply(&mut bytes);
            keystream
        }));
        self.incoming.borrow_mut().extend_from_slice(&bytes);
        self.bytes_arrived();
    }

    fn bytes_arrived(&self) {
        wake(&self.reader);
        let parked = self.parked.borrow().clone();
        parked.inspect(|(worker, id)| worker.connections.resume(*id));
    }

    /// Whether the connection is parked.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.borrow().is_some()
    }

    /// Ends the client's direction, or resets both.
    pub(super) fn end(&self, client_end: ClientEnd) {
        self.client_end.set(client_end);
        self.bytes_arrived();
        wake(&self.watcher);
        wake(&self.writer);
    }

    /// Sets how many more bytes the client reads.
    pub(super) fn set_window(&self, bytes: usize) {
        self.window.set(bytes);
        wake(&self.writer);
    }

    /// Lets the client read `bytes` more.
    pub(super) fn extend_window(&self, bytes: usize) {
        self.set_window(self.window.get().saturating_add(bytes));
    }

    /// Returns everything that was sent to the client.
    pub(super) fn outgoing(&self) -> Vec<u8> {
        let mut bytes = self.outgoing.borrow().clone();
        if self.keystream.get().is_some() {
            let mut keystream = Keystream::SERVER;
            keystream.apply(&mut bytes);
        }
        bytes
    }

    /// Returns the lengths of the sends.
    pub(super) fn sends(&self) -> Vec<usize> {
        self.sends.borrow().clone()
    }

    /// Returns how many bytes of the client were not received.
    pub(super) fn unreceived(&self) -> usize {
        self.incoming.borrow().len()
    }

    /// Whether the server shut down its sending side.
    pub(super) fn is_write_shutdown(&self) -> bool {
        self.finished.get()
    }

    /// Whether the last bytes left together with the FIN.
    pub(super) fn fin_left_with_data(&self) -> bool {
        self.is_held_back.get() && self.is_write_shutdown()
    }

    /// Whether the server closed the connection with a reset.
    pub(super) fn is_reset(&self) -> bool {
        self.closed.get() && self.resets_on_close.get()
    }

    /// Whether the server closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Returns how many bytes a send of `len` accepts.
    fn taken(&self, len: usize) -> io::Result<usize> {
        if self.client_end.get() == ClientEnd::Reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let taken = len.min(self.send_bytes_max.get()).min(self.window.get());
        if taken == 0 && len > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.window.set(self.window.get() - taken);
        Ok(taken)
    }

    fn sent(&self, bytes: &[u8]) {
        self.outgoing.borrow_mut().extend_from_slice(bytes);
        self.sends.borrow_mut().push(bytes.len());
    }
}

fn wake(waker: &RefCell<Option<Waker>>) {
    let waker = waker.borrow_mut().take();
    waker.inspect(Waker::wake_by_ref);
}

/// The server's end of a pipe.
pub(super) struct PipeStream(pub(super) Rc<Pipe>);

impl Drop for PipeStream {
    fn drop(&mut self) {
        self.0.closed.set(true);
    }
}

impl Stream for PipeStream {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        let mut incoming = self.0.incoming.borrow_mut();
        if self.0.client_end.get() == ClientEnd::Reset {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if incoming.is_empty() {
            if self.0.client_end.get() == ClientEnd::Ended {
                return Poll::Ready(Ok(0));
            }
            assert!(!self.0.is_held_back.get() || self.0.is_write_shutdown(), "no wait while the client can read more");
            *self.0.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let buffer = into.get_or_insert_with(Buffer::take);
        buffer.reserve();
        let window = buffer.capacity() - buffer.len();
        let count = incoming.len().min(window).min(self.0.receive_bytes_max.get());
        buffer.extend(incoming.drain(..count));
        Poll::Ready(Ok(count))
    }

    fn send(&self, parts: [&[u8]; 2], mode: SendMode) -> io::Result<usize> {
        if parts == [b"", b""] {
            return Ok(0);
        }
        assert!(!self.0.is_write_shutdown(), "nothing is sent after the shutdown");
        let bytes = parts.concat();
        let taken = self.0.taken(bytes.len())?;
        self.0.sent(&bytes[..taken]);
        self.0.is_held_back.set(mode == SendMode::MoreFollows && taken == bytes.len());
        Ok(taken)
    }

    fn send_file(&self, first: &[u8], part: FilePart<'_>) -> io::Result<usize> {
        let mut bytes = vec![0; part.length];
        let read = match part.source {
            FileSource::PageCache(_) if !first.is_empty() => return self.send([first, &[]], SendMode::MoreFollows),
            FileSource::PageCache(file) => file.read_at(&mut bytes, part.offset)?,
            FileSource::Copied(file) => file.read_at(&mut bytes, part.offset)?,
        };
        let mode = if read == part.length { part.mode } else { SendMode::MoreFollows };
        if read == 0 { Ok(0) } else { self.send([first, &bytes[..read]], mode) }
    }

    fn send_pipe(&self, pipe: &mut SplicePipe) -> io::Result<usize> {
        assert!(!self.0.is_write_shutdown(), "nothing is sent after the shutdown");
        let taken = self.0.taken(pipe.len())?;
        self.0.sent(&pipe.read(taken));
        self.0.is_held_back.set(false);
        Ok(taken)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.window.get() > 0 || self.0.client_end.get() == ClientEnd::Reset {
            return Poll::Ready(Ok(()));
        }
        *self.0.writer.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_read_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.client_end.get() != ClientEnd::Open {
            return Poll::Ready(());
        }
        *self.0.watcher.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn shutdown(&self, how: ShutdownMode) {
        match how {
            ShutdownMode::Write => self.0.finished.set(true),
            ShutdownMode::Both => unreachable!("a pipe has no upgraded connection"),
            ShutdownMode::ResetOnClose => self.0.resets_on_close.set(true),
        }
    }

    fn unsent_bytes(&self, limit: Option<i32>) -> usize {
        if limit.is_some() {
            self.0.notsent_lowat.set(limit);
        }
        self.0.notsent_bytes.get()
    }

    fn park(&mut self, worker: &Rc<Worker>, id: ConnectionId) -> bool {
        assert!(self.0.incoming.borrow().is_empty(), "a connection with unread bytes does not park");
        *self.0.parked.borrow_mut() = Some((worker.clone(), id));
        true
    }

    fn unpark(&mut self, _: &Worker) {
        *self.0.parked.borrow_mut() = None;
    }
}

impl Detach for PipeStream {
    type Detached = EpollSocket;

    fn detach(self) -> io::Result<(EpollSocket, Bytes)> {
        Err(ErrorKind::Unsupported.into())
    }
}
