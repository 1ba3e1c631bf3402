//! A worker: one thread, one runtime, its own listeners, clock and notes.

use crate::limits::{BLOCKING_THREADS_MAX, KEEP_ALIVE_FLOOR, Limits, SWEEP_INTERVAL};
use crate::net::accept::Accepted;
use crate::net::clock::{Clock, ticks};
use crate::net::driven::Driven;
use crate::net::driver::{Driver, Drivers};
use crate::net::listen::{Dealt, Endpoint};
use crate::net::listening::Listening;
use crate::net::notes::{Notes, Place};
use crate::net::parking::Parking;
use crate::net::sys;
use crate::net::uring::Uring;
use rustix::thread::CpuSet;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::thread;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

/// Something that happened on this floor.
pub(crate) enum Event {
    AcceptFailed(io::Error),
    AcceptRecovered,
    DriverRefused(io::Error),
    ConnectionsFull,
    ConnectionsFree,
}

/// How far a stop has come. Workers watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    NotYet,
    /// Nothing new; what runs may finish.
    Drain,
    /// What still runs is cut.
    Now,
}

/// What workers send to each other.
pub(crate) enum Message {
    /// A connection that another worker has fewer of.
    Serve(Accepted),
    /// All permits are in use, and the idlest connection may be somewhere else.
    MakeRoom,
    /// One more place to accept at.
    Listen(Endpoint, Dealt),
    /// One place less; dropped when it is left.
    Leave(Endpoint, threads::Sender<()>),
    /// Somebody wants to know what the connections are doing.
    Ask(Box<dyn FnOnce(&Notes) + Send>),
}

/// How many connections each worker has and has had, and how to hand one over.
#[derive(Debug)]
pub(crate) struct Peers {
    pub(crate) loads: Vec<AtomicUsize>,
    /// Written by its worker alone.
    pub(crate) accepted: Vec<AtomicU64>,
    pub(crate) inboxes: Vec<mpsc::UnboundedSender<Message>>,
    /// One of them has said that there is no ring.
    pub(crate) said_refused: AtomicBool,
}

/// A worker may have this many connections more than a quarter above the mean before it
/// passes new ones on.
const UNEVEN_SLACK: usize = 16;

/// What the connections of one worker share.
pub(crate) struct Worker {
    pub(crate) clock: Clock,
    pub(crate) notes: Notes,
    pub(crate) draining: Cell<bool>,
    /// How many connections have more room than others for the long files that they are sent.
    pub(crate) roomy: Cell<usize>,
    /// Whoever stopped the server did not want to wait.
    pub(crate) stopped_at_once: Cell<bool>,
    /// How long connections may be idle, and a stop may take, as things are now.
    pub(crate) keep_alive: Cell<Duration>,
    pub(crate) drain_time: Cell<Duration>,
    number: usize,
    peers: Arc<Peers>,
    work_came: Notify,
    all_gone: Notify,
    /// Set when a task has panicked that the worker cannot do without.
    lost: Cell<bool>,
    task_lost: Notify,
    on_event: Box<dyn Fn(Event)>,
    drivers: Drivers,
    /// Where sockets wait that no task waits for, where there is such a place.
    parking: Option<Parking>,
}

impl Worker {
    pub(crate) fn new(number: usize, peers: Arc<Peers>, on_event: Box<dyn Fn(Event)>, limits: &Limits) -> Self {
        Self {
            clock: Clock::new(),
            notes: Notes::default(),
            draining: Cell::new(false),
            roomy: Cell::new(0),
            stopped_at_once: Cell::new(false),
            keep_alive: Cell::new(limits.keep_alive),
            drain_time: Cell::new(limits.drain_time),
            number,
            peers,
            work_came: Notify::new(),
            all_gone: Notify::new(),
            lost: Cell::new(false),
            task_lost: Notify::new(),
            on_event,
            drivers: Drivers::default(),
            parking: None,
        }
    }

    /// The only one, which tells nobody of events.
    #[cfg(test)]
    pub(crate) fn alone(limits: &Limits) -> Self {
        let peers = Peers {
            loads: vec![AtomicUsize::new(0)],
            accepted: vec![AtomicU64::new(0)],
            inboxes: Vec::new(),
            said_refused: AtomicBool::new(false),
        };
        Self::new(0, Arc::new(peers), Box::new(|_| {}), limits)
    }

    /// With its sockets in a ring, in epoll sets, or in both.
    pub(crate) fn driven_by(self, drivers: Drivers) -> Self {
        // Where none can be had, connections keep their tasks.
        let parking = if drivers.is_epoll_used() { Parking::new().ok() } else { None };
        Self { drivers, parking, ..self }
    }

    /// Where sockets wait that no task waits for.
    pub(crate) fn parking(&self) -> Option<&Parking> {
        self.parking.as_ref()
    }

    /// Says that there was no ring to be had. The other workers fare the same, and once is enough.
    pub(crate) fn ring_refused(&self, error: io::Error) {
        if !self.peers.said_refused.swap(true, Ordering::Relaxed) {
            self.event(Event::DriverRefused(error));
        }
    }

    /// The socket of a connection that began, as this worker drives them.
    pub(crate) fn drive(&self, fd: OwnedFd) -> Driven {
        self.drivers.drive(fd)
    }

    /// The ring, where a connection that epoll drives waits with less in it, beside as many as are at work.
    pub(crate) fn ring_takes_less(&self) -> Option<&Rc<Uring>> {
        self.drivers.ring_for_many(self.notes.active() - 1)
    }

    pub(crate) fn event(&self, event: Event) {
        (self.on_event)(event);
    }

    /// Serves a connection here, or passes it to the worker with the fewest when this one
    /// has clearly more than its share.
    pub(crate) fn admit(&self, accepted: Accepted, serve: &dyn Fn(Accepted)) {
        match self.number_for_next() {
            number if number == self.number => serve(accepted),
            // A worker that has ended takes nothing: then this one is about to end, too.
            number => drop(self.peers.inboxes[number].send(Message::Serve(accepted))),
        }
    }

    /// Asks another worker for the place of its idlest connection; with each `attempt` the
    /// next one.
    pub(crate) fn ask_another_for_room(&self, attempt: usize) {
        let count = self.peers.inboxes.len();
        let other = (self.number + 1 + attempt % count.saturating_sub(1).max(1)) % count.max(1);
        if other != self.number && self.peers.loads[other].load(Ordering::Relaxed) > 0 {
            let _ = self.peers.inboxes[other].send(Message::MakeRoom);
        }
    }

    fn number_for_next(&self) -> usize {
        let loads = &self.peers.loads;
        if loads.len() == 1 {
            return self.number;
        }
        let all: usize = loads.iter().map(|load| load.load(Ordering::Relaxed)).sum();
        let mean = all / loads.len();
        if self.notes.count() <= mean + mean / 4 + UNEVEN_SLACK {
            return self.number;
        }
        let least = (0..loads.len()).min_by_key(|&number| loads[number].load(Ordering::Relaxed));
        least.unwrap_or(self.number)
    }

    /// Begins a new generation of connections. Those of earlier ones have so much time.
    pub(crate) fn begin_generation(self: &Rc<Self>, time: Duration) {
        let (generation, worker) = (self.notes.begin_generation(), self.clone());
        worker.notes.announce_before(generation);
        tokio::task::spawn_local(async move {
            sleep(time).await;
            worker.notes.drain_before(generation);
            // Whoever is idle ends by itself in the meantime.
            sleep(SWEEP_INTERVAL).await;
            worker.notes.cut_before(generation);
        });
    }

    /// Counts a connection that has come to be served here, whether it is let in or not.
    pub(crate) fn count_accepted(&self) {
        let accepted = &self.peers.accepted[self.number];
        accepted.store(accepted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Notes that a connection began.
    pub(crate) fn connection_began(&self) -> Place {
        if self.notes.count() == 0 {
            // The sweeper slept, and with it the clock.
            self.clock.read();
            self.work_came.notify_one();
        }
        let place = self.notes.enter();
        self.publish_load();
        place
    }

    /// Notes that it ended.
    pub(crate) fn connection_ended(&self, place: Place) {
        self.notes.leave(place);
        self.publish_load();
        if self.notes.count() == 0 {
            self.all_gone.notify_one();
        }
    }

    fn publish_load(&self) {
        self.peers.loads[self.number].store(self.notes.count(), Ordering::Relaxed);
    }
}

/// Starts a task that the worker cannot do without: when it panics, so does the worker, which
/// would leave clients waiting.
pub(crate) fn spawn_vital(worker: &Rc<Worker>, task: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    struct Vital(Rc<Worker>);
    impl Drop for Vital {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.lost.set(true);
                self.0.task_lost.notify_one();
            }
        }
    }
    let vital = Vital(worker.clone());
    tokio::task::spawn_local(async move {
        let _vital = vital;
        task.await;
    })
}

/// What a worker is started with.
pub(crate) struct Plan {
    pub(crate) number: usize,
    pub(crate) cpu: Option<usize>,
    pub(crate) inbox: mpsc::UnboundedReceiver<Message>,
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    pub(crate) driver: Driver,
    pub(crate) stop: watch::Receiver<Stop>,
}

/// A runtime for one worker.
pub(crate) fn runtime() -> io::Result<tokio::runtime::LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("selvedge-disk")
        .on_thread_start(give_way)
        .build_local(tokio::runtime::LocalOptions::default())
}

/// How much less of a core the threads get that wait for disks, where they share one with a worker:
/// about a tenth of what it gets.
const DISK_NICENESS: i32 = 10;

/// Has this thread come after the workers: a copy that is made here for one client makes no
/// others wait.
fn give_way() {
    // A system that refuses it serves all the same.
    let _ = rustix::process::setpriority_process(None, DISK_NICENESS);
}

/// Runs a worker on this thread until it is stopped. `serve` starts to serve one
/// connection, and `tick` is called a few times a second while there are connections.
pub(crate) async fn run(plan: Plan, worker: Rc<Worker>, serve: Rc<dyn Fn(Accepted)>, tick: Rc<dyn Fn()>) {
    pin_to(plan.cpu);
    let _lot = Lot(worker.clone());
    let Plan { mut inbox, permits, mut stop, .. } = plan;
    let resuming = worker.clone();
    let resume = move |place| resuming.notes.resume(place);
    let turning = worker.drivers.ring().map(|ring| spawn_vital(&worker, ring.clone().drive(resume)));
    let minding = worker.clone();
    let minding = spawn_vital(&worker, async move {
        if let Some(parking) = minding.parking() {
            parking.drive(&minding.notes).await;
        }
    });
    let listening = Rc::new(Listening::new(worker.clone(), permits.clone(), serve.clone()));
    let sweep = Sweep { permits: permits.clone(), connections_max: plan.connections_max };
    let sweeper = spawn_vital(&worker, sweep.run(worker.clone(), tick.clone()));
    let (told, asked) = (listening.clone(), worker.clone());
    let take = move |message| match message {
        Message::Serve(accepted) => serve(accepted),
        Message::MakeRoom => drop(asked.notes.make_room()),
        // Who is about to end lets nobody in.
        Message::Listen(..) if asked.draining.get() => {}
        Message::Listen(endpoint, dealt) => told.begin(&endpoint, dealt),
        Message::Leave(endpoint, _done) => told.end(|other| *other == endpoint),
        Message::Ask(question) => question(&asked.notes),
    };
    // Where to listen from the beginning; a stop that is there already finds it begun.
    while let Ok(message) = inbox.try_recv() {
        take(message);
    }
    let serving = spawn_vital(&worker, async move {
        while let Some(message) = inbox.recv().await {
            take(message);
        }
    });

    let stopped = async {
        let _ = stop.wait_for(|stop| *stop >= Stop::Drain).await;
    };
    first_of(stopped, worker.task_lost.notified()).await;
    assert!(!worker.lost.get(), "a task that the worker cannot do without has panicked");
    worker.draining.set(true);
    listening.end(|_| true);
    tokio::task::yield_now().await;
    worker.notes.drain();
    let gone = async {
        while worker.notes.count() > 0 {
            worker.all_gone.notified().await;
        }
    };
    let stopped = stop.clone();
    let now = async {
        let _ = stop.wait_for(|stop| *stop == Stop::Now).await;
    };
    let mut waiting = std::pin::pin!(timeout(worker.drain_time.get(), first_of(gone, now)));
    let _ = waiting.as_mut().await;
    worker.stopped_at_once.set(*stopped.borrow() == Stop::Now);
    worker.notes.cut();
    // Cut connections end when they are next polled, which needs no waiting for anybody; but
    // one turn of the runtime polls only some of many.
    for _ in 0..worker.notes.count() {
        tokio::task::yield_now().await;
    }
    serving.abort();
    sweeper.abort();
    minding.abort();
    turning.inspect(JoinHandle::abort);
    tick();
}

/// What is parked ends with its worker, also with one that is lost: its clients would wait in vain.
struct Lot(Rc<Worker>);

impl Drop for Lot {
    fn drop(&mut self) {
        self.0.notes.clear_lot();
    }
}

/// Ends with whichever ends first.
async fn first_of(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
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

/// The sweeper of one worker.
struct Sweep {
    permits: Arc<Semaphore>,
    connections_max: usize,
}

impl Sweep {
    async fn run(self, worker: Rc<Worker>, tick: Rc<dyn Fn()>) {
        let mut sweeps = interval(SWEEP_INTERVAL);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if worker.notes.rush_is_over() {
                sys::trim_heap();
            }
            if worker.notes.count() == 0 {
                tick();
                worker.work_came.notified().await;
                sweeps.reset();
            }
            sweeps.tick().await;
            worker.clock.read();
            worker.notes.sweep(worker.clock.tick());
            let usual = worker.keep_alive.get();
            if let Some(keep_alive) = self.shortened_keep_alive(usual) {
                worker.notes.shorten_idle(worker.clock.tick(), ticks(usual), ticks(keep_alive));
            }
            tick();
        }
    }

    /// The keep-alive time when more than three quarters of the connections are in use: it
    /// falls from the usual one to its floor.
    fn shortened_keep_alive(&self, usual: Duration) -> Option<Duration> {
        let free = self.permits.available_permits();
        let quarter = self.connections_max / 4;
        if free >= quarter || usual <= KEEP_ALIVE_FLOOR {
            return None;
        }
        let share = free as f64 / quarter as f64;
        Some(KEEP_ALIVE_FLOOR + (usual - KEEP_ALIVE_FLOOR).mul_f64(share))
    }
}

/// Keeps the thread on one core, so that its caches stay its own.
fn pin_to(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu);
        // Without the right to pin, the worker runs where the system puts it.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// The cores that this process may run on.
pub(crate) fn cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Runs `work` on a thread where it may wait for a disk, or compute for long, while the worker
/// serves others.
///
/// What is not handed over runs on the worker, and nobody else whom that worker serves is
/// answered meanwhile: not for a handler that computes, and not for one that waits without
/// `await`, as for a file, a lock or a database. A rule of thumb: what takes more than a tenth of a
/// millisecond belongs here. There are few such threads (eight for each
/// worker); more work than they can do waits its turn, without a bound of its own.
///
/// A runtime of many threads for work of its kind is the application's to make; its handle may
/// be used from any handler (`handle.spawn(…).await`).
///
/// `None` when the work panicked or the server is ending.
pub async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
