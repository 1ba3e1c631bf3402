//! The server: the only place where the engine's floors meet.

use crate::census::Census;
use crate::generation::{Change, Generation, Serving, Succession, Terms};
use crate::limits::Limits;
use crate::net::accept::Accepted;
use crate::net::driver::{Driver, Drivers};
use crate::net::listen::{Endpoint, Listener};
use crate::net::panic;
use crate::net::worker::{self, Message, Peers, Plan, Stop, Worker};
use crate::service::{Admission, Door, HalfClosed, NoObserver, Observer, Service};
use crate::tower::{Application, IntoListener, Manners};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, mpsc as threads};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// A server that is being set up.
#[derive(Debug)]
pub struct Server<O = NoObserver> {
    addresses: Vec<SocketAddr>,
    listeners: Vec<Listener>,
    workers: usize,
    terms: Terms,
    manners: Manners,
    driver: Driver,
    observer: O,
}

/// A method for each limit. `$set` is how one is set: given the builder, the value, and what puts
/// the value among [`Limits`].
macro_rules! limit_methods {
    (|$self:ident, $value:ident, $put:ident| $set:expr) => {
        limit_methods! { @each |$self, $value, $put| $set;
            "`request_line_bytes_max`" request_line_bytes_max: usize = message.request_line_bytes_max;
            "`head_bytes_max`" head_bytes_max: usize = message.head_bytes_max;
            "`fields_max`" fields_max: usize = message.fields_max;
            "`trailer_bytes_max`" trailer_bytes_max: usize = message.trailer_bytes_max;
            "`chunk_extension_bytes_max`" chunk_extension_bytes_max: usize = message.chunk_extension_bytes_max;
            "`chunk_overhead_bytes_free`" chunk_overhead_bytes_free: u64 = message.chunk_overhead_bytes_free;
            "[`Limits::head_time`]" head_time: Duration = head_time;
            "[`Limits::body_silence`]" body_silence: Duration = body_silence;
            "[`Limits::body_bytes_per_second_min`]" body_bytes_per_second_min: u32 = body_bytes_per_second_min;
            "[`Limits::send_silence`]" send_silence: Duration = send_silence;
            "[`Limits::send_bytes_per_second_min`]" send_bytes_per_second_min: u32 = send_bytes_per_second_min;
            "[`Limits::keep_alive`]" keep_alive: Duration = keep_alive;
            "[`Limits::body_bytes_max`]" body_bytes_max: u64 = body_bytes_max;
            "[`Limits::drain_bytes_max`]" drain_bytes_max: u64 = drain_bytes_max;
            "[`Limits::connections_max`]" connections_max: usize = connections_max;
            "[`Limits::drain_time`]" drain_time: Duration = drain_time;
        }
    };
    (@each |$self:ident, $value:ident, $put:ident| $set:expr; $($text:literal $name:ident: $type:ty = $($field:ident).+;)+) => {
        $(
            #[doc = concat!("Sets ", $text, ", one of the [`Limits`].")]
            #[must_use = "a builder does nothing by itself"]
            pub fn $name(self, $name: $type) -> Self {
                let ($self, $value) = (self, $name);
                let $put = |limits: &mut Limits, value| limits.$($field).+ = value;
                $set
            }
        )+
    };
}
pub(crate) use limit_methods;

/// How many cores this process may use.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

impl Server {
    /// Binds to an address; port 0 takes a free one. One worker for each core that the
    /// process may use.
    ///
    /// # Errors
    /// When the address cannot be resolved or bound, also because another process has it.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with_workers(address, cores())
    }

    /// As [`Server::bind`], with so many workers.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_with_workers(address: impl ToSocketAddrs, workers: usize) -> io::Result<Self> {
        let workers = workers.max(1);
        let bound = address.to_socket_addrs()?.map(|address| Listener::bind(address, workers));
        let listeners: Vec<Listener> = bound.collect::<io::Result<_>>()?;
        if listeners.is_empty() {
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address"));
        }
        Ok(Self::on(listeners, workers))
    }

    /// On listeners that are there already, with so many workers. More can be added later, and
    /// these left ([`Handle::listen`], [`Handle::leave`]).
    pub fn on(listeners: Vec<Listener>, workers: usize) -> Self {
        let inet = listeners.iter().filter_map(|listener| match listener.endpoint() {
            Endpoint::Inet(address) => Some(*address),
            Endpoint::Unix(_) => None,
        });
        let addresses = inet.collect();
        let (workers, terms) = (workers.max(1), Terms::default());
        let manners = Manners::default();
        Self { addresses, listeners, workers, terms, manners, driver: Driver::default(), observer: NoObserver }
    }
}

impl<O: Observer + Clone + Send> Server<O> {
    /// With these limits in place of the defaults.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.terms.limits = limits;
        self
    }

    limit_methods!(|server, value, set| {
        let mut server = server;
        set(server.limits_mut(), value);
        server
    });

    pub(crate) fn limits_mut(&mut self) -> &mut Limits {
        &mut self.terms.limits
    }

    /// With sockets driven so.
    #[must_use]
    pub fn driver(mut self, driver: Driver) -> Self {
        self.driver = driver;
        self
    }

    /// With so many workers. One for each core is as many as pays.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Listens here, too.
    ///
    /// # Errors
    /// When it is no listening socket.
    pub fn also(mut self, listener: impl IntoListener) -> io::Result<Self> {
        let listener = listener.into_listener()?;
        if let Endpoint::Inet(address) = listener.endpoint() {
            self.addresses.push(*address);
        }
        self.listeners.push(listener);
        Ok(self)
    }

    /// What becomes of a request whose client has said that it sends nothing more: unless this
    /// says otherwise, an application of the ecosystem's types is no longer waited for. Services
    /// of this library's own say it themselves.
    #[must_use]
    pub fn half_closed(mut self, half_closed: HalfClosed) -> Self {
        self.manners.half_closed = half_closed;
        self
    }

    /// Puts an [`crate::EarlyHints`] into the extensions of each request.
    #[must_use]
    pub fn early_hints(mut self) -> Self {
        self.manners.early_hints = true;
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
        let Self { addresses, listeners, workers, terms, manners, driver, .. } = self;
        Server { addresses, listeners, workers, terms, manners, driver, observer }
    }

    /// Where it listens for TCP.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Starts to serve; each worker has a clone of the application.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be made, or descriptors run out; then nothing is
    /// left running.
    pub fn serve<A, K>(self, application: A) -> io::Result<Running>
    where
        A: Application<K> + Clone + Send,
    {
        let shared = Mutex::new(application);
        self.serve_each(move || shared.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Starts to serve with an application that each worker makes for itself, on its own thread,
    /// so that it may keep what no other thread can touch.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub fn serve_each<A, K, F>(self, make: F) -> io::Result<Running>
    where
        A: Application<K>,
        F: Fn() -> A + Send + Sync + 'static,
    {
        let manners = self.manners;
        self.serve_generations(move || make().into_service(manners)).map(|(running, _)| running)
    }

    /// The same, with a way to have another application take this one's place.
    ///
    /// # Errors
    /// As [`Server::serve`].
    pub fn serve_generations<T, F>(self, make: F) -> io::Result<(Running, Succession<T, O>)>
    where
        T: Service,
        F: Fn() -> T + Send + Sync + 'static,
    {
        let (workers, connections_max) = (self.workers, self.terms.limits.connections_max);
        let first = Generation::new(make, self.observer).with_terms(self.terms);
        panic::install_hook();
        let (stop, watched) = watch::channel(Stop::NotYet);
        let stop = Arc::new(stop);
        let permits = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let loads = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        let accepted = (0..workers).map(|_| AtomicU64::new(0)).collect();
        let handle = Handle {
            stop: stop.clone(),
            peers: Arc::new(Peers { loads, accepted, inboxes, said_refused: AtomicBool::new(false) }),
        };
        // Nobody reads the inboxes yet, so what is put there is found at the beginning.
        self.listeners.into_iter().try_for_each(|listener| handle.listen(listener))?;
        let cpus = worker::cpus();
        let (mut threads, mut succession) = (Vec::new(), Succession { workers: Vec::new() });
        for (number, inbox) in receivers.into_iter().enumerate() {
            let plan = Plan {
                number,
                // With fewer workers than cores, which ones to use is the system's to say.
                cpu: (cpus.len() == workers).then(|| cpus[number]),
                inbox,
                permits: permits.clone(),
                connections_max,
                driver: self.driver,
                stop: watched.clone(),
            };
            let (change, changes) = mpsc::unbounded_channel();
            match start_worker(plan, handle.clone(), first.clone(), changes) {
                Ok(thread) => {
                    threads.push(thread);
                    succession.workers.push(change);
                }
                Err(error) => {
                    stop.send_replace(Stop::Now);
                    threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        Ok((Running { addresses: self.addresses, threads, handle }, succession))
    }
}

/// How long a worker that has ended waits for work that was handed to threads.
const OFFLOADED_TIME: Duration = Duration::from_secs(1);

/// Ends a server that has lost a worker: clients that connect to that worker's sockets would
/// wait for ever.
struct Loss(Arc<watch::Sender<Stop>>);

impl Drop for Loss {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.send_replace(Stop::Now);
        }
    }
}

fn start_worker<T: Service, O: Observer + Clone + Send>(
    plan: Plan,
    handle: Handle,
    first: Generation<T, O>,
    changes: mpsc::UnboundedReceiver<Change<T, O>>,
) -> io::Result<JoinHandle<()>> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let name = format!("selvedge-{}", plan.number);
    let thread = thread::Builder::new().name(name).spawn(move || {
        let runtime = match worker::runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        let _loss = Loss(handle.stop);
        runtime.block_on(work(plan, handle.peers, first, changes));
        // What waits for a disk, or works beside the workers, had its time while the server stopped.
        runtime.shutdown_timeout(OFFLOADED_TIME);
    })?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a worker ended before it began")),
    }
}

async fn work<T: Service, O: Observer + Clone + Send>(
    plan: Plan,
    peers: Arc<Peers>,
    first: Generation<T, O>,
    changes: mpsc::UnboundedReceiver<Change<T, O>>,
) {
    let (number, connections_max, driver) = (plan.number, plan.connections_max, plan.driver);
    let (drivers, refused) = match driver.begin() {
        Ok(drivers) => (drivers, None),
        Err(error) => (Drivers::default(), Some(error)),
    };
    let serving = Serving::begin(first, |limits, serving| {
        let tell = move |event| {
            if let Some(serving) = serving.upgrade() {
                serving.tell(event, connections_max);
            }
        };
        Worker::new(number, peers, Box::new(tell), limits).driven_by(drivers)
    });
    tokio::task::spawn_local(serving.clone().take_changes(changes));
    let worker = serving.app().worker.clone();
    if let Some(error) = refused {
        worker.ring_refused(error);
    }
    let ticking = serving.clone();
    let serve = Rc::new(move |accepted: Accepted| serving.serve(accepted));
    worker::run(plan, worker, serve, Rc::new(move || ticking.tick())).await;
}

/// A server that serves.
#[derive(Debug)]
pub struct Running {
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    handle: Handle,
}

/// How a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was stopped.
    Stopped,
    /// A worker panicked outside of any connection. Then the others were stopped at once, since
    /// clients of the lost one would have waited for ever.
    WorkerLost,
}

impl Running {
    /// Where it listened for TCP when it began.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What stops it, for whoever has to.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until it has stopped, without holding up the thread.
    pub async fn ended(self) -> Ending {
        let (tell, told) = oneshot::channel();
        let waiting = thread::Builder::new().name("selvedge-ended".to_owned());
        // Where no thread can be had to wait, whoever asks waits no longer than it has to.
        if waiting.spawn(move || tell.send(self.join())).is_err() {
            return Ending::WorkerLost;
        }
        told.await.unwrap_or(Ending::WorkerLost)
    }

    /// Waits until it has stopped.
    pub fn join(self) -> Ending {
        let mut ending = Ending::Stopped;
        for thread in self.threads {
            // A worker that panicked has said so; the others are waited for all the same.
            if thread.join().is_err() {
                ending = Ending::WorkerLost;
            }
        }
        ending
    }
}

/// Stops a server, changes where it listens, and counts its connections.
#[derive(Clone, Debug)]
pub struct Handle {
    stop: Arc<watch::Sender<Stop>>,
    peers: Arc<Peers>,
}

impl Handle {
    /// Listens at one more place. A server that is stopping does not.
    ///
    /// # Errors
    /// When descriptors run out; then nothing has changed.
    pub fn listen(&self, listener: Listener) -> io::Result<()> {
        let endpoint = listener.endpoint().clone();
        let dealt = listener.deal(self.peers.inboxes.len())?;
        for (inbox, sockets) in self.peers.inboxes.iter().zip(dealt) {
            // A worker that has ended listens nowhere.
            let _ = inbox.send(Message::Listen(endpoint.clone(), sockets));
        }
        Ok(())
    }

    /// Listens no longer at a place. Connections stay, and whoever had connected is served.
    ///
    /// Returns when no worker accepts there any more, so not to be called on one.
    pub fn leave(&self, endpoint: &Endpoint) {
        let (done, all_done) = threads::channel();
        for inbox in &self.peers.inboxes {
            // A worker that has ended listens nowhere.
            let _ = inbox.send(Message::Leave(endpoint.clone(), done.clone()));
        }
        drop(done);
        // Nothing is ever sent: they drop their ends of it.
        let _ = all_done.recv();
    }

    /// Counts the connections. It blocks until every worker has answered, or for as long as
    /// `patience` says; so it is not for a worker to call.
    pub fn census(&self, patience: Duration) -> Census {
        Census::ask(&self.peers, patience)
    }

    /// Has every worker look at its notes.
    #[cfg(test)]
    pub(crate) fn ask(&self, question: impl FnOnce(&crate::net::notes::Notes) + Clone + Send + 'static) {
        for inbox in &self.peers.inboxes {
            let _ = inbox.send(Message::Ask(Box::new(question.clone())));
        }
    }

    /// Stops gracefully: no new connections, idle ones closed, what runs is finished with
    /// `Connection: close`, and what is left at [`Limits::drain_time`] is cut and reported. What was
    /// handed to [`offload`](crate::offload) has a second more, and then is not waited for.
    pub fn stop(&self) {
        self.stop.send_if_modified(|stop| {
            let earlier = *stop < Stop::Drain;
            *stop = (*stop).max(Stop::Drain);
            earlier
        });
    }

    /// Stops at once: what still runs is cut. Of [`offload`](crate::offload) as with [`Handle::stop`].
    pub fn stop_now(&self) {
        self.stop.send_replace(Stop::Now);
    }
}
