//! The context that the connections of one worker share: clock, connection table, limits, I/O back end.

use crate::limits::{Limits, SWEEP_INTERVAL};
use crate::mailbox::MailboxSender;
use crate::net::accepted::{Accepted, ServeAccepted};
use crate::net::backend::Backend;
use crate::net::clock::Clock;
use crate::net::connection_table::{
    ConnectionId, ConnectionTable, Deadline, DrainScope, evict_oldest_head, limit_idle,
};
use crate::net::held_connections::HeldConnections;
use crate::net::idle_epoll::IdleEpoll;
use crate::net::listen::{Endpoint, WorkerSockets};
use crate::net::stop_state::StopState;
use crate::net::turns::Turns;
use crate::net::uring::Uring;
use crate::response_lease::ResponseLease;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// An event that the worker reports to the server.
pub(crate) enum WorkerEvent {
    AcceptFailed(io::Error),
    AcceptRecovered,
    UringUnavailable(io::Error),
    ConnectionsFull,
    ConnectionsFree,
}

/// A command to a worker.
pub(crate) enum WorkerCommand {
    /// Serves a connection that a worker with more connections accepted.
    Serve(Accepted, Endpoint),
    /// Evicts a connection: all permits are in use and the sending worker has none to evict.
    Evict,
    /// Starts to accept at an endpoint.
    AddListener(Endpoint, WorkerSockets),
    /// Stops accepting at an endpoint. The sender is dropped when that is done.
    RemoveListener(Endpoint, mpsc::Sender<Infallible>),
    /// Calls a function with the connection table.
    Inspect(Box<dyn FnOnce(&ConnectionTable) + Send>),
}

/// Which connections of a full server are closed for new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// The one that has been idle longest, between two requests. If none is idle, new connections wait.
    #[default]
    Idle,
    /// If none is idle, the one that has waited longest for the rest of a request head. For a service with few clients,
    /// whose requests arrive at once: clients that send no request cannot keep others away.
    IdleOrIncompleteHead,
}

/// Connection counts of all workers, and the mailboxes of their commands.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    pub(crate) loads: Vec<AtomicUsize>,
    /// Connections accepted since the start. Each worker writes only its own entry.
    pub(crate) accepted: Vec<AtomicU64>,
    /// Responses in progress that have a lease. Each worker writes only its own entry.
    pub(crate) leased: Vec<AtomicUsize>,
    pub(crate) inboxes: Vec<MailboxSender<WorkerCommand>>,
    /// Workers that have not begun to stop.
    pub(crate) accepting: AtomicUsize,
    pub(crate) held_at_stop: HeldConnections,
    pub(crate) eviction: Eviction,
    /// A worker has reported that io_uring is not available.
    pub(crate) has_reported_uring_unavailable: AtomicBool,
}

impl WorkerPool {
    /// Returns how many connections all workers have accepted.
    pub(crate) fn accepted_total(&self) -> u64 {
        self.accepted.iter().map(|accepted| accepted.load(Ordering::Relaxed)).sum()
    }

    /// Returns how many responses in progress have a lease.
    pub(crate) fn leased_total(&self) -> usize {
        self.leased.iter().map(|leased| leased.load(Ordering::Relaxed)).sum()
    }
}

/// Evicts a connection of a worker for a new one, by the policy of the server. Returns false if none may be evicted.
pub(crate) fn evict(worker: &Worker) -> bool {
    let may_be_incomplete = worker.pool.eviction == Eviction::IdleOrIncompleteHead;
    worker.connections.evict_idlest() || (may_be_incomplete && evict_oldest_head(&worker.connections))
}

/// A worker passes new connections on when its count exceeds 1.25 times the mean by more than this.
const IMBALANCE_MAX: usize = 16;

/// The state that the connections of one worker share.
pub(crate) struct Worker {
    pub(crate) clock: Clock,
    pub(crate) connections: ConnectionTable,
    /// Turns for the expensive steps of handshakes.
    pub(crate) turns: Turns,
    pub(crate) stop_state: Cell<StopState>,
    /// Connections with a large send buffer.
    pub(crate) large_send_buffers: Cell<usize>,
    /// Current limits of the app version that serves new connections.
    pub(crate) keep_alive_timeout: Cell<Duration>,
    pub(crate) shutdown_timeout: Cell<Duration>,
    pub(crate) shutdown_notice: Cell<Duration>,
    number: usize,
    pool: Arc<WorkerPool>,
    pub(super) has_connections: Notify,
    pub(super) is_empty: Notify,
    /// Set when a critical task panics.
    pub(super) has_failed: Cell<bool>,
    pub(super) task_failed: Notify,
    on_event: Box<dyn Fn(WorkerEvent)>,
    backend: Backend,
    /// Waits for the clients of parked epoll connections, if the system provides a second epoll instance.
    idle_epoll: Option<IdleEpoll>,
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        pool: Arc<WorkerPool>,
        on_event: Box<dyn Fn(WorkerEvent)>,
        limits: &Limits,
    ) -> Self {
        Self {
            clock: Clock::new(),
            connections: ConnectionTable::default(),
            turns: Turns::default(),
            stop_state: Cell::new(StopState::Running),
            large_send_buffers: Cell::new(0),
            keep_alive_timeout: Cell::new(limits.keep_alive_timeout),
            shutdown_timeout: Cell::new(limits.shutdown_timeout),
            shutdown_notice: Cell::new(limits.shutdown_notice),
            number,
            pool,
            has_connections: Notify::new(),
            is_empty: Notify::new(),
            has_failed: Cell::new(false),
            task_failed: Notify::new(),
            on_event,
            backend: Backend::default(),
            idle_epoll: None,
        }
    }

    /// Creates the only worker of a pool. It ignores events.
    #[cfg(test)]
    pub(crate) fn standalone(limits: &Limits) -> Self {
        let pool = WorkerPool {
            loads: vec![AtomicUsize::new(0)],
            accepted: vec![AtomicU64::new(0)],
            leased: vec![AtomicUsize::new(0)],
            inboxes: Vec::new(),
            accepting: AtomicUsize::new(1),
            held_at_stop: HeldConnections::default(),
            eviction: Eviction::default(),
            has_reported_uring_unavailable: AtomicBool::new(false),
        };
        Self::new(0, Arc::new(pool), Box::new(|_| {}), limits)
    }

    /// Sets the I/O back end.
    pub(crate) fn with_backend(self, backend: Backend) -> Self {
        // Without it, idle connections keep their tasks.
        let idle_epoll = if backend.ring().is_none() { IdleEpoll::new().ok() } else { None };
        Self { backend, idle_epoll, ..self }
    }

    /// Returns the epoll instance for parked connections.
    pub(crate) fn idle_epoll(&self) -> Option<&IdleEpoll> {
        self.idle_epoll.as_ref()
    }

    /// Reports once per server that io_uring is not available. All workers fail for one reason.
    pub(crate) fn report_uring_unavailable(&self, error: io::Error) {
        if !self.pool.has_reported_uring_unavailable.swap(true, Ordering::Relaxed) {
            self.event(WorkerEvent::UringUnavailable(error));
        }
    }

    /// Returns the worker's ring, if any.
    pub(super) fn ring(&self) -> Option<&Rc<Uring>> {
        self.backend.ring()
    }

    pub(crate) fn event(&self, event: WorkerEvent) {
        (self.on_event)(event);
    }

    /// Serves a connection on this worker. If this worker has clearly more than its share, passes the connection
    /// to the worker with the fewest.
    pub(crate) fn dispatch(&self, accepted: Accepted, endpoint: &Endpoint, serve: &ServeAccepted) {
        match self.pick_worker() {
            number if number == self.number => serve(accepted, endpoint),
            // A send fails only if that worker has ended. Then this worker is about to end, too.
            number => drop(self.pool.inboxes[number].send(WorkerCommand::Serve(accepted, endpoint.clone()))),
        }
    }

    /// Requests another worker to evict a connection. Each `attempt` selects the next worker.
    pub(crate) fn evict_on_another_worker(&self, attempt: usize) {
        let count = self.pool.inboxes.len();
        let other = (self.number + 1 + attempt % count.saturating_sub(1).max(1)) % count.max(1);
        if other != self.number && self.pool.loads[other].load(Ordering::Relaxed) > 0 {
            let _ = self.pool.inboxes[other].send(WorkerCommand::Evict);
        }
    }

    fn pick_worker(&self) -> usize {
        let loads = &self.pool.loads;
        // A worker that stops ends with its last connection, and takes no more.
        if loads.len() == 1 || self.pool.accepting.load(Ordering::Relaxed) < loads.len() {
            return self.number;
        }
        let total: usize = loads.iter().map(|load| load.load(Ordering::Relaxed)).sum();
        let mean = total / loads.len();
        if self.connections.count() <= mean + mean / 4 + IMBALANCE_MAX {
            return self.number;
        }
        let least_loaded = (0..loads.len()).min_by_key(|&number| loads[number].load(Ordering::Relaxed));
        least_loaded.unwrap_or(self.number)
    }

    /// Starts a new generation of connections. Connections of earlier generations are drained after `finish_time` and
    /// aborted one sweep later. Upgraded ones are drained at once. Those with a lease continue, and are looked at again
    /// after each further `finish_time`.
    pub(crate) fn begin_generation(self: &Rc<Self>, finish_time: Duration) {
        let (generation, worker) = (self.connections.begin_generation(), self.clone());
        worker.connections.drain(&[Deadline::Upgraded], DrainScope::Replaced(generation));
        tokio::task::spawn_local(async move {
            loop {
                sleep(finish_time).await;
                worker.connections.drain(&[Deadline::KeepAlive], DrainScope::Replaced(generation));
                // Idle connections close in the meantime.
                sleep(SWEEP_INTERVAL).await;
                let kept = worker.connections.abort(DrainScope::Replaced(generation));
                // A later generation has a task of its own, for the connections of all earlier ones.
                if kept == 0 || worker.connections.generation.get() != generation {
                    return;
                }
            }
        });
    }

    /// Returns whether the server stops: responses end their connections, and idle connections close soon.
    pub(crate) fn is_draining(&self) -> bool {
        self.stop_state.get().is_draining()
    }

    /// Records that the worker is about to stop: responses end their connections, and no worker passes connections on.
    pub(crate) fn stop_accepting(&self, state: StopState) {
        self.stop_state.set(state);
        self.pool.accepting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Begins a stop. Connections with streams announce their end, and upgraded ones that no lease keeps are requested to
    /// end. Idle ones have [`Worker::shutdown_notice`] for a last request. Returns that time.
    pub(crate) fn begin_draining(&self, state: StopState) -> Duration {
        self.stop_state.set(state);
        self.connections.drain(&[Deadline::Upgraded], self.drain_scope());
        let notice = self.shutdown_notice.get().min(self.shutdown_timeout.get());
        limit_idle(&self.connections, self.clock.tick_after(notice));
        notice
    }

    /// Ends the time for a first request: connections on which nothing was received close.
    pub(crate) fn end_notice(&self) {
        self.connections.drain(&[Deadline::RequestHead], self.drain_scope());
    }

    fn drain_scope(&self) -> DrainScope {
        if self.stop_state.get().keeps_leases() { DrainScope::Unleased } else { DrainScope::All }
    }

    /// Ends what no lease keeps, each time that [`Worker::shutdown_timeout`] has passed. `first_request` is the time for
    /// the request of a connection that has sent nothing.
    pub(crate) async fn end_unleased(&self, first_request: Duration) {
        sleep(first_request).await;
        self.end_notice();
        let mut time = self.shutdown_timeout.get().saturating_sub(first_request);
        loop {
            sleep(time).await;
            self.connections.drain(&[Deadline::KeepAlive, Deadline::RequestHead], DrainScope::Unleased);
            // Idle connections close in the meantime.
            sleep(SWEEP_INTERVAL).await;
            self.connections.abort(DrainScope::Unleased);
            // A connection may have begun another request after its response with a lease.
            time = self.shutdown_timeout.get();
        }
    }

    /// Returns how long a connection without a request is kept open, of at most `time`.
    pub(crate) fn idle_time(&self, time: Duration) -> Duration {
        if self.is_draining() { time.min(self.shutdown_notice.get()) } else { time }
    }

    /// Returns whether the kernel holds connections to one of the endpoints, when the server stops. The worker's sockets
    /// hold back no new ones since `since`.
    pub(crate) async fn has_held_connections(
        &self,
        endpoints: impl Iterator<Item = &Endpoint>,
        since: Instant,
    ) -> bool {
        self.pool.held_at_stop.are_at(endpoints, since).await
    }

    /// Counts a connection that this worker accepted, even if admission rejects it later.
    pub(crate) fn count_accepted(&self) {
        let accepted = &self.pool.accepted[self.number];
        accepted.store(accepted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Inserts a connection into the table.
    pub(crate) fn insert_connection(&self) -> ConnectionId {
        if self.connections.count() == 0 {
            // The sweeper sleeps without connections, so the clock was not updated.
            self.clock.update();
            self.has_connections.notify_one();
        }
        let id = self.connections.insert();
        self.publish_load();
        id
    }

    /// Removes a closed connection from the table.
    pub(crate) fn remove_connection(&self, id: ConnectionId) {
        self.connections.remove(id);
        self.publish_load();
        if self.connections.count() == 0 {
            self.is_empty.notify_one();
        }
    }

    /// Records that a response of a connection has a lease.
    pub(crate) fn add_lease(&self, id: ConnectionId, lease: ResponseLease) {
        self.connections.leases.add(id, lease);
        let leased = &self.pool.leased[self.number];
        leased.store(leased.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Records that a response with a lease has ended.
    pub(crate) fn remove_lease(&self, id: ConnectionId, lease: &ResponseLease) {
        self.connections.leases.remove(id, lease);
        let leased = &self.pool.leased[self.number];
        leased.store(leased.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    fn publish_load(&self) {
        self.pool.loads[self.number].store(self.connections.count(), Ordering::Relaxed);
    }
}

/// Spawns a task that the worker needs. If it panics, the worker fails, too; otherwise its clients would wait
/// forever.
pub(crate) fn spawn_critical(worker: &Rc<Worker>, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    struct CriticalGuard(Rc<Worker>);
    impl Drop for CriticalGuard {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.has_failed.set(true);
                self.0.task_failed.notify_one();
            }
        }
    }
    let guard = CriticalGuard(worker.clone());
    tokio::task::spawn_local(async move {
        let _guard = guard;
        task.await;
    })
}
