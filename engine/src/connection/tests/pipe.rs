//! A stream of bytes in memory. Every fault of a client or a network is a setting of it.

use super::scenario::parks_at_once;
use crate::buffer::Buffer;
use crate::net::duplex::Rope;
use crate::net::notes::Place;
use crate::net::stream::{Stream, Then};
use crate::net::worker::Worker;
use crate::service::{Duplex, OpenFile};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What comes after the bytes that the client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// More, perhaps.
    Open,
    /// The end of the stream.
    Ended,
    /// A failure, in both directions and at once.
    Reset,
}

/// Both directions of a connection, as the network has them.
pub(super) struct Pipe {
    /// Sent by the client and not yet received.
    incoming: RefCell<Vec<u8>>,
    ending: Cell<Ending>,
    /// Most bytes that one receive returns.
    pub(super) receive_bytes_max: Cell<usize>,
    /// Most bytes that one send takes.
    pub(super) send_bytes_max: Cell<usize>,
    /// Bytes that are taken before a send would block.
    room: Cell<usize>,
    /// Bytes that were taken and that the client has no room for.
    pub(super) unsent: Cell<usize>,
    /// How many there may be, where that was said.
    pub(super) unsent_max: Cell<Option<i32>>,
    /// What was sent to the client.
    outgoing: RefCell<Vec<u8>>,
    /// The length of each send that took something.
    sends: RefCell<Vec<usize>>,
    /// The last of them waits for what was said to follow.
    held_back: Cell<bool>,
    finished: Cell<bool>,
    closed: Cell<bool>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
    /// The connection is parked, here.
    parked: RefCell<Option<(Rc<Worker>, Place)>>,
}

impl Pipe {
    /// A pipe without faults.
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self {
            incoming: RefCell::default(),
            ending: Cell::new(Ending::Open),
            receive_bytes_max: Cell::new(usize::MAX),
            send_bytes_max: Cell::new(usize::MAX),
            room: Cell::new(usize::MAX),
            unsent: Cell::new(0),
            unsent_max: Cell::new(None),
            outgoing: RefCell::default(),
            sends: RefCell::default(),
            held_back: Cell::new(false),
            finished: Cell::new(false),
            closed: Cell::new(false),
            reader: RefCell::default(),
            writer: RefCell::default(),
            parked: RefCell::default(),
        })
    }

    /// The client sends bytes.
    pub(super) fn push(&self, bytes: &[u8]) {
        self.incoming.borrow_mut().extend_from_slice(bytes);
        self.something_came();
    }

    fn something_came(&self) {
        wake(&self.reader);
        let parked = self.parked.borrow().clone();
        parked.inspect(|(worker, place)| worker.notes.resume(*place));
    }

    /// Whether the connection is parked.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.borrow().is_some()
    }

    /// The client ends its direction, or the network ends both.
    pub(super) fn end(&self, ending: Ending) {
        self.ending.set(ending);
        self.something_came();
        wake(&self.writer);
    }

    /// The client will take so many bytes from now on, and then no more.
    pub(super) fn set_room(&self, bytes: usize) {
        self.room.set(bytes);
        wake(&self.writer);
    }

    /// The client takes so many bytes more.
    pub(super) fn add_room(&self, bytes: usize) {
        self.set_room(self.room.get().saturating_add(bytes));
    }

    /// Everything that was sent to the client.
    pub(super) fn outgoing(&self) -> Vec<u8> {
        self.outgoing.borrow().clone()
    }

    /// The lengths of the sends.
    pub(super) fn sends(&self) -> Vec<usize> {
        self.sends.borrow().clone()
    }

    /// How much of what the client sent was not received.
    pub(super) fn unreceived(&self) -> usize {
        self.incoming.borrow().len()
    }

    /// Whether the server said that it sends no more.
    pub(super) fn is_finished(&self) -> bool {
        self.finished.get()
    }

    /// Whether what was sent last left together with the end.
    pub(super) fn ended_together(&self) -> bool {
        self.held_back.get() && self.is_finished()
    }

    /// Whether the server let go of the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// How many bytes a send of `len` takes.
    fn taken(&self, len: usize) -> io::Result<usize> {
        if self.ending.get() == Ending::Reset {
            return Err(ErrorKind::ConnectionReset.into());
        }
        let taken = len.min(self.send_bytes_max.get()).min(self.room.get());
        if taken == 0 && len > 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.room.set(self.room.get() - taken);
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
pub(super) struct Memory(pub(super) Rc<Pipe>);

impl Drop for Memory {
    fn drop(&mut self) {
        self.0.closed.set(true);
    }
}

impl Stream for Memory {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        let mut incoming = self.0.incoming.borrow_mut();
        if self.0.ending.get() == Ending::Reset {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        if incoming.is_empty() {
            if self.0.ending.get() == Ending::Ended {
                return Poll::Ready(Ok(0));
            }
            assert!(!self.0.held_back.get() || self.0.is_finished(), "nobody waits while the client could have more");
            *self.0.reader.borrow_mut() = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let buffer = into.get_or_insert_with(Buffer::take);
        buffer.make_room();
        let room = buffer.capacity() - buffer.len();
        let count = incoming.len().min(room).min(self.0.receive_bytes_max.get());
        buffer.extend(incoming.drain(..count));
        Poll::Ready(Ok(count))
    }

    fn send(&self, parts: [&[u8]; 2], then: Then) -> io::Result<usize> {
        assert!(!self.0.is_finished(), "nothing is sent after the end was said");
        let bytes = parts.concat();
        let taken = self.0.taken(bytes.len())?;
        self.0.sent(&bytes[..taken]);
        self.0.held_back.set(then == Then::More && taken == bytes.len());
        Ok(taken)
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, offset)?;
        self.send([&bytes[..read], &[]], Then::More)
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, offset)?;
        if read == 0 { Ok(0) } else { self.send([first, &bytes[..read]], Then::More) }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.room.get() > 0 || self.0.ending.get() == Ending::Reset {
            return Poll::Ready(Ok(()));
        }
        *self.0.writer.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn bound_unsent(&self, bytes_max: i32) {
        self.0.unsent_max.set(Some(bytes_max));
    }

    fn unsent(&self) -> usize {
        self.0.unsent.get()
    }

    fn finish(&self) {
        self.0.finished.set(true);
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.ending.get() != Ending::Open {
            return Poll::Ready(());
        }
        *self.0.reader.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn is_unread(&self) -> bool {
        !self.0.incoming.borrow().is_empty()
    }

    fn has_waited(&self) -> bool {
        true
    }

    fn park(&mut self, worker: &Rc<Worker>, place: Place) -> bool {
        assert!(self.0.incoming.borrow().is_empty(), "whoever has yet to read does not park");
        *self.0.parked.borrow_mut() = Some((worker.clone(), place));
        true
    }

    fn unpark(&mut self, _: &Worker) {
        *self.0.parked.borrow_mut() = None;
    }

    fn would_move(&self, _: &Worker) -> bool {
        parks_at_once()
    }

    fn into_duplex(self, _: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
        Err(ErrorKind::Unsupported.into())
    }
}
