//! The connection table of a worker: what each connection waits for, and until when.
//!
//! Requests do not use runtime timers. A connection writes its deadline into this table. One sweeper per worker
//! reads the table about 4 times per second and wakes connections whose deadline has passed.

mod leases;
#[cfg(test)]
mod tests;

use crate::limits::{SWEEPS_UNTIL_PARKED, TRIM_AFTER_CONNECTIONS};
use crate::net::clock::Tick;
pub(crate) use leases::ConnectionId;
use leases::Leases;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::Waker;

/// What a connection waits for. This list is the whole policy for slow clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// No deadline: the application works.
    None,
    /// The rest of a request head.
    RequestHead,
    /// More request content.
    RequestBody,
    /// The client has to receive more of a response.
    ResponseProgress,
    /// The next request.
    KeepAlive,
    /// The client has to close after the final response.
    Linger,
    /// No deadline: another protocol uses the connection.
    Upgraded,
}

/// A signal from the worker to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// No interrupt.
    None,
    /// The deadline has passed.
    TimedOut,
    /// The connection is idle and is evicted.
    Evict,
    /// The server drains, and the connection is idle.
    Drain,
    /// The connection has been idle for about one second and its task should end.
    Park,
    /// Time has passed for the streams of the connection that no lease keeps. Another stream keeps the connection.
    AbortStreams,
    /// The connection is aborted.
    Abort,
}

/// Which connections a drain or an abort concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainScope {
    /// All: the server stops.
    All,
    /// Those without a lease in force: another server has the listeners.
    Unleased,
    /// Of these, those of earlier generations than this one: their application was replaced.
    Replaced(u32),
}

struct Entry {
    due: Tick,
    deadline: Deadline,
    interrupt: Interrupt,
    /// Consecutive sweeps that found the connection idle.
    idle_sweeps: u8,
    is_used: bool,
    /// Whether it has streams, which end at different times: it is drained whatever it waits for.
    has_streams: bool,
    generation: u32,
    wake_target: WakeTarget,
}

/// What an interrupt wakes.
enum WakeTarget {
    None,
    Task(Waker),
    /// A connection without a task, in the parked connections.
    Parked,
}

/// A wake-up to run after the table is no longer borrowed: waking may run code that uses the table.
enum PendingWake {
    Task(Waker),
    Parked(ConnectionId),
}

/// The parked connections of a worker, by connection ID.
pub(crate) trait Resume: Any {
    /// Resumes a connection in a new task.
    fn resume(self: Rc<Self>, id: ConnectionId);

    /// Drops all parked connections, which closes them.
    fn clear(&self);
}

impl Entry {
    const UNUSED: Self = Self {
        due: Tick::MAX,
        deadline: Deadline::None,
        interrupt: Interrupt::None,
        idle_sweeps: 0,
        is_used: false,
        has_streams: false,
        generation: 0,
        wake_target: WakeTarget::None,
    };

    /// Returns what an interrupt wakes. A task's waker stays registered; a parked connection is no longer parked.
    fn take_wake(&mut self, id: usize) -> Option<PendingWake> {
        match &self.wake_target {
            WakeTarget::None => None,
            WakeTarget::Task(waker) => Some(PendingWake::Task(waker.clone())),
            WakeTarget::Parked => {
                self.wake_target = WakeTarget::None;
                Some(PendingWake::Parked(id as ConnectionId))
            }
        }
    }

    /// Returns whether the generation of the connection is within the scope.
    fn is_within(&self, scope: DrainScope) -> bool {
        match scope {
            DrainScope::All | DrainScope::Unleased => true,
            DrainScope::Replaced(generation) => self.generation < generation,
        }
    }

    /// Returns whether a new interrupt may replace the pending one. `Park` has the lowest priority.
    fn is_interruptible(&self) -> bool {
        matches!(self.interrupt, Interrupt::None | Interrupt::Park)
    }

    fn can_park(&self) -> bool {
        self.deadline == Deadline::KeepAlive
            && self.interrupt == Interrupt::None
            && matches!(self.wake_target, WakeTarget::Task(_))
    }
}

/// The connection table of one worker.
#[derive(Default)]
pub(crate) struct ConnectionTable {
    entries: RefCell<Vec<Entry>>,
    free: RefCell<Vec<u32>>,
    resumer: OnceCell<Rc<dyn Resume>>,
    count: Cell<usize>,
    /// Connections with a task.
    pub(crate) tasks: TaskCounter,
    /// The current generation of connections.
    pub(crate) generation: Cell<u32>,
    pub(crate) leases: Leases,
}

/// Counts the connections with a task, to find when the memory of many ended tasks can be returned.
#[derive(Debug, Default)]
pub(crate) struct TaskCounter {
    count: Cell<usize>,
    /// The maximum since the heap was last trimmed.
    peak: Cell<usize>,
}

impl TaskCounter {
    fn start(&self) {
        let count = self.count.get() + 1;
        self.count.set(count);
        self.peak.set(self.peak.get().max(count));
    }

    fn end(&self) {
        self.count.set(self.count.get() - 1);
    }

    /// Returns whether [`TRIM_AFTER_CONNECTIONS`] connections have parked or closed since the peak. Returns true
    /// once per peak.
    pub(crate) fn should_trim_heap(&self) -> bool {
        let should_trim = self.peak.get() - self.count.get() >= TRIM_AFTER_CONNECTIONS;
        if should_trim {
            self.peak.set(self.count.get());
        }
        should_trim
    }
}

impl ConnectionTable {
    /// Returns the number of connections.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    pub(crate) fn insert(&self) -> ConnectionId {
        self.count.set(self.count.get() + 1);
        self.tasks.start();
        let entry = Entry { is_used: true, generation: self.generation.get(), ..Entry::UNUSED };
        let mut table = self.entries.borrow_mut();
        if let Some(id) = self.free.borrow_mut().pop() {
            table[id as usize] = entry;
            return id;
        }
        table.push(entry);
        ConnectionId::try_from(table.len() - 1).expect("file descriptor numbers fit in 31 bits")
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        self.count.set(self.count.get() - 1);
        self.tasks.end();
        let mut table = self.entries.borrow_mut();
        table[id as usize] = Entry::UNUSED;
        self.free.borrow_mut().push(id);
        if self.count.get() == 0 {
            // Frees the table's memory after a load peak.
            table.clear();
            self.free.borrow_mut().clear();
            table.shrink_to(1024);
            self.free.borrow_mut().shrink_to(1024);
        }
    }

    /// Sets the deadline of a connection and clears a pending interrupt, which concerned the old deadline. `Abort`
    /// stays.
    pub(crate) fn wait_for(&self, id: ConnectionId, deadline: Deadline, due: Tick) {
        let entry = &mut self.entries.borrow_mut()[id as usize];
        entry.deadline = deadline;
        entry.due = due;
        entry.idle_sweeps = 0;
        if entry.interrupt != Interrupt::Abort {
            entry.interrupt = Interrupt::None;
        }
    }

    /// Returns the deadline of a connection, and when it is due.
    pub(crate) fn deadline(&self, id: ConnectionId) -> (Deadline, Tick) {
        let entry = &self.entries.borrow()[id as usize];
        (entry.deadline, entry.due)
    }

    pub(crate) fn interrupt(&self, id: ConnectionId) -> Interrupt {
        self.entries.borrow()[id as usize].interrupt
    }

    /// Sets the waker for interrupts. Returns the pending interrupt.
    pub(crate) fn register_waker(&self, id: ConnectionId, waker: &Waker) -> Interrupt {
        let entry = &mut self.entries.borrow_mut()[id as usize];
        match &entry.wake_target {
            WakeTarget::Task(registered) if registered.will_wake(waker) => {}
            _ => entry.wake_target = WakeTarget::Task(waker.clone()),
        }
        entry.interrupt
    }

    /// Returns the parked connections. The first call creates them.
    pub(crate) fn resumer_or_init(&self, make: impl FnOnce() -> Rc<dyn Resume>) -> Rc<dyn Resume> {
        self.resumer.get_or_init(make).clone()
    }

    /// Marks a connection as parked. A pending `Park` is cleared; another pending interrupt resumes the connection
    /// at once.
    pub(crate) fn park(&self, id: ConnectionId) {
        self.tasks.end();
        let wake = {
            let entry = &mut self.entries.borrow_mut()[id as usize];
            entry.wake_target = WakeTarget::Parked;
            if entry.interrupt == Interrupt::Park {
                entry.interrupt = Interrupt::None;
            }
            if entry.interrupt == Interrupt::None { None } else { entry.take_wake(id as usize) }
        };
        self.wake_all(wake);
    }

    /// Resumes a parked connection. Does nothing if it is not parked.
    pub(crate) fn resume(&self, id: ConnectionId) {
        let wake = match self.entries.borrow_mut().get_mut(id as usize) {
            Some(entry) if matches!(entry.wake_target, WakeTarget::Parked) => entry.take_wake(id as usize),
            _ => return,
        };
        self.wake_all(wake);
    }

    /// Drops all parked connections. Call it when the worker ends.
    pub(crate) fn drop_parked(&self) {
        self.resumer.get().inspect(|parked| parked.clear());
    }

    /// Returns the number of parked connections.
    #[cfg(test)]
    pub(crate) fn parked_count(&self) -> usize {
        self.entries.borrow().iter().filter(|entry| matches!(entry.wake_target, WakeTarget::Parked)).count()
    }

    /// Interrupts all idle connections with `Park`.
    #[cfg(test)]
    pub(crate) fn park_idle(&self) {
        self.interrupt_where(Interrupt::Park, |_, entry| entry.can_park());
    }

    /// Interrupts connections whose deadline has passed. Connections that have been idle for
    /// [`SWEEPS_UNTIL_PARKED`] sweeps receive `Park`.
    pub(crate) fn sweep(&self, now: Tick) {
        let mut wakes = Vec::new();
        let mut table = self.entries.borrow_mut();
        let all = table.iter_mut().enumerate();
        for (id, entry) in all.filter(|(_, entry)| entry.is_used && entry.is_interruptible()) {
            if entry.due <= now {
                entry.interrupt = Interrupt::TimedOut;
                wakes.extend(entry.take_wake(id));
            } else if entry.can_park() {
                entry.idle_sweeps += 1;
                if entry.idle_sweeps >= SWEEPS_UNTIL_PARKED {
                    entry.idle_sweeps = 0;
                    entry.interrupt = Interrupt::Park;
                    wakes.extend(entry.take_wake(id));
                }
            }
        }
        drop(table);
        self.wake_all(wakes);
    }

    /// Interrupts idle connections that have waited for `keep_alive`. Their deadlines were set with the timeout
    /// `configured`.
    pub(crate) fn shorten_idle(&self, now: Tick, configured: Tick, keep_alive: Tick) {
        let reduction = configured.saturating_sub(keep_alive);
        self.interrupt_where(Interrupt::TimedOut, |_, entry| {
            entry.deadline == Deadline::KeepAlive
                && entry.is_interruptible()
                && entry.due.saturating_sub(reduction) <= now
        });
    }

    /// Evicts the connection that has been idle longest. Returns false if none is idle.
    pub(crate) fn evict_idlest(&self) -> bool {
        evict_first_due(self, Deadline::KeepAlive)
    }

    /// Wakes a connection's task, unless `waker` belongs to that task.
    pub(crate) fn wake(&self, id: ConnectionId, waker: Option<&Waker>) {
        let registered = match &self.entries.borrow()[id as usize].wake_target {
            WakeTarget::Task(registered) if waker.is_none_or(|waker| !waker.will_wake(registered)) => {
                registered.clone()
            }
            _ => return,
        };
        registered.wake();
    }

    /// Clears an interrupt that does not concern what the connection does. `Abort` stays.
    pub(crate) fn clear_interrupt(&self, id: ConnectionId) {
        let entry = &mut self.entries.borrow_mut()[id as usize];
        if entry.interrupt != Interrupt::Abort {
            entry.interrupt = Interrupt::None;
        }
    }

    /// Records that a connection has streams.
    pub(crate) fn set_has_streams(&self, id: ConnectionId) {
        self.entries.borrow_mut()[id as usize].has_streams = true;
    }

    /// Interrupts the connections of the scope that have streams or wait for one of `deadlines` with `Drain`. One with streams
    /// is interrupted even if it has a lease, because it distinguishes between its streams.
    pub(crate) fn drain(&self, deadlines: &[Deadline], scope: DrainScope) {
        self.interrupt_where(Interrupt::Drain, |id, entry| {
            let is_kept = || scope != DrainScope::All && self.leases.are_in_force(id);
            let concerns = entry.has_streams || (deadlines.contains(&entry.deadline) && !is_kept());
            concerns && entry.is_within(scope) && entry.is_interruptible()
        });
    }

    /// Aborts the connections of the scope. Returns the number of those that a lease keeps; of these, streams without one are
    /// aborted. If the scope is not that of the current generation, an ended lease counts, too: a later replacement has
    /// ended it, and the connection has time from then on.
    pub(crate) fn abort(&self, scope: DrainScope) -> usize {
        let is_earlier = matches!(scope, DrainScope::Replaced(generation) if generation != self.generation.get());
        let kept = Cell::new(0);
        self.interrupt_where(Interrupt::Abort, |id, entry| {
            let is_kept = entry.is_within(scope)
                && match scope {
                    DrainScope::All => false,
                    DrainScope::Replaced(_) if is_earlier => self.leases.exist(id),
                    DrainScope::Replaced(_) | DrainScope::Unleased => self.leases.are_in_force(id),
                };
            kept.set(kept.get() + usize::from(is_kept));
            entry.is_within(scope) && !is_kept
        });
        if !is_earlier {
            // It is more than a timeout or a drain, which the connection notices again.
            self.interrupt_where(Interrupt::AbortStreams, |_, entry| {
                entry.has_streams && entry.is_within(scope) && entry.interrupt != Interrupt::Abort
            });
        }
        kept.get()
    }

    /// Starts a new generation of connections. Returns its number.
    pub(crate) fn begin_generation(&self) -> u32 {
        self.generation.set(self.generation.get().wrapping_add(1));
        self.generation.get()
    }

    /// Calls `visit` with the generation and the deadline of each connection, and with whether it has streams.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32, Deadline, bool)) {
        self.entries
            .borrow()
            .iter()
            .filter(|entry| entry.is_used)
            .for_each(|entry| visit(entry.generation, entry.deadline, entry.has_streams));
    }

    fn interrupt_where(&self, interrupt: Interrupt, matches: impl Fn(ConnectionId, &Entry) -> bool) {
        let mut wakes = Vec::new();
        for (id, entry) in self.entries.borrow_mut().iter_mut().enumerate() {
            if entry.is_used && matches(id as ConnectionId, entry) {
                entry.interrupt = interrupt;
                wakes.extend(entry.take_wake(id));
            }
        }
        self.wake_all(wakes);
    }

    fn wake_all(&self, wakes: impl IntoIterator<Item = PendingWake>) {
        for wake in wakes {
            match (wake, self.resumer.get()) {
                (PendingWake::Task(waker), _) => waker.wake(),
                (PendingWake::Parked(id), Some(resumer)) => {
                    self.tasks.start();
                    resumer.clone().resume(id);
                }
                (PendingWake::Parked(_), None) => {}
            }
        }
    }
}

/// Sets the latest time until which connections that are idle now stay open.
pub(crate) fn limit_idle(connections: &ConnectionTable, latest: Tick) {
    let mut table = connections.entries.borrow_mut();
    let idle = table.iter_mut().filter(|entry| entry.is_used && entry.deadline == Deadline::KeepAlive);
    idle.for_each(|entry| entry.due = entry.due.min(latest));
}

/// Evicts the connection that has waited longest for the rest of a request head. Returns false if none waits.
pub(crate) fn evict_oldest_head(connections: &ConnectionTable) -> bool {
    evict_first_due(connections, Deadline::RequestHead)
}

/// Evicts the connection with the next deadline of a kind. Returns false if no connection has such a deadline.
fn evict_first_due(connections: &ConnectionTable, deadline: Deadline) -> bool {
    let mut table = connections.entries.borrow_mut();
    let all = table.iter_mut().enumerate();
    let waiting = all.filter(|(_, entry)| entry.is_used && entry.deadline == deadline && entry.is_interruptible());
    let Some((id, entry)) = waiting.min_by_key(|(_, entry)| entry.due) else { return false };
    entry.interrupt = Interrupt::Evict;
    let wake = entry.take_wake(id);
    drop(table);
    connections.wake_all(wake);
    true
}
