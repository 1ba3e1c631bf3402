//! A connected socket, whatever drives it.
//!
//! One type, so that the code above is compiled once: twice, and what a request needs is no longer
//! put into one piece of code, which costs more than to ask each time which driver it is.

use crate::buffer::Buffer;
use crate::net::duplex::Rope;
use crate::net::notes::Place;
use crate::net::stream::{Leaving, Output, Socket, Stream, Then};
use crate::net::uring::RingSocket;
use crate::net::worker::Worker;
use crate::service::{Duplex, OpenFile};
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A connected socket with its driver.
pub(crate) enum Driven {
    Epoll(Socket),
    Ring(RingSocket),
}

/// What either of them does.
macro_rules! either {
    ($driven:ident, $socket:ident => $does:expr) => {
        match $driven {
            Driven::Epoll($socket) => $does,
            Driven::Ring($socket) => $does,
        }
    };
}

impl Stream for Driven {
    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Option<Buffer>) -> Poll<io::Result<usize>> {
        either!(self, socket => socket.poll_receive(cx, into))
    }

    fn hand_over(&self, output: &mut Output) -> io::Result<Leaving> {
        either!(self, socket => socket.hand_over(output))
    }

    fn reclaim(&self, output: &mut Output) -> Leaving {
        either!(self, socket => socket.reclaim(output))
    }

    fn is_held_up(&self) -> bool {
        either!(self, socket => socket.is_held_up())
    }

    fn send(&self, parts: [&[u8]; 2], then: Then) -> io::Result<usize> {
        either!(self, socket => socket.send(parts, then))
    }

    fn send_file(&self, file: &File, offset: u64, len: usize) -> io::Result<usize> {
        either!(self, socket => socket.send_file(file, offset, len))
    }

    fn send_copy(&self, first: &[u8], file: &OpenFile, offset: u64, len: usize) -> io::Result<usize> {
        either!(self, socket => socket.send_copy(first, file, offset, len))
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, socket => socket.poll_writable(cx))
    }

    async fn bring_into_memory(&self, file: &File, at: u64, len: u64) -> Option<()> {
        either!(self, socket => socket.bring_into_memory(file, at, len).await)
    }

    fn bound_unsent(&self, bytes_max: i32) {
        either!(self, socket => socket.bound_unsent(bytes_max));
    }

    fn finish(&self) {
        either!(self, socket => socket.finish());
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        either!(self, socket => socket.poll_ended(cx))
    }

    fn is_unread(&self) -> bool {
        either!(self, socket => socket.is_unread())
    }

    fn has_waited(&self) -> bool {
        either!(self, socket => socket.has_waited())
    }

    fn park(&mut self, worker: &Rc<Worker>, place: Place) -> bool {
        either!(self, socket => socket.park(worker, place))
    }

    fn unpark(&mut self, worker: &Worker) {
        either!(self, socket => socket.unpark(worker));
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
        either!(self, socket => socket.into_duplex(first))
    }
}
