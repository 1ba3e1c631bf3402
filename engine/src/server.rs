//! The server: creates listeners and workers, and stops them. Only this module uses all layers of the engine.

use crate::connection::UNAVAILABLE_RESPONSE;
use crate::connection_stats::ConnectionStats;
use crate::limits::{self, Limits};
use crate::mailbox::{MailboxReceiver, mailbox};
use crate::net::accepted::Accepted;
use crate::net::backend::{Backend, BackendChoice, Driver};
use crate::net::executor::{self, WorkerConfig};
use crate::net::held_connections::HeldConnections;
use crate::net::listen::{Endpoint, Listener};
use crate::net::stop_state::StopState;
use crate::net::stream_listener::{StreamContext, StreamListener, StreamSource};
use crate::net::worker::{Eviction, Worker, WorkerCommand, WorkerPool};
use crate::net::{panic, runtime, stopping};
use crate::proxy_headers::ProxyHeaders;
use crate::replace_app::{AppConfig, AppHandle, AppVersion, PlainHttp2, ReplaceApp, WorkerApps};
use crate::service::{
    Admission, AdmissionHook, EngineError, ErrorHook, HalfClosed, NoObserver, Observer, Response, Service,
};
use crate::tower::{Application, IntoListener, ServiceOptions};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, mpsc as threads};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};

/// Builds a server.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use selvedge::Server;
/// use std::time::Duration;
///
/// let app = Router::new().route("/", get(async || "Hello!"));
/// let server = Server::bind("127.0.0.1:0")?.workers(2).body_bytes_max(1 << 20).shutdown_timeout(Duration::from_secs(5));
/// println!("listening on http://{}", server.local_addr()?);
/// let running = server.serve(app.into_make_service())?;
/// let handle = running.handle();
/// // `handle.stop()` begins a graceful shutdown from any thread.
/// # handle.stop();
/// running.join();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Server<O = NoObserver> {
    addresses: Vec<SocketAddr>,
    listeners: Vec<Listener>,
    streams: Vec<StreamSource>,
    workers: usize,
    config: AppConfig,
    options: ServiceOptions,
    backend: BackendChoice,
    eviction: Eviction,
    observer: O,
}

/// Generates a builder method for each limit. `$set` applies the value to the builder's [`Limits`].
macro_rules! limit_methods {
    (|$self:ident, $value:ident, $put:ident| $set:expr) => {
        limit_methods! { @each |$self, $value, $put| $set;
            "`request_line_bytes_max`" request_line_bytes_max: usize = message.request_line_bytes_max;
            "`head_bytes_max`" head_bytes_max: usize = message.head_bytes_max;
            "`fields_max`" fields_max: usize = message.fields_max;
            "`trailer_bytes_max`" trailer_bytes_max: usize = message.trailer_bytes_max;
            "`chunk_extension_bytes_max`" chunk_extension_bytes_max: usize = message.chunk_extension_bytes_max;
            "`chunk_overhead_allowance`" chunk_overhead_allowance: u64 = message.chunk_overhead_allowance;
            "[`Limits::header_timeout`]" header_timeout: Duration = header_timeout;
            "[`Limits::body_timeout`]" body_timeout: Duration = body_timeout;
            "[`Limits::body_min_rate`]" body_min_rate: u32 = body_min_rate;
            "[`Limits::send_timeout`]" send_timeout: Duration = send_timeout;
            "[`Limits::send_min_rate`]" send_min_rate: u32 = send_min_rate;
            "[`Limits::keep_alive_timeout`]" keep_alive_timeout: Duration = keep_alive_timeout;
            "[`Limits::body_bytes_max`]" body_bytes_max: u64 = body_bytes_max;
            "[`Limits::discard_bytes_max`]" discard_bytes_max: u64 = discard_bytes_max;
            "`streams_max` of HTTP/2" http2_streams_max: u32 = http2.streams_max;
            "[`Limits::connections_max`]" connections_max: usize = connections_max;
            "[`Limits::shutdown_timeout`]" shutdown_timeout: Duration = shutdown_timeout;
            "[`Limits::shutdown_notice`]" shutdown_notice: Duration = shutdown_notice;
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

/// Returns the number of cores that this process may use.
pub(crate) fn available_cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

impl Server {
    /// Binds to an address, with one worker for each core that the process may use. Port 0 takes a free port.
    ///
    /// # Errors
    /// If the address cannot be resolved or bound, for example because another process has it.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        Self::bind_with_workers(address, available_cores())
    }

    /// Binds to an address, with `workers` workers (at least 1).
    ///
    /// # Errors
    /// If the address cannot be resolved or bound.
    pub fn bind_with_workers(address: impl ToSocketAddrs, workers: usize) -> io::Result<Self> {
        let workers = workers.max(1);
        let bound = address.to_socket_addrs()?.map(|address| Listener::bind(address, workers));
        let listeners: Vec<Listener> = bound.collect::<io::Result<_>>()?;
        if listeners.is_empty() {
            return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "the host name has no address"));
        }
        Ok(Self::from_listeners(listeners, workers))
    }

    /// Creates a server from bound listeners, with `workers` workers (at least 1). A running server can add and
    /// remove listeners ([`Handle::add_listener`], [`Handle::remove_listener`]).
    pub fn from_listeners(listeners: Vec<Listener>, workers: usize) -> Self {
        let inet = listeners.iter().filter_map(|listener| match listener.endpoint() {
            Endpoint::Inet(address) => Some(*address),
            Endpoint::Unix(_) => None,
        });
        let addresses = inet.collect();
        let (workers, config) = (workers.max(1), AppConfig::default());
        let options = ServiceOptions::default();
        Self {
            addresses,
            listeners,
            streams: Vec::new(),
            workers,
            config,
            options,
            backend: BackendChoice::Driver(Driver::default()),
            eviction: Eviction::default(),
            observer: NoObserver,
        }
    }
}

impl<O: Observer + Clone + Send> Server<O> {
    /// Sets all [`Limits`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    limit_methods!(|server, value, set| {
        let mut server = server;
        set(server.limits_mut(), value);
        server
    });

    pub(crate) fn limits_mut(&mut self) -> &mut Limits {
        &mut self.config.limits
    }

    /// Sets the I/O back end of the sockets. Default [`Driver::Auto`].
    #[must_use]
    pub fn driver(mut self, driver: Driver) -> Self {
        self.backend = BackendChoice::Driver(driver);
        self
    }

    /// Selects a back end with faults.
    #[cfg(test)]
    pub(crate) fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// Sets the number of workers (at least 1). More than one for each core does not help.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Sets which connections are closed for new ones when [`Limits::connections_max`] is reached. Default
    /// [`Eviction::Idle`].
    #[must_use]
    pub fn eviction(mut self, eviction: Eviction) -> Self {
        self.eviction = eviction;
        self
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// If it is not a listening stream socket.
    pub fn add_listener(mut self, listener: impl IntoListener) -> io::Result<Self> {
        let listener = listener.into_listener()?;
        if let Endpoint::Inet(address) = listener.endpoint() {
            self.addresses.push(*address);
        }
        self.listeners.push(listener);
        Ok(self)
    }

    /// Adds a listener whose streams are no sockets of the engine.
    #[must_use]
    pub fn add_stream_listener(mut self, listener: impl StreamListener) -> Self {
        self.addresses.extend(listener.local_addr());
        self.streams.push(StreamSource::new(listener));
        self
    }

    /// Sets whether a tower application's request is cancelled when its client shuts down its sending side. By
    /// default it is cancelled. The engine's own services choose by [`Service::half_closed`].
    #[must_use]
    pub fn half_closed(mut self, half_closed: HalfClosed) -> Self {
        self.options.half_closed = half_closed;
        self
    }

    /// Adds a [`crate::EarlyHints`] to the extensions of each request.
    #[must_use]
    pub fn early_hints(mut self) -> Self {
        self.options.early_hints = true;
        self
    }

    /// Uses TLS at the listeners: at all of them, or at those of [`Tls::only_at`](crate::tls::Tls::only_at). Requests
    /// then have a [`TlsInfo`](crate::service::TlsInfo), also as an extension.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::tls::Tls) -> Self {
        self.config.sessions = Some(Arc::new(tls));
        self
    }

    /// Sets which listeners without TLS accept HTTP/2 from clients that know it beforehand. Default: none. Listeners with
    /// TLS agree on the protocol in the handshake.
    #[must_use]
    pub fn plain_http2(mut self, plain_http2: PlainHttp2) -> Self {
        self.config.plain_http2 = plain_http2;
        self
    }

    /// Sets at which listeners connections begin with a header of the PROXY protocol. Default: none.
    #[must_use]
    pub fn proxy_headers(mut self, proxy_headers: ProxyHeaders) -> Self {
        self.config.proxy_headers = proxy_headers;
        self
    }

    /// Sets a function that admits or refuses each accepted connection. It runs on the worker and must not block.
    #[must_use]
    pub fn admit(mut self, admit: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static) -> Self {
        self.config.admission_hook = AdmissionHook::new(admit);
        self
    }

    /// Sets the form of the errors that the engine responds with by itself, such as a problem document (RFC 9457), or
    /// fields that scripts of other origins need. The status code stays. `None` keeps the engine's page, and so does
    /// a panic of the function. Responses from before a request head is read, to connections over a limit and to plain HTTP at
    /// a port with TLS, have no other form.
    ///
    /// ```no_run
    /// use selvedge::{Response, Server};
    ///
    /// let server = Server::bind("127.0.0.1:3000")?.error_responses(|error| {
    ///     let document = format!(r#"{{"status":{},"detail":"{}"}}"#, error.status.code(), error.text);
    ///     Some(Response::new(error.status).field("content-type", "application/problem+json").body(document))
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn error_responses(
        mut self,
        hook: impl Fn(&EngineError<'_>) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        self.config.error_hook = ErrorHook::new(hook);
        self
    }

    /// Sets the observer of requests and events. Each worker has a clone.
    #[must_use]
    pub fn observe<P: Observer + Clone + Send>(self, observer: P) -> Server<P> {
        let Self { addresses, listeners, streams, workers, config, options, backend, eviction, .. } = self;
        Server { addresses, listeners, streams, workers, config, options, backend, eviction, observer }
    }

    /// Returns the TCP addresses of the listeners, and those that a [`StreamListener`] returns.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of the first TCP listener, with the port that was taken for port 0.
    ///
    /// # Errors
    /// If no listener has a TCP address, such as a Unix socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "no listener has a TCP address");
        self.addresses.first().copied().ok_or_else(none)
    }

    /// Starts the server. Each worker has a clone of the application.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be created, or the limit of open files is too low. No thread runs after an
    /// error.
    pub fn serve<A, K>(self, application: A) -> io::Result<RunningServer>
    where
        A: Application<K> + Clone + Send,
    {
        let shared = Mutex::new(application);
        self.serve_each(move || shared.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Starts the server with an application that each worker creates on its own thread, so it need not be `Send`.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be created, or the limit of open files is too low.
    pub fn serve_each<A, K, F>(self, make: F) -> io::Result<RunningServer>
    where
        A: Application<K>,
        F: Fn() -> A + Send + Sync + 'static,
    {
        let options = self.options;
        self.serve_replaceable(move || make().into_service(options)).map(|(running, _)| running)
    }

    /// Starts the server and returns a handle that can replace its application.
    ///
    /// # Errors
    /// If a thread or its runtime cannot be created, or the limit of open files is too low.
    pub fn serve_replaceable<T, F>(self, make: F) -> io::Result<(RunningServer, AppHandle<T, O>)>
    where
        T: Service,
        F: Fn() -> T + Send + Sync + 'static,
    {
        let (workers, connections_max) = (self.workers, self.config.limits.connections_max);
        let shutdown_timeout = self.config.limits.shutdown_timeout;
        limits::check_descriptor_limit(workers, connections_max)?;
        let first = AppVersion::new(make, self.observer).with_config(self.config);
        panic::install_hook();
        let (stop, watched) = watch::channel(StopState::Running);
        let stop = Arc::new(stop);
        let permits = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let (inboxes, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| mailbox()).unzip();
        let loads = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        let accepted = (0..workers).map(|_| AtomicU64::new(0)).collect();
        let leased = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        let handle = Handle {
            stop: stop.clone(),
            pool: Arc::new(WorkerPool {
                loads,
                accepted,
                leased,
                inboxes,
                accepting: AtomicUsize::new(workers),
                held_at_stop: HeldConnections::default(),
                eviction: self.eviction,
                has_reported_uring_unavailable: AtomicBool::new(false),
            }),
        };
        // The workers do not run yet and find these commands at their start.
        self.listeners.into_iter().try_for_each(|listener| handle.add_listener(listener))?;
        let cpus = executor::cpus();
        let (mut threads, mut app_handle) = (Vec::new(), AppHandle { workers: Vec::new() });
        let (running, all_ended) = mpsc::unbounded_channel();
        for (number, inbox) in receivers.into_iter().enumerate() {
            let config = WorkerConfig {
                number,
                // With fewer workers than cores, the system chooses the cores.
                cpu: (cpus.len() == workers).then(|| cpus[number]),
                inbox,
                permits: permits.clone(),
                connections_max,
                backend: self.backend,
                stop: watched.clone(),
                refusal: UNAVAILABLE_RESPONSE,
            };
            let (sender, receiver) = mailbox();
            match start_worker(config, handle.clone(), first.clone(), receiver, running.clone()) {
                Ok(thread) => {
                    threads.push(thread);
                    app_handle.workers.push(sender);
                }
                Err(error) => {
                    stop.send_replace(StopState::Immediate);
                    threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        for source in self.streams {
            let (pool, permits) = (handle.pool.clone(), permits.clone());
            let context = StreamContext { pool, permits, stop: watched.clone(), shutdown_timeout };
            match source.start(context) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    stop.send_replace(StopState::Immediate);
                    threads.into_iter().for_each(|thread: JoinHandle<()>| drop(thread.join()));
                    return Err(error);
                }
            }
        }
        Ok((RunningServer { addresses: self.addresses, threads, all_ended, handle }, app_handle))
    }
}

/// Time for blocking tasks after their worker has ended.
const BLOCKING_TIME_MAX: Duration = Duration::from_secs(1);

/// Stops the server when a worker panics: clients of the panicked worker's sockets would wait forever.
struct StopOnPanic(Arc<watch::Sender<StopState>>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.send_replace(StopState::Immediate);
        }
    }
}

fn start_worker<T: Service, O: Observer + Clone + Send>(
    config: WorkerConfig,
    handle: Handle,
    first: AppVersion<T, O>,
    receiver: MailboxReceiver<ReplaceApp<T, O>>,
    running: mpsc::UnboundedSender<Infallible>,
) -> io::Result<JoinHandle<()>> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let name = format!("selvedge-{}", config.number);
    let thread = thread::Builder::new().name(name).spawn(move || {
        // Declared first, so it is dropped last, also when the worker panics.
        let _running = running;
        let runtime = match runtime::runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        let _stop_on_panic = StopOnPanic(handle.stop);
        runtime.block_on(run_worker(config, handle.pool, first, receiver));
        // Blocking tasks had time while the server stopped.
        runtime.shutdown_timeout(BLOCKING_TIME_MAX);
    })?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a worker thread panicked at its start")),
    }
}

async fn run_worker<T: Service, O: Observer + Clone + Send>(
    config: WorkerConfig,
    pool: Arc<WorkerPool>,
    first: AppVersion<T, O>,
    receiver: MailboxReceiver<ReplaceApp<T, O>>,
) {
    stopping::set_stop(config.stop.clone());
    if !first.reports_panics() {
        panic::print_caught();
    }
    let (number, connections_max, backend) = (config.number, config.connections_max, config.backend);
    let (backend, uring_error) = match backend.backend() {
        Ok(backend) => (backend, None),
        Err(error) => (Backend::default(), Some(error)),
    };
    let apps = WorkerApps::start(first, |limits, apps| {
        let sender = move |event| {
            if let Some(apps) = apps.upgrade() {
                apps.report(event, connections_max);
            }
        };
        Worker::new(number, pool, Box::new(sender), limits).with_backend(backend)
    });
    tokio::task::spawn_local(apps.clone().run_replacements(receiver));
    let worker = apps.app().worker.clone();
    if let Some(error) = uring_error {
        worker.report_uring_unavailable(error);
    }
    let apps_to_tick = apps.clone();
    let serve = Rc::new(move |accepted: Accepted, endpoint: &Endpoint| apps.accept(accepted, endpoint));
    executor::run(config, worker, serve, Rc::new(move || apps_to_tick.tick())).await;
}

/// A running server.
#[derive(Debug)]
pub struct RunningServer {
    addresses: Vec<SocketAddr>,
    threads: Vec<JoinHandle<()>>,
    /// Closes when all workers have ended. Nothing is sent.
    all_ended: mpsc::UnboundedReceiver<Infallible>,
    handle: Handle,
}

/// Why a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCause {
    /// It was stopped.
    Stopped,
    /// A worker panicked outside of a connection. The other workers were stopped immediately, because clients of the
    /// panicked worker would have waited forever.
    WorkerPanicked,
}

impl RunningServer {
    /// Returns the TCP addresses of the listeners at the start.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns a handle that can stop the server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the server has ended, without blocking the thread.
    pub async fn ended(mut self) -> ExitCause {
        let _ = self.all_ended.recv().await;
        // The threads do nothing more, so this does not block.
        self.join()
    }

    /// Waits until the server has ended, and blocks the thread.
    pub fn join(self) -> ExitCause {
        let mut exit_cause = ExitCause::Stopped;
        for thread in self.threads {
            // A panicked worker has reported itself. Join the others as well.
            if thread.join().is_err() {
                exit_cause = ExitCause::WorkerPanicked;
            }
        }
        exit_cause
    }
}

/// Stops a server, adds and removes listeners, and counts connections.
#[derive(Clone, Debug)]
pub struct Handle {
    stop: Arc<watch::Sender<StopState>>,
    pool: Arc<WorkerPool>,
}

impl Handle {
    /// Adds a listener. Does nothing while the server stops.
    ///
    /// # Errors
    /// If file descriptors run out. The listener is not added then.
    pub fn add_listener(&self, listener: Listener) -> io::Result<()> {
        let endpoint = listener.endpoint().clone();
        let distributed = listener.distribute(self.pool.inboxes.len())?;
        for (inbox, sockets) in self.pool.inboxes.iter().zip(distributed) {
            // A worker that has ended accepts nothing.
            let _ = inbox.send(WorkerCommand::AddListener(endpoint.clone(), sockets));
        }
        Ok(())
    }

    /// Removes a listener. Open and pending connections are served.
    ///
    /// Blocks until no worker accepts there any more, so it must not be called on a worker.
    pub fn remove_listener(&self, endpoint: &Endpoint) {
        self.remove_listeners([endpoint]);
    }

    /// Removes several listeners, in the time that one takes. See [`Handle::remove_listener`].
    pub fn remove_listeners<'a>(&self, endpoints: impl IntoIterator<Item = &'a Endpoint>) {
        let (done, all_done) = threads::channel::<Infallible>();
        for endpoint in endpoints {
            for inbox in &self.pool.inboxes {
                // A worker that has ended accepts nothing.
                let _ = inbox.send(WorkerCommand::RemoveListener(endpoint.clone(), done.clone()));
            }
        }
        drop(done);
        // Nothing is sent. The channel closes when all workers have dropped their senders.
        let _ = all_done.recv();
    }

    /// Collects connection counts. Blocks until every worker has responded, at most `timeout`, so it must not be
    /// called on a worker.
    pub fn connection_stats(&self, timeout: Duration) -> ConnectionStats {
        ConnectionStats::collect(&self.pool, timeout)
    }

    /// Returns how many connections were accepted since the start, including refused ones.
    pub fn accepted_connections(&self) -> u64 {
        self.pool.accepted_total()
    }

    /// Runs a function on every worker's connection table.
    #[cfg(test)]
    pub(crate) fn inspect(
        &self,
        inspection: impl FnOnce(&crate::net::connection_table::ConnectionTable) + Clone + Send + 'static,
    ) {
        for inbox in &self.pool.inboxes {
            let _ = inbox.send(WorkerCommand::Inspect(Box::new(inspection.clone())));
        }
    }

    /// Stops gracefully: the server accepts no new connections and finishes requests with `Connection: close`. Idle
    /// connections close after their next response, or after [`Limits::shutdown_notice`]. Connections that are open after
    /// [`Limits::shutdown_timeout`] are aborted and reported.
    /// Blocking tasks ([`spawn_blocking`](crate::spawn_blocking)) have one second more.
    pub fn stop(&self) {
        self.proceed_to(StopState::Drain);
    }

    /// Stops gracefully because another server has the listeners: as [`Handle::stop`], but a response with a
    /// [`ResponseLease`](crate::service::ResponseLease) in force, or its upgraded connection, lasts until it ends, without a
    /// timeout. Connections without such a response end within [`Limits::shutdown_timeout`], and those of HTTP/2 accept no new
    /// streams. A later [`Handle::stop`] ends all.
    pub fn hand_over(&self) {
        self.proceed_to(StopState::HandOver);
    }

    /// Returns how many responses in progress have a [`ResponseLease`](crate::service::ResponseLease).
    pub fn leased_responses(&self) -> usize {
        self.pool.leased_total()
    }

    fn proceed_to(&self, to: StopState) {
        self.stop.send_if_modified(|stop| {
            let is_earlier = *stop < to;
            *stop = (*stop).max(to);
            is_earlier
        });
    }

    /// Stops immediately: open connections are aborted. Blocking tasks ([`spawn_blocking`](crate::spawn_blocking))
    /// have one second.
    pub fn stop_now(&self) {
        self.stop.send_replace(StopState::Immediate);
    }
}

#[cfg(test)]
pub(crate) mod tests;
