//! A listening socket in the ring: one operation accepts whoever connects, until it is ended.

use super::{State, TURN_TIME, Uring, Waiting, Woken};
use crate::net::sys::ring::{Kind, Number, Then};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll};

/// What is known of a listening socket.
#[derive(Default)]
pub(super) struct Accepting {
    /// Connections that were accepted and are nobody's yet, and failures in between.
    accepted: VecDeque<Result<OwnedFd, Errno>>,
    waiting: Waiting,
}

impl Accepting {
    /// Notes who has connected.
    pub(super) fn accepted(&mut self, accepted: Result<OwnedFd, Errno>, then: Then) -> Woken {
        if !(then == Then::Over && matches!(accepted, Err(Errno::CANCELED))) {
            self.accepted.push_back(accepted);
        }
        [self.waiting.end(), None]
    }
}

/// A listening socket of a worker with a ring.
pub(crate) struct RingListener {
    uring: Rc<Uring>,
    number: Number,
}

impl RingListener {
    pub(crate) fn new(uring: Rc<Uring>, socket: OwnedFd) -> Self {
        let number = uring.with(|core| core.enter(socket, State::Accepting(Accepting::default())));
        Self { uring, number }
    }

    /// Waits until somebody is accepted who is nobody's yet.
    pub(crate) fn poll_accepted(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.uring.with(|core| {
            let State::Accepting(accepting) = &mut core.states[self.number as usize] else { return Poll::Pending };
            if !accepting.accepted.is_empty() {
                return Poll::Ready(());
            }
            core.ring.begin(self.number, Kind::Accept);
            accepting.waiting.begin(cx);
            Poll::Pending
        })
    }

    /// Somebody who was accepted, or why somebody was not.
    pub(crate) fn next(&self) -> Option<Result<OwnedFd, Errno>> {
        self.uring.with(|core| match &mut core.states[self.number as usize] {
            State::Accepting(accepting) => accepting.accepted.pop_front(),
            _ => None,
        })
    }

    /// Leaves whoever connects from now on in the socket's queue, but for a few who are on their way.
    pub(crate) fn pause(&self) {
        self.uring.with(|core| core.ring.cancel(self.number, Kind::Accept));
    }

    /// The same, and returns when nobody is on the way any more.
    pub(crate) fn end(&self) {
        self.pause();
        while self.uring.with(|core| core.ring.is_in_flight(self.number, Kind::Accept)) {
            self.uring.turn(Some(TURN_TIME));
        }
    }

    /// Does something with the socket itself.
    pub(crate) fn with_socket<T>(&self, act: impl FnOnce(std::os::fd::BorrowedFd<'_>) -> T) -> T {
        self.uring.with(|core| act(core.ring.fd(self.number)))
    }
}

impl Drop for RingListener {
    fn drop(&mut self) {
        self.uring.with(|core| {
            core.leave(self.number);
            core.ring.let_go(self.number);
        });
    }
}
