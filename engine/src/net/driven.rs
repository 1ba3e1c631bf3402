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

    fn unsent(&self) -> usize {
        either!(self, socket => socket.unsent())
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

    fn would_move(&self, worker: &Worker) -> bool {
        matches!(self, Self::Epoll(_)) && worker.ring_takes_less().is_some()
    }

    fn moved(self, worker: &Worker) -> Self {
        match (self, worker.ring_takes_less()) {
            (Self::Epoll(socket), Some(ring)) => Self::Ring(RingSocket::new(ring.clone(), socket.into_inner())),
            (same, _) => same,
        }
    }

    fn into_duplex(self, first: Bytes) -> io::Result<(Box<dyn Duplex>, Rope)> {
        either!(self, socket => socket.into_duplex(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::net::driver::Driver;
    use crate::net::worker;
    use std::os::unix::net::UnixStream;

    fn begin(worker: &Worker) -> Driven {
        let (near, _) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        worker.connection_began();
        worker.drive(near.into())
    }

    /// Where nothing can be in a ring, nothing can move to it.
    fn with_worker(driver: Driver, test: impl FnOnce(&Worker)) {
        let Ok(runtime) = worker::runtime() else { panic!("a runtime") };
        runtime.block_on(async {
            match driver.begin() {
                Ok(drivers) => test(&Worker::alone(&Limits::default()).driven_by(drivers)),
                Err(error) => println!("no io_uring here, so nothing to choose: {error}"),
            }
        });
    }

    #[test]
    fn a_few_connections_stay_with_epoll_and_go_over_to_the_ring_beside_more() {
        with_worker(Driver::Few(2), |worker| {
            let (first, second) = (begin(worker), begin(worker));
            assert!(matches!((&first, &second), (Driven::Epoll(_), Driven::Epoll(_))));
            assert!(!first.would_move(worker) && !second.would_move(worker), "each is beside one");
            assert!(matches!(first.moved(worker), Driven::Epoll(_)));

            let third = begin(worker);
            assert!(second.would_move(worker) && third.would_move(worker), "each is beside two");
            let moved = third.moved(worker);
            assert!(matches!(moved, Driven::Ring(_)) && !moved.would_move(worker));
        });
    }

    #[test]
    fn whoever_was_told_one_driver_has_it_for_all() {
        with_worker(Driver::Epoll, |worker| {
            let all = [(); 40].map(|()| begin(worker));
            assert!(all.iter().all(|driven| matches!(driven, Driven::Epoll(_)) && !driven.would_move(worker)));
        });
        with_worker(Driver::IoUring, |worker| {
            assert!(matches!(begin(worker), Driven::Ring(_)));
        });
    }
}
