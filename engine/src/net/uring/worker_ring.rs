//! The ring of a worker: submits operations, processes completions, and wakes what waits for them.

use crate::limits::{BLOCKING_THREADS_MAX, RING_BUFFER_BYTES, RING_BUFFERS, RING_COMPLETIONS, RING_SUBMISSIONS};
use crate::net::connection_table::ConnectionId;
use crate::net::sys;
use crate::net::sys::ring::{Completion, EventfdState, Multishot, Op, Outcome, Ring, Sizes, Slot};
use crate::net::uring::read_state::ReadState;
use crate::net::uring::socket_state::SocketState;
use crate::net::uring::waiters::{Waiter, Wakeups};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
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

/// Sizes of a worker's ring.
const SIZES: Sizes = Sizes {
    submissions: RING_SUBMISSIONS,
    completions: RING_COMPLETIONS,
    buffers: RING_BUFFERS,
    buffer_bytes: RING_BUFFER_BYTES,
};

/// Longest wait for a cancelled operation when no other task can process completions.
pub(super) const CANCEL_WAIT_MAX: Duration = Duration::from_millis(100);

/// The ring of one worker and the state of each descriptor in it.
pub(crate) struct Uring {
    pub(super) core: RefCell<Core>,
    /// Signalled when the kernel has completions.
    eventfd: AsyncFd<OwnedFd>,
    /// Whether the kernel signals it.
    eventfd_state: Cell<EventfdState>,
    run_waker: Cell<Option<Waker>>,
    /// Parked connections that received data and are not yet resumed.
    resumable: RefCell<Vec<ConnectionId>>,
    /// Number of receive completions in the last run.
    receive_count: Cell<usize>,
    /// Permits for file reads, each of which uses memory.
    pub(super) reads: Arc<Semaphore>,
}

/// The state behind [`Uring`]'s cell.
pub(super) struct Core {
    pub(super) ring: Ring,
    /// Indexed by slot.
    pub(super) states: Vec<SlotState>,
}

/// The state of a slot.
pub(super) enum SlotState {
    Unused,
    Socket(SocketState),
    FileRead(ReadState),
}

impl Uring {
    /// Creates a ring for the calling thread, within its runtime.
    ///
    /// # Errors
    /// When the kernel does not support or permit it, or memory runs out.
    pub(crate) fn new() -> io::Result<Rc<Self>> {
        Self::with_sizes(SIZES)
    }

    /// Creates a small ring with injected faults.
    #[cfg(test)]
    pub(crate) fn faulty(script: sys::faults::Script) -> io::Result<Rc<Self>> {
        let ring = Self::with_sizes(Sizes { submissions: 4, completions: 8, buffers: 2, buffer_bytes: 64 })?;
        ring.core.borrow_mut().ring.faults.set_script(script);
        Ok(ring)
    }

    /// Fails to create a ring that is larger than the kernel allows.
    #[cfg(test)]
    pub(crate) fn oversized() -> io::Result<Rc<Self>> {
        Self::with_sizes(Sizes { submissions: 1 << 30, ..SIZES })
    }

    /// Returns the number of free read permits.
    #[cfg(test)]
    pub(super) fn reads_free(&self) -> usize {
        self.reads.available_permits()
    }

    fn with_sizes(sizes: Sizes) -> io::Result<Rc<Self>> {
        let (mut ring, event) = Ring::new(sizes)?;
        probe(&mut ring)?;
        let reads = Arc::new(Semaphore::new(BLOCKING_THREADS_MAX));
        let core = RefCell::new(Core { ring, states: Vec::new() });
        Ok(Rc::new(Self {
            core,
            eventfd: sys::register_readable(event)?,
            eventfd_state: Cell::new(EventfdState::Enabled),
            run_waker: Cell::default(),
            resumable: RefCell::default(),
            receive_count: Cell::default(),
            reads,
        }))
    }

    /// Runs the ring until the task is aborted. Calls `resume` for parked connections that received data.
    pub(crate) async fn run(self: Rc<Self>, resume: impl Fn(ConnectionId)) {
        loop {
            poll_fn(|cx| {
                self.resume_parked(&resume);
                self.poll_has_work(cx)
            })
            .await;
            self.run_once(None);
            self.resume_parked(&resume);
            yield_once().await;
        }
    }

    /// Resumes parked connections that received data.
    fn resume_parked(&self, resume: impl Fn(ConnectionId)) {
        if !self.resumable.borrow().is_empty() {
            let ids = self.resumable.take();
            ids.into_iter().for_each(resume);
        }
    }

    /// Waits until operations are to be submitted or completions are available.
    fn poll_has_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let ring = &mut self.core.borrow_mut().ring;
        let mut has_work = ring.has_work();
        while !has_work && let Poll::Ready(ready) = self.eventfd.poll_read_ready(cx) {
            // Each signal raises an edge, so the eventfd's counter is never read.
            ready.expect("the runtime outlives its tasks").clear_ready();
            has_work = true;
        }
        if !has_work {
            // Later completions signal the eventfd. Earlier ones are found by the check below.
            if self.eventfd_state.replace(EventfdState::Enabled) == EventfdState::Disabled {
                ring.set_eventfd(EventfdState::Enabled);
            }
            has_work = ring.has_deferred_work();
        }
        if has_work {
            return Poll::Ready(());
        }
        self.run_waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }

    /// Returns whether at most one client sent data in the last run. Then batching saves nothing.
    pub(super) fn has_single_client(&self) -> bool {
        // Fault injection requires sends through the ring.
        #[cfg(test)]
        if self.core.borrow().ring.faults.is_active() {
            return false;
        }
        self.receive_count.get() <= 1
    }

    pub(super) fn wake_run_task(&self) {
        if let Some(run_waker) = self.run_waker.take() {
            run_waker.wake();
        }
    }

    /// Calls `f` with the slots. Wakes the run task if that started an operation.
    pub(super) fn with_core<T>(&self, f: impl FnOnce(&mut Core) -> T) -> T {
        let (result, has_pending) = {
            let core = &mut *self.core.borrow_mut();
            (f(core), core.ring.has_pending())
        };
        if has_pending {
            self.wake_run_task();
        }
        result
    }

    /// Submits operations and wakes the waiters of completions. With `wait`, waits up to that time for a
    /// completion.
    pub(super) fn run_once(&self, wait: Option<Duration>) {
        self.core.borrow_mut().ring.submit_and_wait(wait).expect("a correctly used ring accepts submissions");
        let mut is_busy = false;
        self.receive_count.set(0);
        while let Some(wakeups) = self.complete_next() {
            is_busy = true;
            for waiter in wakeups.into_iter().flatten() {
                match waiter {
                    Waiter::Task(waker) => waker.wake(),
                    Waiter::Parked(id) => self.resumable.borrow_mut().push(id),
                }
            }
        }
        // While completions arrive, the run task polls without signals.
        if is_busy && self.eventfd_state.replace(EventfdState::Disabled) == EventfdState::Enabled {
            self.core.borrow_mut().ring.set_eventfd(EventfdState::Disabled);
        }
    }
}

/// Yields once to woken tasks: they return buffers and start operations for the next run. They also get their turn
/// if the kernel reports work permanently.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Tests a multishot receive with provided buffers, which the feature probe of [`Ring::new`] does not cover.
fn probe(ring: &mut Ring) -> io::Result<()> {
    let (near, far) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let slot = ring.register(near);
    ring.start(slot, Op::Receive);
    rustix::net::send(&far, b"?", SendFlags::NOSIGNAL)?;
    ring.submit_and_wait(Some(CANCEL_WAIT_MAX))?;
    let result = match ring.next_completion() {
        Some(Completion { outcome: Outcome::Received(Ok(Some(buffer))), multishot: Multishot::More, .. })
            if buffer.bytes() == b"?" =>
        {
            Ok(())
        }
        Some(Completion { outcome: Outcome::Received(Err(error)), .. }) => Err(error.into()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    };
    ring.release(slot);
    result
}

impl Uring {
    fn complete_next(&self) -> Option<Wakeups> {
        let core = &mut *self.core.borrow_mut();
        let completion = core.ring.next_completion()?;
        if matches!(completion.outcome, Outcome::Received(_)) {
            self.receive_count.set(self.receive_count.get() + 1);
        }
        Some(core.complete(completion))
    }
}

impl Core {
    pub(super) fn insert(&mut self, fd: OwnedFd, state: SlotState) -> Slot {
        let slot = self.ring.register(fd);
        let index = slot as usize;
        if index >= self.states.len() {
            self.states.resize_with(index + 1, || SlotState::Unused);
        }
        self.states[index] = state;
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> SlotState {
        mem::replace(&mut self.states[slot as usize], SlotState::Unused)
    }

    /// Frees a slot and closes its descriptor.
    pub(super) fn close(&mut self, slot: Slot) {
        self.remove(slot);
        self.ring.release(slot);
    }

    /// Records a completion. Returns the waiters to wake.
    fn complete(&mut self, completion: Completion) -> Wakeups {
        let Completion { slot, outcome, multishot } = completion;
        match (&mut self.states[slot as usize], outcome) {
            (SlotState::Socket(state), Outcome::Received(received)) => {
                state.on_received(received, multishot, (&mut self.ring, slot))
            }
            (SlotState::Socket(state), Outcome::Sent(rest, sent)) => state.on_sent(rest, sent),
            (SlotState::Socket(state), Outcome::Ready(op)) => state.on_ready(op),
            (SlotState::FileRead(reading), Outcome::Read(..)) if reading.is_abandoned() => {
                self.close(slot);
                Wakeups::default()
            }
            (SlotState::FileRead(reading), Outcome::Read(memory, read)) => reading.on_read(memory, read),
            _ => Wakeups::default(),
        }
    }
}
