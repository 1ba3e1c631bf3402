//! Runs a worker on its thread: listeners, commands, the sweep of deadlines, and the stop.

use crate::limits::{KEEP_ALIVE_TIMEOUT_MIN, SWEEP_INTERVAL};
use crate::mailbox::MailboxReceiver;
use crate::net::accept::Acceptor;
use crate::net::accepted::ServeAccepted;
use crate::net::backend::BackendChoice;
use crate::net::clock::ticks;
use crate::net::connection_table::DrainScope;
use crate::net::stop_state::StopState;
use crate::net::sys;
use crate::net::worker::{Worker, WorkerCommand, evict, spawn_critical};
use crate::net::worker_listeners::WorkerListeners;
use rustix::thread::CpuSet;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

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

    select(stopped(&mut stop, StopState::HandOver), worker.task_failed.notified()).await;
    check_tasks(&worker);
    drain(&worker, &listeners, &mut stop).await;
    worker.stop_state.set(*stop.borrow());
    worker.connections.abort(DrainScope::All);
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

/// Waits until the stop has proceeded to this state.
async fn stopped(stop: &mut watch::Receiver<StopState>, to: StopState) {
    let _ = stop.wait_for(|stop| *stop >= to).await;
}

/// Panics if a task that the worker needs has panicked.
fn check_tasks(worker: &Worker) {
    assert!(!worker.has_failed.get(), "a critical task of the worker has panicked");
}

/// Serves what is open until it has ended, or the time of a stop has passed.
async fn drain(worker: &Rc<Worker>, listeners: &WorkerListeners, stop: &mut watch::Receiver<StopState>) {
    let state = *stop.borrow();
    worker.stop_accepting(state);
    let held = listeners.close_all().await;
    let state = *stop.borrow();
    let notice = worker.begin_draining(state);
    // A connection that is accepted last has the whole time for its first request, too.
    let first_request = (notice + held.closing_time(notice)).min(worker.shutdown_timeout.get());
    let mut all_closed = std::pin::pin!(async {
        listeners.close_after(held, notice).await;
        while worker.connections.count() > 0 {
            worker.is_empty.notified().await;
        }
    });
    if state == StopState::HandOver {
        let interrupted = select(stopped(stop, StopState::Drain), worker.task_failed.notified());
        let ended = select(all_closed.as_mut(), select(interrupted, worker.end_unleased(first_request))).await;
        check_tasks(worker);
        if ended == Completed::First {
            return;
        }
        let state = *stop.borrow();
        worker.begin_draining(state);
    }
    let mut drained = std::pin::pin!(select(all_closed, stopped(stop, StopState::Immediate)));
    if timeout(first_request, drained.as_mut()).await.is_err() {
        worker.end_notice();
        let _ = timeout(worker.shutdown_timeout.get().saturating_sub(first_request), drained).await;
    }
}

fn execute(command: WorkerCommand, worker: &Rc<Worker>, listeners: &Rc<WorkerListeners>, serve: &ServeAccepted) {
    match command {
        WorkerCommand::Serve(accepted, endpoint) => serve(accepted, &endpoint),
        WorkerCommand::Evict => drop(evict(worker)),
        // A draining worker accepts no connections.
        WorkerCommand::AddListener(..) if worker.is_draining() => {}
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

/// Which of two futures has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completed {
    First,
    Second,
}

/// Completes when one of both futures completes.
async fn select<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> Completed {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|cx| {
        if a.as_mut().poll(cx).is_ready() {
            Poll::Ready(Completed::First)
        } else {
            b.as_mut().poll(cx).map(|_| Completed::Second)
        }
    })
    .await
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
