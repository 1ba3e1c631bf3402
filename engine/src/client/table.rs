//! The connections of a client: their deadlines, the tasks that wait on them, and those that are idle.
//!
//! One task of the client sweeps the table 4 times per second while it has an entry. Idle connections wake that task
//! when bytes arrive or the upstream closes them, and leave the pool at once.

use super::connection::PooledConnection;
use super::destination::Destination;
use super::error::ConnectionUse;
use super::group::{Group, SlotId};
use super::learned_idle::LearnedIdle;
use super::limits::ClientLimits;
use crate::net::clock::{Clock, Tick, ticks};
use crate::net::runtime::{Interval, spawn_local, sweeps};
use hashbrown::HashMap;
use selvedge_proto::http1::parse_response::ResponseHead;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Sweeps between two recoveries of learned idle times: 30 s.
const SWEEPS_PER_RECOVERY: u32 = 120;
/// Heads that are kept for the next responses, of 1 KiB each.
const SPARE_HEADS_MAX: usize = 16;

/// One connection.
struct ConnectionSlot {
    /// When its wait is over; `Tick::MAX` if it does not wait.
    deadline: Tick,
    has_timed_out: bool,
    /// The task of the exchange, while it waits.
    waker: Option<Waker>,
    /// The connection, while it is idle.
    idle: Option<Box<PooledConnection>>,
}

/// What the exchanges of a client share.
pub(super) struct Table {
    pub(super) limits: ClientLimits,
    pub(super) clock: Clock,
    slots: RefCell<Slab<ConnectionSlot>>,
    groups: RefCell<HashMap<Destination, Rc<Group>, foldhash::fast::RandomState>>,
    idle_count: Cell<usize>,
    is_closed: Cell<bool>,
    notices: Arc<Notices>,
    /// When learned idle times recovered.
    last_recovery: Cell<Tick>,
    /// Heads to parse into, which are large.
    #[expect(clippy::vec_box, reason = "a head moves between here and an exchange without a copy")]
    spare_heads: RefCell<Vec<Box<ResponseHead>>>,
}

/// Idle connections with events, and the task that reacts to them.
#[derive(Default)]
struct Notices(Mutex<PendingNotices>);

#[derive(Default)]
struct PendingNotices {
    slots: Vec<SlotId>,
    task: Option<Waker>,
}

impl Notices {
    fn lock(&self) -> MutexGuard<'_, PendingNotices> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the task.
    fn wake_task(&self) {
        let task = self.lock().task.take();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// Wakes the client's task for one idle connection.
struct IdleWaker {
    slot: SlotId,
    notices: Arc<Notices>,
}

impl Wake for IdleWaker {
    fn wake(self: Arc<Self>) {
        self.notices.lock().slots.push(self.slot);
        self.notices.wake_task();
    }
}

impl Table {
    pub(super) fn new(limits: ClientLimits) -> Rc<Self> {
        Rc::new(Self {
            limits,
            clock: Clock::new(),
            slots: RefCell::default(),
            groups: RefCell::default(),
            idle_count: Cell::new(0),
            is_closed: Cell::new(false),
            notices: Arc::default(),
            last_recovery: Cell::new(0),
            spare_heads: RefCell::default(),
        })
    }

    /// Returns the connections of a destination.
    pub(super) fn group(&self, destination: &Destination) -> Rc<Group> {
        if let Some(group) = self.groups.borrow().get(destination) {
            return group.clone();
        }
        let group = Rc::new(Group::new(destination.clone()));
        // A destination with bytes of one client is never met again.
        if destination.first_bytes.is_none() {
            self.groups.borrow_mut().insert(destination.clone(), group.clone());
        }
        group
    }

    /// Adds a connection. The first one starts the sweep.
    pub(super) fn add(self: &Rc<Self>) -> Lease {
        let mut slots = self.slots.borrow_mut();
        let is_first = slots.is_empty();
        let slot = ConnectionSlot { deadline: Tick::MAX, has_timed_out: false, waker: None, idle: None };
        let id = SlotId(u32::try_from(slots.insert(slot)).expect("descriptors are fewer than 2^32"));
        drop(slots);
        if is_first {
            self.clock.update();
            self.notices.wake_task();
        }
        Lease { table: self.clone(), id, connection: None }
    }

    /// Takes the connection of a destination that was used last, is open and has received nothing.
    ///
    /// It calls the system each time: what the runtime knows may be late, and bytes that an upstream sent on an idle
    /// connection would become the response to the next request.
    pub(super) fn take_idle(self: &Rc<Self>, group: &Rc<Group>) -> Option<Lease> {
        loop {
            let id = group.idle.borrow_mut().pop()?;
            let Some(connection) = self.unlist(id) else { continue };
            let mut lease = Lease { table: self.clone(), id, connection: Some(connection) };
            let now = self.clock.tick();
            let connection = lease.connection();
            let idle_for = now.saturating_sub(connection.idle_since);
            if connection.idle_until <= now {
                connection.close();
                continue;
            }
            connection.link.socket().expect_readiness();
            if connection.is_quiet(Waker::noop()) {
                connection.connection_use = ConnectionUse::Reused;
                connection.idle_for = idle_for;
                return Some(lease);
            }
            group.closed_after(idle_for);
        }
    }

    /// Takes an idle connection out of its slot.
    fn unlist(&self, id: SlotId) -> Option<Box<PooledConnection>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(id.0 as usize)?;
        let connection = slot.idle.take()?;
        slot.deadline = Tick::MAX;
        self.idle_count.set(self.idle_count.get() - 1);
        Some(connection)
    }

    /// Closes an idle connection, which leaves the list of its group.
    fn close_idle(&self, id: SlotId) -> Option<Box<PooledConnection>> {
        let connection = self.unlist(id)?;
        connection.group.idle.borrow_mut().retain(|other| *other != id);
        self.slots.borrow_mut().remove(id.0 as usize);
        Some(connection)
    }

    /// Closes all idle connections, and pools no more.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        let idle: Vec<SlotId> = self.idle_slots();
        for id in idle {
            if let Some(connection) = self.close_idle(id) {
                connection.close();
            }
        }
        for group in self.groups.take().into_values() {
            for connection in group.shared_connections.take() {
                connection.retire();
            }
        }
        self.notices.wake_task();
    }

    fn idle_slots(&self) -> Vec<SlotId> {
        let slots = self.slots.borrow();
        slots.iter().filter(|(_, slot)| slot.idle.is_some()).map(|(id, _)| SlotId(id as u32)).collect()
    }

    /// Removes idle connections that the upstream has closed or that have received bytes.
    fn check_noticed(&self) {
        let noticed = std::mem::take(&mut self.notices.lock().slots);
        for id in noticed {
            let is_quiet = match self.slots.borrow().get(id.0 as usize) {
                Some(ConnectionSlot { idle: Some(connection), .. }) => {
                    connection.idle_waker.as_ref().is_some_and(|waker| connection.is_quiet(waker))
                }
                _ => continue,
            };
            if !is_quiet && let Some(connection) = self.close_idle(id) {
                connection.group.closed_after(self.clock.tick().saturating_sub(connection.idle_since));
            }
        }
    }

    fn idle_waker(&self, slot: SlotId) -> Waker {
        Waker::from(Arc::new(IdleWaker { slot, notices: self.notices.clone() }))
    }

    /// Ends waits that are over, and closes connections that were idle for too long.
    fn sweep(&self) {
        self.clock.update();
        let now = self.clock.tick();
        let (mut wakers, mut expired) = (Vec::new(), Vec::new());
        for (id, slot) in self.slots.borrow_mut().iter_mut().filter(|(_, slot)| slot.deadline <= now) {
            if slot.idle.is_some() {
                expired.push(SlotId(id as u32));
            } else {
                slot.has_timed_out = true;
                slot.deadline = Tick::MAX;
                wakers.extend(slot.waker.take());
            }
        }
        for id in expired {
            if let Some(connection) = self.close_idle(id) {
                connection.close();
            }
        }
        wakers.into_iter().for_each(Waker::wake);
        if now.saturating_sub(self.last_recovery.get()) >= SWEEPS_PER_RECOVERY {
            self.last_recovery.set(now);
            self.recover();
        }
    }

    /// Lengthens learned idle times slowly, and forgets destinations that have none and are not used.
    fn recover(&self) {
        self.groups.borrow_mut().retain(|_, group| {
            let mut learned = group.learned.get();
            learned.recover(ticks(self.limits.idle_timeout));
            group.learned.set(learned);
            Rc::strong_count(group) > 1 || learned != LearnedIdle::default() || group.is_used()
        });
    }

    /// Waits for the next sweep or a notice. The end of the client completes it.
    fn poll_task(&self, interval: &mut Option<Interval>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.notices.lock().task = Some(cx.waker().clone());
            self.check_noticed();
            if self.slots.borrow().is_empty() {
                *interval = None;
                return Poll::Pending;
            }
            std::task::ready!(interval.get_or_insert_with(sweeps).poll_tick(cx));
            self.sweep();
        }
    }

    /// Takes a head to parse a response into.
    pub(super) fn take_head(&self) -> Box<ResponseHead> {
        self.spare_heads.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns a head for the next response.
    pub(super) fn return_head(&self, mut head: Box<ResponseHead>) {
        let mut spare = self.spare_heads.borrow_mut();
        if spare.len() < SPARE_HEADS_MAX {
            head.clear();
            spare.push(head);
        }
    }

    /// Returns the number of idle connections of HTTP/1.1.
    pub(super) fn idle_count(&self) -> usize {
        self.idle_count.get()
    }

    /// Returns the number of connections.
    pub(super) fn connection_count(&self) -> usize {
        self.slots.borrow().len()
    }
}

/// Starts the task of a client. It ends with the table.
pub(super) fn spawn_sweep(table: &Rc<Table>) {
    let table = Rc::downgrade(table);
    spawn_local(run_sweep(table));
}

async fn run_sweep(table: Weak<Table>) {
    let mut interval = None;
    // Nothing else holds the waker of this task, so it is dropped only with the table's notices, whose end wakes it.
    poll_fn(|cx| match table.upgrade() {
        None => Poll::Ready(()),
        Some(table) => table.poll_task(&mut interval, cx),
    })
    .await;
}

impl Drop for Table {
    fn drop(&mut self) {
        self.notices.wake_task();
    }
}

/// A connection that is used, or is being opened. Dropping it closes the connection.
pub(super) struct Lease {
    pub(super) table: Rc<Table>,
    id: SlotId,
    connection: Option<Box<PooledConnection>>,
}

impl Lease {
    /// Returns the connection.
    pub(super) fn connection(&mut self) -> &mut PooledConnection {
        self.connection.as_mut().expect("the connection is set once it is open")
    }

    /// Sets the connection once it is open.
    pub(super) fn set_connection(&mut self, connection: Box<PooledConnection>) {
        self.connection = Some(connection);
    }

    fn with_slot<T>(&self, act: impl FnOnce(&mut ConnectionSlot) -> T) -> Option<T> {
        self.table.slots.borrow_mut().get_mut(self.id.0 as usize).map(act)
    }

    /// Starts or continues a wait of this task. Returns true if the wait is over: the timeout has passed.
    pub(super) fn wait(&self, timeout: Duration, cx: &Context<'_>) -> bool {
        let deadline = self.table.clock.tick_after(timeout);
        let replaced = self.with_slot(|slot| {
            if slot.has_timed_out {
                return Err(());
            }
            if slot.deadline == Tick::MAX {
                slot.deadline = deadline;
            }
            match &slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => Ok(None),
                _ => Ok(slot.waker.replace(cx.waker().clone())),
            }
        });
        // Dropping the replaced waker may run other code, so it is dropped after the borrow.
        matches!(replaced, Some(Err(())))
    }

    /// Waits until a tick, in place of an earlier one. Returns true if one has passed, once.
    pub(super) fn wait_until(&self, deadline: Tick, cx: &Context<'_>) -> bool {
        let replaced = self.with_slot(|slot| {
            if std::mem::take(&mut slot.has_timed_out) {
                return Err(());
            }
            slot.deadline = deadline;
            match &slot.waker {
                Some(waker) if waker.will_wake(cx.waker()) => Ok(None),
                _ => Ok(slot.waker.replace(cx.waker().clone())),
            }
        });
        // Dropping the replaced waker may run other code, so it is dropped after the borrow.
        matches!(replaced, Some(Err(())))
    }

    /// Ends a wait: the connection made progress, or it does not wait for the upstream.
    pub(super) fn end_wait(&self) {
        self.with_slot(|slot| {
            slot.deadline = Tick::MAX;
            // Bytes may have arrived together with the end of the wait.
            slot.has_timed_out = false;
        });
    }

    /// Returns the connection to the pool, if it may be kept. `keep_alive` is the time that the upstream announced, in
    /// seconds.
    pub(super) fn release(mut self, keep_alive: Option<u32>) {
        let table = self.table.clone();
        let Some(mut connection) = self.connection.take() else { return };
        let group = connection.group.clone();
        let announced =
            keep_alive.map_or(Tick::MAX, |seconds| ticks(Duration::from_secs(u64::from(seconds.saturating_sub(1)))));
        let permitted = group.learned.get().ticks().unwrap_or(Tick::MAX);
        let idle_max = ticks(table.limits.idle_timeout).min(announced).min(permitted);
        let is_kept = !table.is_closed.get()
            && idle_max > 0
            && group.destination.first_bytes.is_none()
            && connection.is_clean()
            && table.idle_count.get() < table.limits.idle_max;
        if !is_kept {
            connection.close();
            return;
        }
        connection.idle_since = table.clock.tick();
        connection.idle_until = connection.idle_since.saturating_add(idle_max);
        let waker = connection.idle_waker.take().unwrap_or_else(|| table.idle_waker(self.id));
        // The upstream may have closed it already, or sent more than its response.
        if !connection.is_quiet(&waker) {
            return;
        }
        connection.idle_waker = Some(waker);
        let mut idle = group.idle.borrow_mut();
        let oldest = (idle.len() >= table.limits.idle_per_destination_max).then(|| idle.first().copied()).flatten();
        idle.push(self.id);
        drop(idle);
        let id = self.id;
        table.idle_count.set(table.idle_count.get() + 1);
        let replaced = self.with_slot(|slot| {
            slot.deadline = connection.idle_until;
            slot.has_timed_out = false;
            slot.idle = Some(connection);
            slot.waker.take()
        });
        drop(replaced);
        self.id = SlotId(u32::MAX);
        debug_assert!(id != self.id);
        if let Some(oldest) = oldest.and_then(|oldest| table.close_idle(oldest)) {
            oldest.close();
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let slot = self.table.slots.borrow_mut().try_remove(self.id.0 as usize);
        // Both may run other code when they are dropped.
        drop((slot, self.connection.take()));
    }
}
