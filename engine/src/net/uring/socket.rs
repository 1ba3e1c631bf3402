//! A connected socket in the ring.

use super::receiving::Receiving;
use super::{State, TURN_TIME, Uring, Waiting, Woken};
use crate::buffer::Buffer;
use crate::net::duplex::{self, Rope};
use crate::net::notes::Place;
use crate::net::stream::{self, Leaving, Output, Stream, Then};
use crate::net::sys;
use crate::net::sys::leases::Lease;
use crate::net::sys::ring::{Kind, Number, Ring, Then as Follows};
use crate::net::worker::Worker;
use crate::service::{Duplex, OpenFile};
use bytes::Bytes;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// What is known of a connected socket.
#[derive(Default)]
pub(super) struct Talking {
    receiving: Receiving,
    sending: Sending,
    writer: Waiting,
    /// Something has changed for who waits to send, since it last looked.
    has_room: bool,
    /// The client has ended its side.
    has_ended: bool,
    /// Who waits for that.
    watcher: Waiting,
}

/// What became of the output that the ring was given.
#[derive(Default)]
enum Sending {
    /// It has left, or there was none.
    #[default]
    Nothing,
    /// The ring has it.
    InFlight,
    /// This is left of it, since the socket did not take all at once.
    CameBack(Box<Output>),
    Failed(Errno),
}

impl Talking {
    /// Notes what came.
    pub(super) fn received(
        &mut self,
        received: Result<Option<Lease>, Errno>,
        then: Follows,
        (ring, number): (&mut Ring, Number),
    ) -> Woken {
        let reader = self.receiving.received(received, then, (ring, number));
        if self.watcher.is_there() && then == Follows::Over && self.receiving.end().is_none() {
            ring.begin(number, Kind::Ended);
        }
        [reader, self.receiving.end().and_then(|_| self.watcher.end())]
    }

    /// Notes what was sent, and what is left.
    pub(super) fn sent(&mut self, rest: Option<(Buffer, usize)>, sent: Result<(), Errno>) -> Woken {
        self.sending = match (sent, rest) {
            (Ok(()) | Err(Errno::AGAIN | Errno::INTR), Some((buffer, at))) => {
                Sending::CameBack(Box::new(Output { buffer: Some(buffer), at }))
            }
            (Ok(()), None) => Sending::Nothing,
            (Err(error), _) => Sending::Failed(error),
        };
        self.has_room = self.writer.is_there();
        // Whoever waits for the client's next request has to know that this one's answer waits.
        let reader = if self.is_held_up() { self.receiving.reader.end() } else { None };
        [self.writer.end(), reader]
    }

    /// Notes that what was waited for is there.
    pub(super) fn ready(&mut self, kind: Kind) -> Woken {
        match kind {
            Kind::Writable => {
                self.has_room = self.writer.is_there();
                [self.writer.end(), None]
            }
            Kind::Ended => {
                self.has_ended = true;
                [self.watcher.end(), None]
            }
            _ => [self.receiving.readable(), None],
        }
    }

    fn is_held_up(&self) -> bool {
        matches!(self.sending, Sending::CameBack(_) | Sending::Failed(_))
    }
}

/// A connected socket, not blocking, in the worker's ring.
pub(crate) struct RingSocket {
    uring: Rc<Uring>,
    number: Number,
}

impl RingSocket {
    pub(crate) fn new(uring: Rc<Uring>, fd: OwnedFd) -> Self {
        let number = uring.with(|core| core.enter(fd, State::Talking(Talking::default())));
        Self { uring, number }
    }

    /// Looks at the socket's state, and has the ring turn if that began something.
    fn with<T>(&self, look: impl FnOnce(&mut Talking, &mut Ring) -> T) -> T {
        self.uring.with(|core| {
            let State::Talking(talking) = &mut core.states[self.number as usize] else {
                unreachable!("the number is this socket's until it is dropped")
            };
            look(talking, &mut core.ring)
        })
    }

    /// Sends directly, unless the ring has something that was there before.
    fn attempt(&self, send: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>) -> io::Result<usize> {
        self.with(|talking, ring| match talking.sending {
            Sending::Nothing => send(ring.fd(self.number)),
            Sending::InFlight | Sending::CameBack(_) => Err(io::ErrorKind::WouldBlock.into()),
            Sending::Failed(error) => Err(error.into()),
        })
    }

    /// Takes the socket out of the ring, with all that has come by now.
    fn take_out(&self) -> (OwnedFd, Vec<u8>) {
        let kinds = [Kind::Receive, Kind::Readable, Kind::Writable, Kind::Ended];
        self.with(|_, ring| kinds.into_iter().for_each(|kind| ring.cancel(self.number, kind)));
        let (fd, state) = loop {
            let taken = self.uring.with(|core| {
                let fd = core.ring.take_back(self.number)?;
                Some((fd, core.leave(self.number)))
            });
            match taken {
                Some(taken) => break taken,
                None => self.uring.turn(Some(TURN_TIME)),
            }
        };
        // The turns that were taken here were not its own, and it is the one to see to signals.
        self.uring.wake_driver();
        match state {
            State::Talking(mut talking) => (fd, talking.receiving.take_all()),
            _ => (fd, Vec::new()),
        }
    }
}

impl Stream for RingSocket {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        self.with(|talking, ring| match talking.sending {
            Sending::Failed(error) => Poll::Ready(Err(error.into())),
            _ => talking.receiving.poll(cx, into, (ring, self.number)),
        })
    }

    fn send(&self, parts: [&[u8]; 2], then: Then) -> io::Result<usize> {
        self.attempt(|fd| stream::send(fd, parts, then))
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        self.attempt(|fd| stream::send_file(fd, file, offset, len))
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        self.attempt(|fd| stream::send_copy(fd, first, file, offset, len))
    }

    fn hand_over(&self, output: &mut Output) -> io::Result<Leaving> {
        if self.uring.came_alone() && self.with(|talking, _| matches!(talking.sending, Sending::Nothing)) {
            return stream::send_all(self, output);
        }
        self.with(|talking, ring| {
            let at = output.at;
            match (&talking.sending, output.buffer.take_if(|buffer| at < buffer.len())) {
                (_, None) => {}
                (Sending::Nothing, Some(buffer)) => {
                    *output = Output::default();
                    talking.sending = Sending::InFlight;
                    ring.send(self.number, buffer, at);
                }
                (_, Some(buffer)) => {
                    output.buffer = Some(buffer);
                    return Ok(Leaving::Busy);
                }
            }
            Ok(Leaving::Clear)
        })
    }

    fn reclaim(&self, output: &mut Output) -> Leaving {
        self.with(|talking, _| match mem::take(&mut talking.sending) {
            Sending::Nothing => Leaving::Clear,
            Sending::CameBack(rest) => {
                let later = mem::replace(output, *rest);
                output.bytes().extend_from_slice(later.rest());
                Leaving::Clear
            }
            other => {
                talking.sending = other;
                Leaving::Busy
            }
        })
    }

    fn is_held_up(&self) -> bool {
        self.with(|talking, _| talking.is_held_up())
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|talking, ring| {
            match talking.sending {
                Sending::Failed(error) => return Poll::Ready(Err(error.into())),
                Sending::CameBack(_) => return Poll::Ready(Ok(())),
                Sending::Nothing if mem::take(&mut talking.has_room) => return Poll::Ready(Ok(())),
                Sending::Nothing => ring.begin(self.number, Kind::Writable),
                Sending::InFlight => {}
            }
            talking.writer.begin(cx);
            Poll::Pending
        })
    }

    async fn bring_into_memory(&self, file: &File, at: u64, len: u64) -> Option<()> {
        self.uring.bring_into_memory(file, at, len).await
    }

    fn bound_unsent(&self, bytes_max: i32) {
        self.with(|_, ring| stream::bound_unsent(ring.fd(self.number), bytes_max));
    }

    fn unsent(&self) -> usize {
        self.with(|_, ring| sys::unsent(ring.fd(self.number)))
    }

    fn finish(&self) {
        // A connection that is already gone has nothing to finish.
        let _ = self.with(|_, ring| rustix::net::shutdown(ring.fd(self.number), Shutdown::Write));
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.with(|talking, ring| {
            if talking.has_ended || talking.receiving.end().is_some() {
                return Poll::Ready(());
            }
            // What fills the ring's buffers sees the end, too.
            if !ring.is_in_flight(self.number, Kind::Receive) {
                ring.begin(self.number, Kind::Ended);
            }
            talking.watcher.begin(cx);
            Poll::Pending
        })
    }

    fn park(&mut self, _worker: &Rc<Worker>, place: Place) -> bool {
        let (waits, _ended) = self.with(|talking, ring| {
            let waits = matches!(talking.sending, Sending::Nothing)
                && !talking.receiving.has_bytes()
                && talking.receiving.end().is_none()
                && [Kind::Receive, Kind::Readable].into_iter().any(|kind| ring.is_in_flight(self.number, kind));
            if !waits {
                return (false, None);
            }
            // The task that waited is about to end. It is let go of when nothing is borrowed any more.
            let reader = mem::replace(&mut talking.receiving.reader, Waiting::of_parked(place));
            (true, Some((reader, mem::take(&mut talking.watcher), mem::take(&mut talking.writer))))
        });
        waits
    }

    fn is_unread(&self) -> bool {
        false
    }

    fn has_waited(&self) -> bool {
        self.with(|talking, ring| talking.receiving.has_bytes() || ring.is_in_flight(self.number, Kind::Receive))
    }

    fn unpark(&mut self, _worker: &Worker) {
        self.with(|talking, _| talking.receiving.reader = Waiting::default());
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
        let (fd, rest) = self.take_out();
        let first = if rest.is_empty() { first } else { [&first[..], &rest].concat().into() };
        duplex::begin(sys::watch(fd)?, first)
    }
}

impl Drop for RingSocket {
    fn drop(&mut self) {
        // What it knew is dropped when nothing is borrowed any more: whoever waited may be part of it.
        let _known = self.uring.with(|core| {
            let known = core.leave(self.number);
            // One that was taken out is not known here any more.
            if let State::Talking(_) = known {
                let is_in_flight = |kind| core.ring.is_in_flight(self.number, kind);
                if is_in_flight(Kind::Receive) && !is_in_flight(Kind::Send) {
                    // The client hears of it now, and not a turn later.
                    let _ = rustix::net::shutdown(core.ring.fd(self.number), Shutdown::Both);
                }
                core.ring.let_go(self.number);
            }
            known
        });
    }
}
