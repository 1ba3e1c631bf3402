//! A worker: one thread with its own runtime, listeners, clock and connection table.

use crate::limits::{BLOCKING_THREADS_MAX, KEEP_ALIVE_TIMEOUT_MIN, Limits, SWEEP_INTERVAL};
use crate::mailbox::{MailboxReceiver, MailboxSender};
use crate::net::accept::Accepted;
use crate::net::clock::{Clock, ticks};
use crate::net::connection_table::{ConnectionId, ConnectionTable};
use crate::net::driver::{Backend, Driver};
use crate::net::idle_epoll::IdleEpoll;
use crate::net::listen::{Endpoint, WorkerSockets};
use crate::net::socket::Socket;
use crate::net::sys;
use crate::net::uring::Uring;
use crate::net::worker_listeners::WorkerListeners;
use rustix::thread::CpuSet;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// An event that the worker reports to the server.
pub(crate) enum WorkerEvent {
    AcceptFailed(io::Error),
    AcceptRecovered,
    UringUnavailable(io::Error),
    ConnectionsFull,
    ConnectionsFree,
}

/// Progress of a server stop. Workers watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopState {
    Running,
    /// No new connections; active requests may finish.
    Drain,
    /// All connections are aborted.
    Immediate,
}

/// A command to a worker.
pub(crate) enum WorkerCommand {
    /// Serves a connection that a worker with more connections accepted.
    Serve(Accepted),
    /// Evicts the idlest connection: all permits are in use and the sending worker has no idle connection.
    EvictIdlest,
    /// Starts to accept at an endpoint.
    AddListener(Endpoint, WorkerSockets),
    /// Stops accepting at an endpoint. The sender is dropped when that is done.
    RemoveListener(Endpoint, mpsc::Sender<Infallible>),
    /// Calls a function with the connection table.
    Inspect(Box<dyn FnOnce(&ConnectionTable) + Send>),
}

/// Connection counts of all workers, and the mailboxes of their commands.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    pub(crate) loads: Vec<AtomicUsize>,
    /// Connections accepted since the start. Each worker writes only its own entry.
    pub(crate) accepted: Vec<AtomicU64>,
    pub(crate) inboxes: Vec<MailboxSender<WorkerCommand>>,
    /// A worker has reported that io_uring is not available.
    pub(crate) has_reported_uring_unavailable: AtomicBool,
}

/// A worker passes new connections on when its count exceeds 1.25 times the mean by more than this.
const IMBALANCE_MAX: usize = 16;

/// The state that the connections of one worker share.
pub(crate) struct Worker {
    pub(crate) clock: Clock,
    pub(crate) connections: ConnectionTable,
    pub(crate) is_draining: Cell<bool>,
    /// Connections with a large send buffer.
    pub(crate) large_send_buffers: Cell<usize>,
    /// The server was stopped without a graceful shutdown.
    pub(crate) stopped_immediately: Cell<bool>,
    /// Current limits of the app version that serves new connections.
    pub(crate) keep_alive_timeout: Cell<Duration>,
    pub(crate) shutdown_timeout: Cell<Duration>,
    number: usize,
    pool: Arc<WorkerPool>,
    has_connections: Notify,
    is_empty: Notify,
    /// Set when a critical task panics.
    has_failed: Cell<bool>,
    task_failed: Notify,
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
            is_draining: Cell::new(false),
            large_send_buffers: Cell::new(0),
            stopped_immediately: Cell::new(false),
            keep_alive_timeout: Cell::new(limits.keep_alive_timeout),
            shutdown_timeout: Cell::new(limits.shutdown_timeout),
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
            inboxes: Vec::new(),
            has_reported_uring_unavailable: AtomicBool::new(false),
        };
        Self::new(0, Arc::new(pool), Box::new(|_| {}), limits)
    }

    /// Sets the I/O back end.
    pub(crate) fn with_backend(self, backend: Backend) -> Self {
        // Without it, idle connections keep their tasks.
        let idle_epoll = if backend.is_epoll_used() { IdleEpoll::new().ok() } else { None };
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

    /// Wraps the socket of a new connection for the I/O back end.
    pub(crate) fn new_socket(&self, fd: OwnedFd) -> Socket {
        self.backend.new_socket(fd)
    }

    /// Returns the ring if a waiting epoll connection should migrate to it. The caller's connection is active and
    /// not counted.
    pub(crate) fn ring_for_migration(&self) -> Option<&Rc<Uring>> {
        self.backend.ring_if_above(self.connections.active_count() - 1)
    }

    pub(crate) fn event(&self, event: WorkerEvent) {
        (self.on_event)(event);
    }

    /// Serves a connection on this worker. If this worker has clearly more than its share, passes the connection
    /// to the worker with the fewest.
    pub(crate) fn dispatch(&self, accepted: Accepted, serve: &dyn Fn(Accepted)) {
        match self.pick_worker() {
            number if number == self.number => serve(accepted),
            // A send fails only if that worker has ended. Then this worker is about to end, too.
            number => drop(self.pool.inboxes[number].send(WorkerCommand::Serve(accepted))),
        }
    }

    /// Requests another worker to evict its idlest connection. Each `attempt` selects the next worker.
    pub(crate) fn evict_on_another_worker(&self, attempt: usize) {
        let count = self.pool.inboxes.len();
        let other = (self.number + 1 + attempt % count.saturating_sub(1).max(1)) % count.max(1);
        if other != self.number && self.pool.loads[other].load(Ordering::Relaxed) > 0 {
            let _ = self.pool.inboxes[other].send(WorkerCommand::EvictIdlest);
        }
    }

    fn pick_worker(&self) -> usize {
        let loads = &self.pool.loads;
        if loads.len() == 1 {
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
    /// aborted one sweep later. Upgraded ones are drained at once.
    pub(crate) fn begin_generation(self: &Rc<Self>, finish_time: Duration) {
        let (generation, worker) = (self.connections.begin_generation(), self.clone());
        worker.connections.drain_upgraded_before(generation);
        tokio::task::spawn_local(async move {
            sleep(finish_time).await;
            worker.connections.drain_before(generation);
            // Idle connections close in the meantime.
            sleep(SWEEP_INTERVAL).await;
            worker.connections.abort_before(generation);
        });
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

/// Start parameters of a worker.
pub(crate) struct WorkerConfig {
    pub(crate) number: usize,
    pub(crate) cpu: Option<usize>,
    pub(crate) inbox: MailboxReceiver<WorkerCommand>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    pub(crate) driver: Driver,
    pub(crate) stop: watch::Receiver<StopState>,
}

/// Creates the runtime of one worker.
pub(crate) fn runtime() -> io::Result<tokio::runtime::LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("selvedge-disk")
        .on_thread_start(lower_thread_priority)
        .build_local(tokio::runtime::LocalOptions::default())
}

/// Niceness of blocking threads: next to a worker on one core, they get about a tenth of its CPU time.
const BLOCKING_THREAD_NICENESS: i32 = 10;

/// Lowers the CPU priority of this thread below the workers, so that work for one client does not delay the
/// others.
fn lower_thread_priority() {
    // Optional: the server also works without it.
    let _ = rustix::process::setpriority_process(None, BLOCKING_THREAD_NICENESS);
}

/// Runs a worker on this thread until it is stopped. `serve` starts a connection's task. `tick` is called about 4
/// times per second while connections exist.
pub(crate) async fn run(config: WorkerConfig, worker: Rc<Worker>, serve: Rc<dyn Fn(Accepted)>, tick: Rc<dyn Fn()>) {
    pin_to(config.cpu);
    let _clear_parked = ClearParkedOnDrop(worker.clone());
    let WorkerConfig { mut inbox, permits, mut stop, .. } = config;
    let resuming = worker.clone();
    let resume = move |id| resuming.connections.resume(id);
    let ring_task = worker.backend.ring().map(|ring| spawn_critical(&worker, ring.clone().run(resume)));
    let parked = worker.clone();
    let idle_epoll_task = spawn_critical(&worker, async move {
        if let Some(idle_epoll) = parked.idle_epoll() {
            idle_epoll.run(&parked.connections).await;
        }
    });
    let listeners = Rc::new(WorkerListeners::new(worker.clone(), permits.clone(), serve.clone()));
    let sweep = Sweep { permits: permits.clone(), connections_max: config.connections_max };
    let sweeper = spawn_critical(&worker, sweep.run(worker.clone(), tick.clone()));
    let (command_listeners, command_worker) = (listeners.clone(), worker.clone());
    let execute = move |command| match command {
        WorkerCommand::Serve(accepted) => serve(accepted),
        WorkerCommand::EvictIdlest => drop(command_worker.connections.evict_idlest()),
        // A draining worker accepts no connections.
        WorkerCommand::AddListener(..) if command_worker.is_draining.get() => {}
        WorkerCommand::AddListener(endpoint, sockets) => command_listeners.add(&endpoint, sockets),
        WorkerCommand::RemoveListener(endpoint, _done) => command_listeners.remove_where(|other| *other == endpoint),
        WorkerCommand::Inspect(inspect) => inspect(&command_worker.connections),
    };
    // Adds the initial listeners before a pending stop is handled.
    while let Some(command) = inbox.try_receive() {
        execute(command);
    }
    let command_task = spawn_critical(&worker, async move {
        loop {
            execute(inbox.receive().await);
        }
    });

    let stopped = async {
        let _ = stop.wait_for(|stop| *stop >= StopState::Drain).await;
    };
    select(stopped, worker.task_failed.notified()).await;
    assert!(!worker.has_failed.get(), "a critical task of the worker has panicked");
    worker.is_draining.set(true);
    listeners.remove_where(|_| true);
    tokio::task::yield_now().await;
    worker.connections.drain();
    let all_closed = async {
        while worker.connections.count() > 0 {
            worker.is_empty.notified().await;
        }
    };
    let stop_state = stop.clone();
    let stopped_immediately = async {
        let _ = stop.wait_for(|stop| *stop == StopState::Immediate).await;
    };
    let mut drained = std::pin::pin!(timeout(worker.shutdown_timeout.get(), select(all_closed, stopped_immediately)));
    let _ = drained.as_mut().await;
    worker.stopped_immediately.set(*stop_state.borrow() == StopState::Immediate);
    worker.connections.abort_all();
    // Aborted connections end when they are next polled. One turn of the runtime polls only some of them.
    for _ in 0..worker.connections.count() {
        tokio::task::yield_now().await;
    }
    command_task.abort();
    sweeper.abort();
    idle_epoll_task.abort();
    ring_task.inspect(JoinHandle::abort);
    tick();
}

/// Drops the parked connections when the worker ends or panics, so that their clients do not wait forever.
struct ClearParkedOnDrop(Rc<Worker>);

impl Drop for ClearParkedOnDrop {
    fn drop(&mut self) {
        self.0.connections.drop_parked();
    }
}

/// Completes when one of both futures completes.
async fn select(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

/// The periodic task that wakes connections whose deadline has passed.
struct Sweep {
    permits: Arc<Semaphore>,
    connections_max: usize,
}

impl Sweep {
    async fn run(self, worker: Rc<Worker>, tick: Rc<dyn Fn()>) {
        let mut sweeps = interval(SWEEP_INTERVAL);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if worker.connections.should_trim_heap() {
                sys::trim_heap();
            }
            if worker.connections.count() == 0 {
                tick();
                worker.has_connections.notified().await;
                sweeps.reset();
            }
            sweeps.tick().await;
            worker.clock.update();
            worker.connections.sweep(worker.clock.tick());
            let configured = worker.keep_alive_timeout.get();
            if let Some(keep_alive) = self.shortened_keep_alive(configured) {
                worker.connections.shorten_idle(worker.clock.tick(), ticks(configured), ticks(keep_alive));
            }
            tick();
        }
    }

    /// Returns a shorter keep-alive timeout if more than three quarters of the connections are in use. It falls
    /// linearly from the configured value to [`KEEP_ALIVE_TIMEOUT_MIN`].
    fn shortened_keep_alive(&self, configured: Duration) -> Option<Duration> {
        let free = self.permits.available_permits();
        let quarter = self.connections_max / 4;
        if free >= quarter || configured <= KEEP_ALIVE_TIMEOUT_MIN {
            return None;
        }
        let share = free as f64 / quarter as f64;
        Some(KEEP_ALIVE_TIMEOUT_MIN + (configured - KEEP_ALIVE_TIMEOUT_MIN).mul_f64(share))
    }
}

/// Pins the thread to one core, so that its caches stay warm.
fn pin_to(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        // Optional: without permission to pin, the kernel schedules the worker freely.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// Returns the cores that this process may run on.
pub(crate) fn cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Runs `work` on a blocking thread, where it may wait for a disk or compute for a long time.
///
/// Code in a handler runs on the worker's thread. While it computes or blocks without `await` (a file, a lock, a
/// database), the worker serves no other connection. Rule of thumb: move work that takes more than 0.1 ms to a
/// blocking thread. Each worker has at most 8 of them. The queue for them is not bounded.
///
/// For a multi-threaded runtime, create one in the application. Handlers may use its handle
/// (`handle.spawn(…).await`).
///
/// Returns `None` if the work panicked or the server is stopping.
pub async fn spawn_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
