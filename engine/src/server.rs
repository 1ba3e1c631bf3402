//! The server: the only place where the engine's floors meet.

use crate::connection::{self, App, Common};
use crate::limits::Limits;
use crate::net::accept::Accepted;
use crate::net::worker::{self, Event, Peers, Plan, Stop, Worker};
use crate::net::{listen, panic};
use crate::service::{Admission, CloseReason, Closed, Door, Incident, NoObserver, Observer, Phase, Service};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};
use tokio::sync::{Semaphore, mpsc, watch};

/// A server that is being set up.
#[derive(Debug)]
pub struct Server<O = NoObserver> {
    addresses: Vec<SocketAddr>,
    /// For each address, one listener for each worker.
    listeners: Vec<Vec<OwnedFd>>,
    workers: usize,
    terms: Terms,
    observer: O,
}

/// On what terms connections are served.
#[derive(Clone, Debug, Default)]
struct Terms {
    limits: Limits,
    door: Door,
}

impl Server {
    /// Binds to an address; port 0 takes a free one. One worker for each core that the
    /// process may use.
    ///
    /// # Errors
    /// When the address cannot be resolved or bound, also because another process has it.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let workers = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::bind_with_workers(address, workers)
    }

    /// As [`Server::bind`], with so many workers.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_with_workers(address: impl ToSocketAddrs, workers: usize) -> io::Result<Self> {
        let workers = workers.max(1);
        let mut server = Self {
            addresses: Vec::new(),
            listeners: Vec::new(),
            workers,
            terms: Terms::default(),
            observer: NoObserver,
        };
        for address in address.to_socket_addrs()? {
            let (bound, listeners) = listen::bind(address, workers)?;
            server.addresses.push(bound);
            server.listeners.push(listeners);
        }
        if server.addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address"));
        }
        Ok(server)
    }
}

impl<O: Observer + Clone + Send> Server<O> {
    /// With these limits in place of the defaults.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.terms.limits = limits;
        self
    }

    /// With somebody who is asked of each connection whether it is served, on the worker that
    /// would serve it, and must not block.
    #[must_use]
    pub fn admit(mut self, ask: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static) -> Self {
        self.terms.door = Door::new(ask);
        self
    }

    /// With somebody who is told what happens. Each worker has a clone.
    #[must_use]
    pub fn observe<P: Observer + Clone + Send>(self, observer: P) -> Server<P> {
        let Self { addresses, listeners, workers, terms, .. } = self;
        Server { addresses, listeners, workers, terms, observer }
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Starts to serve; each worker has a clone of the service.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be made; then nothing is left running.
    pub fn serve<T: Service + Clone + Send + Sync>(self, service: T) -> io::Result<Running> {
        self.serve_each(move || service.clone())
    }

    /// Starts to serve with a service that each worker makes for itself, on its own thread,
    /// so that it may keep what no other thread can touch.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub fn serve_each<T, F>(self, make: F) -> io::Result<Running>
    where
        T: Service,
        F: Fn() -> T + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        panic::install_hook();
        let (stop, watched) = watch::channel(Stop::NotYet);
        let permits = Arc::new(Semaphore::new(self.terms.limits.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..self.workers).map(|_| mpsc::unbounded_channel()).unzip();
        let loads = (0..self.workers).map(|_| AtomicUsize::new(0)).collect();
        let peers = Arc::new(Peers { loads, inboxes });
        let cpus = worker::cpus();
        let mut listeners = self.listeners;
        let mut threads = Vec::new();
        for (number, inbox) in receivers.into_iter().enumerate() {
            let plan = Plan {
                number,
                // With fewer workers than cores, which ones to use is the system's to say.
                cpu: (cpus.len() == self.workers).then(|| cpus[number]),
                listeners: listeners.iter_mut().filter_map(Vec::pop).collect(),
                inbox,
                permits: permits.clone(),
                connections_max: self.terms.limits.connections_max,
                keep_alive: self.terms.limits.keep_alive,
                drain_time: self.terms.limits.drain_time,
                stop: watched.clone(),
            };
            let started = start_worker(plan, peers.clone(), make.clone(), self.observer.clone(), self.terms.clone());
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.send_replace(Stop::Now);
                    threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        Ok(Running { addresses: self.addresses, threads, handle: Handle { stop: Arc::new(stop) } })
    }
}

fn start_worker<T, F, O>(
    plan: Plan,
    peers: Arc<Peers>,
    make: Arc<F>,
    observer: O,
    terms: Terms,
) -> io::Result<JoinHandle<()>>
where
    T: Service,
    F: Fn() -> T + Send + Sync + 'static,
    O: Observer + Clone + Send,
{
    let (ready, is_ready) = std::sync::mpsc::channel();
    let name = format!("selvedge-{}", plan.number);
    let thread = thread::Builder::new().name(name).spawn(move || {
        let runtime = match worker::runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        runtime.block_on(work(plan, peers, make(), observer, terms));
    })?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a worker ended before it began")),
    }
}

async fn work<T: Service, O: Observer>(plan: Plan, peers: Arc<Peers>, service: T, observer: O, terms: Terms) {
    // One for all of the worker: what one call gathers, another hands on.
    let observer = Rc::new(observer);
    let (events, connections_max) = (observer.clone(), plan.connections_max);
    let on_event = Box::new(move |event| {
        events.incident(&match event {
            Event::AcceptFailed(error) => Incident::AcceptFailed { error: error.to_string() },
            Event::AcceptRecovered => Incident::AcceptRecovered,
            Event::ConnectionsFull => Incident::ConnectionsFull { limit: connections_max },
            Event::ConnectionsFree => Incident::ConnectionsFree,
        });
    });
    let worker = Rc::new(Worker::new(plan.number, peers, on_event));
    let Terms { limits, door } = terms;
    let app = Rc::new(App {
        service,
        observer: observer.clone(),
        common: Rc::new(Common::new(limits)),
        worker: worker.clone(),
    });
    let serve = Rc::new(move |accepted: Accepted| {
        let peer = accepted.peer;
        let counted = match door.ask(peer) {
            None => None,
            Some(Admission::Serve(counted)) => Some(counted),
            Some(Admission::Observe(counted)) => {
                app.observer.incident(&Incident::TooManyFromClient { peer });
                Some(counted)
            }
            Some(Admission::Refuse) => {
                let reason = CloseReason::TooManyFromClient;
                app.observer.closed(&Closed { peer, reason, phase: Phase::Idle, requests: 0 });
                return accepted.refuse();
            }
        };
        let (socket, peer, permit) = accepted.into_parts();
        let place = app.worker.connection_began();
        tokio::task::spawn_local(connection::run(socket, peer, place, app.clone(), (permit, counted)));
    });
    worker::run(plan, worker, serve, Rc::new(move || observer.tick())).await;
}

/// A server that serves.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    handle: Handle,
}

impl Running {
    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What stops it, for whoever has to.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until it has stopped.
    pub fn join(self) {
        for thread in self.threads {
            // A worker that panicked has said so; the others are waited for all the same.
            let _ = thread.join();
        }
    }
}

/// Stops a server.
#[derive(Clone, Debug)]
pub struct Handle {
    stop: Arc<watch::Sender<Stop>>,
}

impl Handle {
    /// Stops gracefully: no new connections, idle ones closed, what runs is finished with
    /// `Connection: close`, and what is left at [`Limits::drain_time`] is cut and reported.
    pub fn stop(&self) {
        self.stop.send_if_modified(|stop| {
            let earlier = *stop < Stop::Drain;
            *stop = (*stop).max(Stop::Drain);
            earlier
        });
    }

    /// Stops at once: what still runs is cut.
    pub fn stop_now(&self) {
        self.stop.send_replace(Stop::Now);
    }
}
