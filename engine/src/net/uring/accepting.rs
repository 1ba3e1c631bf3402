//! A listening socket in the ring: one operation accepts whoever connects, until it is ended.
//!
//! That operation asks for no permit. So it is there only while there are permits for all whom it
//! could let in before anybody looks; otherwise the ring says that somebody waits, and each is
//! accepted when there is a permit for them.

use super::{State, TURN_TIME, Uring, Waiting, Woken};
use crate::limits::RING_COMPLETIONS;
use crate::net::sys::ring::{Kind, Number, Then};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll};

/// What is known of a listening socket.
#[derive(Default)]
pub(super) struct Accepting {
    /// Connections that were accepted and are nobody's yet, and failures in between.
    accepted: VecDeque<Result<OwnedFd, Errno>>,
    /// Somebody waited in the socket's queue.
    is_waited_for: bool,
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

    /// Notes that somebody waits.
    pub(super) fn ready(&mut self) -> Woken {
        self.is_waited_for = true;
        [self.waiting.end(), None]
    }
}

/// Whether there are permits for all whom the rings of all workers may let in at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permits {
    Plenty,
    Scarce,
}

impl Permits {
    pub(crate) fn of(available: usize, workers: usize) -> Self {
        if available > RING_COMPLETIONS as usize * workers { Self::Plenty } else { Self::Scarce }
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

    /// Waits until somebody was accepted who is nobody's yet, or waits to be.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>, permits: Permits) -> Poll<()> {
        self.uring.with(|core| {
            let State::Accepting(accepting) = &mut core.states[self.number as usize] else { return Poll::Pending };
            let is_ringed = core.ring.is_in_flight(self.number, Kind::Accept);
            if !accepting.accepted.is_empty() || accepting.is_waited_for {
                return Poll::Ready(());
            }
            match (permits, is_ringed) {
                (Permits::Plenty, true) => {}
                (Permits::Plenty, false) => core.ring.begin(self.number, Kind::Accept),
                (Permits::Scarce, true) => core.ring.cancel(self.number, Kind::Accept),
                (Permits::Scarce, false) => core.ring.begin(self.number, Kind::Readable),
            }
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

    /// Whether there is somebody who was accepted.
    pub(crate) fn has_accepted(&self) -> bool {
        self.uring.with(|core| {
            matches!(&core.states[self.number as usize], State::Accepting(accepting) if !accepting.accepted.is_empty())
        })
    }

    /// Nobody waits in the socket's queue any more.
    pub(crate) fn nobody_waits(&self) {
        self.uring.with(|core| {
            if let State::Accepting(accepting) = &mut core.states[self.number as usize] {
                accepting.is_waited_for = false;
            }
        });
    }

    /// Has the ring let nobody in any more, but for those whom it has let in by then.
    pub(crate) fn end(&self) {
        self.uring.with(|core| core.ring.cancel(self.number, Kind::Accept));
        while self.uring.with(|core| core.ring.is_in_flight(self.number, Kind::Accept)) {
            self.uring.turn(Some(TURN_TIME));
        }
    }

    /// Does something with the socket itself.
    pub(crate) fn with_socket<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
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
