//! The second driver of sockets: operations are handed to the kernel in a ring, many at once, and
//! each is said to be done when it is.
//!
//! One task of the worker, [`Uring::drive`], is where the ring turns. It is woken when something
//! was begun, and by a descriptor in the runtime's epoll set that the ring signals; it wakes
//! whoever waited for what is done. So timers and sockets of anybody else go on beside it.

mod reading;
mod receiving;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use socket::RingSocket;

use crate::limits::{BLOCKING_THREADS_MAX, RING_BUFFER_BYTES, RING_BUFFERS, RING_COMPLETIONS, RING_SUBMISSIONS};
use crate::net::notes::Place;
use crate::net::sys;
use crate::net::sys::ring::{Completion, Done, Kind, Number, Ring, Signals, Sizes, Then};
use reading::Reading;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use socket::Talking;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;

/// What the ring holds for one worker.
const SIZES: Sizes = Sizes {
    submissions: RING_SUBMISSIONS,
    completions: RING_COMPLETIONS,
    buffers: RING_BUFFERS,
    buffer_bytes: RING_BUFFER_BYTES,
};

/// How long a turn waits that nobody else can take, for a cancelled operation to be over.
const TURN_TIME: Duration = Duration::from_millis(100);

/// The ring of one worker, and what is known of each socket in it.
pub(crate) struct Uring {
    core: RefCell<Core>,
    /// Signalled when the kernel has something to complete.
    event: AsyncFd<OwnedFd>,
    /// Whether it is.
    signals: Cell<Signals>,
    driver: Cell<Option<Waker>>,
    /// Parked connections that something came for, and that nobody was told of yet.
    roused: RefCell<Vec<Place>>,
    /// From how many clients bytes came with the last turn.
    came: Cell<usize>,
    /// Turns to read from disks, which take memory.
    reads: Arc<Semaphore>,
}

/// See [`Uring`].
struct Core {
    ring: Ring,
    /// By the number that the ring has given.
    states: Vec<State>,
}

/// What is known of a socket in the ring.
enum State {
    Unused,
    Talking(Talking),
    Reading(Reading),
}

/// Who waits, if somebody does.
#[derive(Default)]
struct Waiting(Option<Waiter>);

/// See [`Waiting`].
enum Waiter {
    Task(Waker),
    /// A parked connection.
    Parked(Place),
}

impl Waiting {
    fn begin(&mut self, cx: &Context<'_>) {
        match &self.0 {
            Some(Waiter::Task(known)) if known.will_wake(cx.waker()) => {}
            _ => self.0 = Some(Waiter::Task(cx.waker().clone())),
        }
    }

    fn of_parked(place: Place) -> Self {
        Self(Some(Waiter::Parked(place)))
    }

    fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Whom to wake, when nothing is borrowed any more: waking may run anybody's code.
    fn end(&mut self) -> Option<Waiter> {
        self.0.take()
    }
}

/// Those to wake after a completion.
type Woken = [Option<Waiter>; 2];

impl Uring {
    /// A ring for this thread, in whose runtime it is.
    ///
    /// # Errors
    /// When the system has none, forbids it, or memory runs out.
    pub(crate) fn new() -> io::Result<Rc<Self>> {
        Self::with_sizes(SIZES)
    }

    /// A ring that runs out of everything, and in which things go wrong.
    #[cfg(test)]
    pub(crate) fn faulty(script: sys::faults::Script) -> io::Result<Rc<Self>> {
        let ring = Self::with_sizes(Sizes { submissions: 4, completions: 8, buffers: 2, buffer_bytes: 64 })?;
        ring.core.borrow_mut().ring.faults.follow(script);
        Ok(ring)
    }

    /// A ring that no system has.
    #[cfg(test)]
    pub(crate) fn too_large() -> io::Result<Rc<Self>> {
        Self::with_sizes(Sizes { submissions: 1 << 30, ..SIZES })
    }

    /// How many files more could be read at once.
    #[cfg(test)]
    fn reads_left(&self) -> usize {
        self.reads.available_permits()
    }

    fn with_sizes(sizes: Sizes) -> io::Result<Rc<Self>> {
        let (mut ring, event) = Ring::new(sizes)?;
        try_out(&mut ring)?;
        let reads = Arc::new(Semaphore::new(BLOCKING_THREADS_MAX));
        let core = RefCell::new(Core { ring, states: Vec::new() });
        Ok(Rc::new(Self {
            core,
            event: sys::watch_readable(event)?,
            signals: Cell::new(Signals::Wanted),
            driver: Cell::default(),
            roused: RefCell::default(),
            came: Cell::default(),
            reads,
        }))
    }

    /// Turns the ring for as long as the worker serves, and resumes parked connections that something came for.
    pub(crate) async fn drive(self: Rc<Self>, resume: impl Fn(Place)) {
        loop {
            poll_fn(|cx| {
                self.resume_parked(&resume);
                self.poll_due(cx)
            })
            .await;
            self.turn(None);
            self.resume_parked(&resume);
            give_way().await;
        }
    }

    /// Has parked connections go on that something came for.
    fn resume_parked(&self, resume: impl Fn(Place)) {
        if !self.roused.borrow().is_empty() {
            let roused = self.roused.take();
            roused.into_iter().for_each(resume);
        }
    }

    /// Waits until something was begun, or can be completed.
    fn poll_due(&self, cx: &mut Context<'_>) -> Poll<()> {
        let ring = &mut self.core.borrow_mut().ring;
        let mut is_due = ring.is_due();
        while !is_due && let Poll::Ready(ready) = self.event.poll_read_ready(cx) {
            // Each signal raises an edge, so the count that it adds to is never read.
            ready.expect("the worker's runtime lives as long as its tasks").clear_ready();
            is_due = true;
        }
        if !is_due {
            // What comes from now on is signalled; what came before shows in a look.
            if self.signals.replace(Signals::Wanted) == Signals::Unwanted {
                ring.signal(Signals::Wanted);
            }
            is_due = ring.has_work();
        }
        if is_due {
            return Poll::Ready(());
        }
        self.driver.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Whether bytes have come from one client alone. Then a turn would save it nothing.
    fn came_alone(&self) -> bool {
        // What goes wrong with sends has to meet sends in the ring.
        #[cfg(test)]
        if self.core.borrow().ring.faults.are_there() {
            return false;
        }
        self.came.get() <= 1
    }

    fn wake_driver(&self) {
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Looks at sockets' states, and has the ring turn soon if that began something.
    fn with<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        let (looked, has_begun) = {
            let core = &mut *self.core.borrow_mut();
            (look(core), core.ring.has_begun())
        };
        if has_begun {
            self.wake_driver();
        }
        looked
    }

    /// Hands over what was begun and tells everybody what is done. Waits for something to be done,
    /// up to a time, where that is wanted.
    fn turn(&self, wait: Option<Duration>) {
        self.core.borrow_mut().ring.turn(wait).expect("the ring is used as the kernel wants it used");
        let mut is_busy = false;
        self.came.set(0);
        while let Some(woken) = self.complete_next() {
            is_busy = true;
            for waiter in woken.into_iter().flatten() {
                match waiter {
                    Waiter::Task(waker) => waker.wake(),
                    Waiter::Parked(place) => self.roused.borrow_mut().push(place),
                }
            }
        }
        // Whoever is busy looks by itself.
        if is_busy && self.signals.replace(Signals::Unwanted) == Signals::Wanted {
            self.core.borrow_mut().ring.signal(Signals::Unwanted);
        }
    }
}

/// Lets whoever was woken have their turn: they give their buffers back, and begin what the next turn
/// hands over. Also the kernel could say for ever that there is something.
async fn give_way() {
    let mut given = false;
    poll_fn(|cx| {
        if mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Receives a byte as all bytes are received. What the calls that make a ring do not tell about the
/// system, this does.
fn try_out(ring: &mut Ring) -> io::Result<()> {
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let number = ring.hold(near);
    ring.begin(number, Kind::Receive);
    rustix::net::send(&far, b"?", SendFlags::NOSIGNAL)?;
    ring.turn(Some(TURN_TIME))?;
    let tried = match ring.next() {
        Some(Completion { done: Done::Received(Ok(Some(lease))), then: Then::More, .. }) if lease.bytes() == b"?" => {
            Ok(())
        }
        Some(Completion { done: Done::Received(Err(error)), .. }) => Err(error.into()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    };
    ring.let_go(number);
    tried
}

impl Uring {
    fn complete_next(&self) -> Option<Woken> {
        let core = &mut *self.core.borrow_mut();
        let completion = core.ring.next()?;
        if matches!(completion.done, Done::Received(_)) {
            self.came.set(self.came.get() + 1);
        }
        Some(core.complete(completion))
    }
}

impl Core {
    fn enter(&mut self, fd: OwnedFd, state: State) -> Number {
        let number = self.ring.hold(fd);
        let place = number as usize;
        if place >= self.states.len() {
            self.states.resize_with(place + 1, || State::Unused);
        }
        self.states[place] = state;
        number
    }

    fn leave(&mut self, number: Number) -> State {
        mem::replace(&mut self.states[number as usize], State::Unused)
    }

    /// Lets go of a descriptor, and of what was known of it.
    fn end(&mut self, number: Number) {
        self.leave(number);
        self.ring.let_go(number);
    }

    /// Notes what is done, and says whom that concerns.
    fn complete(&mut self, completion: Completion) -> Woken {
        let Completion { number, done, then } = completion;
        match (&mut self.states[number as usize], done) {
            (State::Talking(talking), Done::Received(received)) => {
                talking.received(received, then, (&mut self.ring, number))
            }
            (State::Talking(talking), Done::Sent(rest, sent)) => talking.sent(rest, sent),
            (State::Talking(talking), Done::Ready(kind)) => talking.ready(kind),
            (State::Reading(reading), Done::Read(..)) if reading.is_abandoned() => {
                self.end(number);
                Woken::default()
            }
            (State::Reading(reading), Done::Read(memory, read)) => reading.read(memory, read),
            _ => Woken::default(),
        }
    }
}
