//! Replacing the application of a running server.
//!
//! Each worker has a current version for new connections. A connection has a reference to its own version, so
//! requests share nothing with other workers and take no lock.

use crate::connection::{self, AppContext, FirstProtocol, PLAIN_HTTP_RESPONSE, UNAVAILABLE_RESPONSE};
use crate::limits::Limits;
use crate::mailbox::{MailboxReceiver, MailboxSender};
use crate::net::accepted::Accepted;
use crate::net::link::{Link, MakeSession};
use crate::net::listen::Endpoint;
use crate::net::runtime::spawn_local;
use crate::net::socket::Socket;
use crate::net::worker::{Worker, WorkerEvent};
use crate::peer::Ends;
use crate::proxy_headers::{self, Origin, ProxyHeaders};
use crate::service::{
    Admission, AdmissionHook, CloseReason, Closed, EngineError, ErrorHook, Observer, Phase, Response, ServerEvent,
    Service,
};
use std::cell::{Ref, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::{Rc, Weak};
use std::sync::{Arc, mpsc as threads};

/// Which listeners without TLS accept HTTP/2 (RFC 9113 §3.3, prior knowledge). Each accepts HTTP/1.1, too: the first
/// bytes of a connection decide.
#[derive(Clone, Debug, Default)]
pub enum PlainHttp2 {
    /// None. Default.
    #[default]
    Never,
    /// All listeners.
    Always,
    /// These listeners.
    At(Vec<Endpoint>),
}

impl PlainHttp2 {
    fn is_accepted_at(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::At(endpoints) => endpoints.contains(endpoint),
        }
    }
}

/// The limits and admission hook of an app version.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppConfig {
    pub(crate) limits: Limits,
    pub(crate) admission_hook: AdmissionHook,
    pub(crate) error_hook: ErrorHook,
    /// Creates the sessions of new connections, if their bytes are encoded.
    pub(crate) sessions: Option<Arc<dyn MakeSession>>,
    pub(crate) plain_http2: PlainHttp2,
    pub(crate) proxy_headers: ProxyHeaders,
}

/// An application with its observer, limits and admission hook.
pub struct AppVersion<T, O> {
    make: Arc<dyn Fn() -> T + Send + Sync>,
    observer: O,
    config: AppConfig,
}

impl<T, O: Clone> Clone for AppVersion<T, O> {
    fn clone(&self) -> Self {
        Self { make: self.make.clone(), observer: self.observer.clone(), config: self.config.clone() }
    }
}

impl<T, O> fmt::Debug for AppVersion<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppVersion").field("config", &self.config).finish_non_exhaustive()
    }
}

impl<T: Service, O: Observer + Clone + Send> AppVersion<T, O> {
    /// Creates a version from a function that makes a service on each worker, and an observer that is cloned for each
    /// worker.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static, observer: O) -> Self {
        Self { make: Arc::new(make), observer, config: AppConfig::default() }
    }

    pub(crate) fn with_config(self, config: AppConfig) -> Self {
        Self { config, ..self }
    }

    /// Sets the [`Limits`]. `connections_max` has no effect: the server's value stays.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Sets TLS, see [`crate::Server::tls`].
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: crate::tls::Tls) -> Self {
        self.config.sessions = Some(Arc::new(tls));
        self
    }

    /// Sets which listeners without TLS accept HTTP/2, see [`crate::Server::plain_http2`].
    #[must_use]
    pub fn plain_http2(mut self, plain_http2: PlainHttp2) -> Self {
        self.config.plain_http2 = plain_http2;
        self
    }

    /// Sets at which listeners connections begin with a header of the PROXY protocol, see
    /// [`crate::Server::proxy_headers`].
    #[must_use]
    pub fn proxy_headers(mut self, proxy_headers: ProxyHeaders) -> Self {
        self.config.proxy_headers = proxy_headers;
        self
    }

    /// Sets the admission hook, see [`crate::Server::admit`].
    #[must_use]
    pub fn admit(mut self, admit: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static) -> Self {
        self.config.admission_hook = AdmissionHook::new(admit);
        self
    }

    /// Sets the form of the engine's own errors, see [`crate::Server::error_responses`].
    #[must_use]
    pub fn error_responses(
        mut self,
        hook: impl Fn(&EngineError<'_>) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        self.config.error_hook = ErrorHook::new(hook);
        self
    }

    pub(crate) fn reports_panics(&self) -> bool {
        self.observer.reports_panics()
    }
}

/// Command to a worker to replace its current version.
pub(crate) struct ReplaceApp<T, O> {
    next: AppVersion<T, O>,
    done: threads::Sender<()>,
}

/// Replaces the application of a running server.
pub struct AppHandle<T, O> {
    pub(crate) workers: Vec<MailboxSender<ReplaceApp<T, O>>>,
}

impl<T, O> fmt::Debug for AppHandle<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AppHandle({} workers)", self.workers.len())
    }
}

impl<T: Service, O: Observer + Clone + Send> AppHandle<T, O> {
    /// Makes `next` the version for new connections. Open connections keep theirs and close after
    /// their next response. Those that are open after their own [`Limits::shutdown_timeout`] are closed, unless a response
    /// has a [`ResponseLease`](crate::service::ResponseLease). Of a connection of HTTP/2 that has one, the responses without a lease
    /// are reset then.
    ///
    /// Returns when all workers have replaced theirs. Does nothing while the server stops.
    pub fn replace(&self, next: &AppVersion<T, O>) {
        let (done, all_done) = threads::channel();
        for worker in &self.workers {
            let _ = worker.send(ReplaceApp { next: next.clone(), done: done.clone() });
        }
        drop(done);
        // A worker that has ended drops its sender.
        while all_done.recv().is_ok() {}
    }
}

/// The current and replaced versions of one worker.
pub(crate) struct WorkerApps<T, O> {
    current: RefCell<Rc<AppContext<T, O>>>,
    config: RefCell<AppConfig>,
    /// Replaced versions that still have connections.
    replaced: RefCell<Vec<Weak<AppContext<T, O>>>>,
    /// The address that the last client connected to.
    last_local: RefCell<Option<Rc<SocketAddr>>>,
}

impl<T: Service, O: Observer + Clone + Send> WorkerApps<T, O> {
    /// Creates the worker with the first version.
    pub(crate) fn start(first: AppVersion<T, O>, worker: impl FnOnce(&Limits, Weak<Self>) -> Worker) -> Rc<Self> {
        let AppVersion { make, observer, config } = first;
        Rc::new_cyclic(|apps: &Weak<Self>| {
            let worker = Rc::new(worker(&config.limits, apps.clone()));
            Self {
                current: {
                    let parts = (config.limits.clone(), config.error_hook.clone());
                    RefCell::new(AppContext::new(make(), observer, parts, worker))
                },
                config: RefCell::new(config),
                replaced: RefCell::default(),
                last_local: RefCell::default(),
            }
        })
    }

    pub(crate) fn app(&self) -> Ref<'_, Rc<AppContext<T, O>>> {
        self.current.borrow()
    }

    /// Replaces the current version.
    fn replace(&self, next: AppVersion<T, O>) {
        let AppVersion { make, observer, config } = next;
        let replaced = self.app().clone();
        let worker = &replaced.worker;
        worker.begin_generation(worker.shutdown_timeout.get());
        worker.keep_alive_timeout.set(config.limits.keep_alive_timeout);
        worker.shutdown_timeout.set(config.limits.shutdown_timeout);
        worker.shutdown_notice.set(config.limits.shutdown_notice);
        let parts = (config.limits.clone(), config.error_hook.clone());
        let app = AppContext::new(make(), observer, parts, worker.clone());
        replaced.mark_replaced();
        drop(self.current.replace(app));
        drop(self.config.replace(config));
        let list = &mut *self.replaced.borrow_mut();
        list.retain(|earlier| earlier.strong_count() > 0);
        list.push(Rc::downgrade(&replaced));
    }

    /// Runs replacement commands in the order of their arrival.
    pub(crate) async fn run_replacements(self: Rc<Self>, mut receiver: MailboxReceiver<ReplaceApp<T, O>>) {
        loop {
            let ReplaceApp { next, done } = receiver.receive().await;
            self.replace(next);
            let _ = done.send(());
        }
    }

    /// Starts to serve a connection: at once, or after the header in which a proxy names its client.
    pub(crate) fn accept(self: &Rc<Self>, accepted: Accepted, endpoint: &Endpoint) {
        let origin = self.config.borrow().proxy_headers.origin(endpoint, accepted.peer);
        match origin {
            Origin::Client => {
                let local = local_address(&accepted.fd, endpoint);
                self.serve((accepted, local), endpoint);
            }
            Origin::Proxy => drop(spawn_local(self.clone().serve_client_of_proxy(accepted, endpoint.clone()))),
            Origin::Stranger => self.report_invalid_header(accepted.peer),
        }
    }

    /// Receives the header of a proxy within the time for a request head, and serves the client that it names.
    async fn serve_client_of_proxy(self: Rc<Self>, accepted: Accepted, endpoint: Endpoint) {
        let Accepted { fd, peer, permit } = accepted;
        let time = self.config.borrow().limits.header_timeout;
        match proxy_headers::receive(fd, time).await {
            Ok((fd, Some((client, destination)))) => {
                self.serve((Accepted { fd, peer: client, permit }, Some(destination)), &endpoint);
            }
            Ok((fd, None)) => {
                let local = local_address(&fd, &endpoint);
                self.serve((Accepted { fd, peer, permit }, local), &endpoint);
            }
            Err(_) => self.report_invalid_header(peer),
        }
    }

    fn report_invalid_header(&self, peer: SocketAddr) {
        let app = self.app();
        app.worker.count_accepted();
        let reason = CloseReason::ProxyHeaderInvalid;
        app.observer.closed(&Closed { peer, reason, phase: Phase::ReadingHead, requests: 0 });
    }

    /// Starts to serve a connection, unless the admission hook refuses it. `local` is the address that the client connected
    /// to.
    fn serve(&self, (accepted, local): (Accepted, Option<SocketAddr>), endpoint: &Endpoint) {
        let (app, peer) = (self.app(), accepted.peer);
        app.worker.count_accepted();
        let counted = match self.config.borrow().admission_hook.call(peer) {
            None => None,
            Some(Admission::Serve(counted)) => Some(counted),
            Some(Admission::ServeOverLimit(counted)) => {
                app.observer.event(&ServerEvent::ClientOverLimit { peer });
                Some(counted)
            }
            Some(Admission::Refuse) => {
                let reason = CloseReason::ClientOverLimit;
                app.observer.closed(&Closed { peer, reason, phase: Phase::Idle, requests: 0 });
                return accepted.refuse(UNAVAILABLE_RESPONSE);
            }
        };
        let (session, first_protocol) = {
            let config = self.config.borrow();
            let session = config.sessions.as_ref().and_then(|sessions| sessions.make(endpoint, PLAIN_HTTP_RESPONSE));
            let has_plain_http2 = session.is_none() && config.plain_http2.is_accepted_at(endpoint);
            (session, if has_plain_http2 { FirstProtocol::Http1OrHttp2 } else { FirstProtocol::Http1 })
        };
        let (id, permits) = (app.worker.insert_connection(), (accepted.permit, counted));
        let link = Link::new(Socket::new(accepted.fd, &app.worker), session);
        spawn_local(connection::run(
            link,
            Ends { peer, local: self.share(local) },
            (id, first_protocol),
            app.clone(),
            permits,
        ));
    }

    /// Returns a shared copy of an address: most connections of a worker have the one before.
    fn share(&self, local: Option<SocketAddr>) -> Option<Rc<SocketAddr>> {
        let local = local?;
        let mut last = self.last_local.borrow_mut();
        if last.as_deref() != Some(&local) {
            *last = Some(Rc::new(local));
        }
        last.clone()
    }

    /// Reports an event of the worker to the observer.
    pub(crate) fn report(&self, event: WorkerEvent, connections_max: usize) {
        self.app().observer.event(&match event {
            WorkerEvent::AcceptFailed(error) => ServerEvent::AcceptFailed { error: error.to_string() },
            WorkerEvent::UringUnavailable(error) => ServerEvent::UringUnavailable { error: error.to_string() },
            WorkerEvent::AcceptRecovered => ServerEvent::AcceptRecovered,
            WorkerEvent::ConnectionsFull => ServerEvent::ConnectionLimitReached { limit: connections_max },
            WorkerEvent::ConnectionsFree => ServerEvent::ConnectionLimitCleared,
        });
    }

    /// Lets all observers flush what they have buffered.
    pub(crate) fn tick(&self) {
        self.app().observer.tick();
        self.replaced.borrow().iter().filter_map(Weak::upgrade).for_each(|earlier| earlier.observer.tick());
    }
}

/// Returns the address that the client of an accepted connection connected to; `None` for a Unix socket.
fn local_address(fd: &OwnedFd, endpoint: &Endpoint) -> Option<SocketAddr> {
    match endpoint {
        // A listener at one address has no other one.
        Endpoint::Inet(address) if !address.ip().is_unspecified() => Some(*address),
        Endpoint::Inet(address) => {
            let local = rustix::net::getsockname(fd).ok().and_then(|local| SocketAddr::try_from(local).ok());
            Some(local.unwrap_or(*address))
        }
        Endpoint::Unix(_) => None,
    }
}
