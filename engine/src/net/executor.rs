//! Runs a worker on its thread: listeners, commands, the sweep of deadlines, and the stop.

use crate::limits::{KEEP_ALIVE_TIMEOUT_MIN, SWEEP_INTERVAL};
use crate::mailbox::MailboxReceiver;
use crate::net::accept::Acceptor;
use crate::net::accepted::ServeAccepted;
use crate::net::backend::BackendChoice;
use crate::net::clock::ticks;
use crate::net::sys;
use crate::net::worker::{Worker, WorkerCommand, spawn_critical};
use crate::net::worker_listeners::WorkerListeners;
use rustix::thread::CpuSet;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Progress of a server stop. Workers watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopState {
    Running,
    /// No new connections; active requests may finish.
    Drain,
    /// All connections are aborted.
    Immediate,
}

/// Start parameters of a worker.
pub(crate) struct WorkerConfig {
    pub(crate) number: usize,
    pub(crate) cpu: Option<usize>,
    pub(crate) inbox: MailboxReceiver<WorkerCommand>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    pub(crate) backend: BackendChoice,
    pub(crate) stop: watch::Receiver<StopState>,
    /// Sent to a client that is accepted only to be refused.
    pub(crate) refusal: &'static [u8],
}

/// Runs a worker on this thread until it is stopped. `serve` starts a connection's task. `tick` is called about 4
/// times per second while connections exist.
pub(crate) async fn run(config: WorkerConfig, worker: Rc<Worker>, serve: Rc<ServeAccepted>, tick: Rc<dyn Fn()>) {
    pin_to(config.cpu);
    let _clear_parked = ClearParkedOnDrop(worker.clone());
    let WorkerConfig { mut inbox, permits, mut stop, refusal, .. } = config;
    let resuming = worker.clone();
    let resume = move |id| resuming.connections.resume(id);
    let ring_task = worker.ring().map(|ring| spawn_critical(&worker, ring.clone().run(resume)));
    let parked = worker.clone();
    let idle_epoll_task = spawn_critical(&worker, async move {
        if let Some(idle_epoll) = parked.idle_epoll() {
            idle_epoll.run(&parked.connections).await;
        }
    });
    let turns = worker.clone();
    let turns_task = spawn_critical(&worker, async move { turns.turns.run().await });
    let acceptor = Acceptor { worker: worker.clone(), permits: permits.clone(), serve: serve.clone(), refusal };
    let listeners = Rc::new(WorkerListeners::new(acceptor));
    let sweep = Sweep { permits: permits.clone(), connections_max: config.connections_max };
    let sweeper = spawn_critical(&worker, sweep.run(worker.clone(), tick.clone()));
    // Adds the initial listeners before a pending stop is handled.
    while let Some(command) = inbox.try_receive() {
        execute(command, &worker, &listeners, &*serve);
    }
    let (command_worker, command_listeners) = (worker.clone(), listeners.clone());
    let command_task = spawn_critical(&worker, async move {
        loop {
            execute(inbox.receive().await, &command_worker, &command_listeners, &*serve);
        }
    });

    let stopped = async {
        let _ = stop.wait_for(|stop| *stop >= StopState::Drain).await;
    };
    select(stopped, worker.task_failed.notified()).await;
    assert!(!worker.has_failed.get(), "a critical task of the worker has panicked");
    worker.stop_accepting();
    let held = listeners.close_all().await;
    let notice = worker.begin_draining();
    let all_closed = async {
        listeners.close_after(held, notice).await;
        while worker.connections.count() > 0 {
            worker.is_empty.notified().await;
        }
    };
    let stop_state = stop.clone();
    let stopped_immediately = async {
        let _ = stop.wait_for(|stop| *stop == StopState::Immediate).await;
    };
    let mut drained = std::pin::pin!(select(all_closed, stopped_immediately));
    if timeout(notice, drained.as_mut()).await.is_err() {
        worker.end_notice();
        let _ = timeout(worker.shutdown_timeout.get() - notice, drained).await;
    }
    worker.stopped_immediately.set(*stop_state.borrow() == StopState::Immediate);
    worker.connections.abort(None);
    // Aborted connections end when they are next polled. One turn of the runtime polls only some of them.
    for _ in 0..worker.connections.count() {
        tokio::task::yield_now().await;
    }
    command_task.abort();
    sweeper.abort();
    idle_epoll_task.abort();
    turns_task.abort();
    ring_task.inspect(JoinHandle::abort);
    tick();
}

fn execute(command: WorkerCommand, worker: &Rc<Worker>, listeners: &Rc<WorkerListeners>, serve: &ServeAccepted) {
    match command {
        WorkerCommand::Serve(accepted, endpoint) => serve(accepted, &endpoint),
        WorkerCommand::EvictIdlest => drop(worker.connections.evict_idlest()),
        // A draining worker accepts no connections.
        WorkerCommand::AddListener(..) if worker.is_draining.get() => {}
        WorkerCommand::AddListener(endpoint, sockets) => listeners.add(&endpoint, sockets),
        WorkerCommand::RemoveListener(endpoint, done) => {
            let (removed, listeners) = (listeners.remove_where(|other| *other == endpoint), listeners.clone());
            // Later commands do not wait.
            spawn_critical(worker, async move {
                listeners.close(removed).await;
                drop(done);
            });
        }
        WorkerCommand::Inspect(inspect) => inspect(&worker.connections),
    }
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
            if worker.connections.tasks.should_trim_heap() {
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
