//! Applications that take each other's place while the server serves.
//!
//! Each worker has a current one, which new connections begin under; a connection keeps the
//! one it has, so that nothing on the way of a request is shared with other workers or locked.

use crate::connection::{self, App, Existing};
use crate::limits::Limits;
use crate::net::accept::Accepted;
use crate::net::worker::{Event, Worker};
use crate::service::{Admission, CloseReason, Closed, Door, Incident, Observer, Phase, Service};
use std::cell::{Ref, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::{Arc, mpsc as threads};
use tokio::sync::mpsc;

/// On what terms connections are served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) limits: Limits,
    pub(crate) door: Door,
}

/// An application with all that belongs to it: what serves connections from some moment on.
pub struct Generation<T, O> {
    make: Arc<dyn Fn() -> T + Send + Sync>,
    observer: O,
    terms: Terms,
}

impl<T, O: Clone> Clone for Generation<T, O> {
    fn clone(&self) -> Self {
        Self { make: self.make.clone(), observer: self.observer.clone(), terms: self.terms.clone() }
    }
}

impl<T, O> fmt::Debug for Generation<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl<T: Service, O: Observer + Clone + Send> Generation<T, O> {
    /// A service that each worker makes for itself, and an observer of which each has a clone.
    pub fn new(make: impl Fn() -> T + Send + Sync + 'static, observer: O) -> Self {
        Self { make: Arc::new(make), observer, terms: Terms::default() }
    }

    pub(crate) fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// As [`crate::Server::limits`]. How many connections there may be stays as it was.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.terms.limits = limits;
        self
    }

    /// As [`crate::Server::admit`].
    #[must_use]
    pub fn admit(mut self, ask: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static) -> Self {
        self.terms.door = Door::new(ask);
        self
    }
}

/// A generation on its way to a worker.
pub(crate) struct Change<T, O> {
    next: Generation<T, O>,
    existing: Existing,
    done: threads::Sender<()>,
}

/// Gives a running server one generation after the other.
pub struct Succession<T, O> {
    pub(crate) workers: Vec<mpsc::UnboundedSender<Change<T, O>>>,
}

impl<T, O> fmt::Debug for Succession<T, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Succession({} workers)", self.workers.len())
    }
}

impl<T: Service, O: Observer + Clone + Send> Succession<T, O> {
    /// Has new connections served by this from now on. Connections that are there finish
    /// with what they have or follow, as `existing` says; what has done neither after the
    /// [`Limits::drain_time`] of what they have is closed.
    ///
    /// Returns when all workers have done so. A server that is stopping changes nothing more.
    pub fn replace(&self, next: &Generation<T, O>, existing: Existing) {
        let (done, all_done) = threads::channel();
        for worker in &self.workers {
            let _ = worker.send(Change { next: next.clone(), existing, done: done.clone() });
        }
        drop(done);
        // A worker that has ended drops its end of it.
        while all_done.recv().is_ok() {}
    }
}

/// What one worker serves with.
pub(crate) struct Serving<T, O> {
    current: RefCell<Rc<App<T, O>>>,
    door: RefCell<Door>,
    /// Those whose place was taken, while they have connections.
    earlier: RefCell<Vec<Weak<App<T, O>>>>,
}

impl<T: Service, O: Observer + Clone + Send> Serving<T, O> {
    /// What the first generation makes of a worker.
    pub(crate) fn begin(first: Generation<T, O>, worker: impl FnOnce(&Limits, Weak<Self>) -> Worker) -> Rc<Self> {
        let Generation { make, observer, terms } = first;
        Rc::new_cyclic(|serving: &Weak<Self>| {
            let worker = Rc::new(worker(&terms.limits, serving.clone()));
            Self {
                current: RefCell::new(App::new(make(), observer, terms.limits, worker)),
                door: RefCell::new(terms.door),
                earlier: RefCell::default(),
            }
        })
    }

    pub(crate) fn app(&self) -> Ref<'_, Rc<App<T, O>>> {
        self.current.borrow()
    }

    /// Gives way to the next generation.
    fn change(&self, next: Generation<T, O>, existing: Existing) {
        let Generation { make, observer, terms } = next;
        let earlier = self.app().clone();
        let worker = &earlier.worker;
        worker.begin_generation(worker.drain_time.get());
        worker.keep_alive.set(terms.limits.keep_alive);
        worker.drain_time.set(terms.limits.drain_time);
        let app = App::new(make(), observer, terms.limits, worker.clone());
        earlier.retire(&app, existing);
        let current = app.clone();
        drop(self.current.replace(app));
        drop(self.door.replace(terms.door));
        let list = &mut *self.earlier.borrow_mut();
        list.retain(|earlier| earlier.strong_count() > 0);
        if existing == Existing::Follow {
            list.iter().filter_map(Weak::upgrade).for_each(|older| older.pass_over(&earlier, &current));
        }
        list.push(Rc::downgrade(&earlier));
    }

    /// Takes one generation after the other.
    pub(crate) async fn take_changes(self: Rc<Self>, mut changes: mpsc::UnboundedReceiver<Change<T, O>>) {
        while let Some(Change { next, existing, done }) = changes.recv().await {
            self.change(next, existing);
            let _ = done.send(());
        }
    }

    /// Begins to serve a connection, if it is let in.
    pub(crate) fn serve(&self, accepted: Accepted) {
        let (app, peer) = (self.app(), accepted.peer);
        app.worker.count_accepted();
        let counted = match self.door.borrow().ask(peer) {
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
        let (place, kept) = (app.worker.connection_began(), (accepted.permit, counted));
        let socket = app.worker.drive(accepted.fd);
        tokio::task::spawn_local(connection::run(socket, peer, place, app.clone(), kept));
    }

    /// Tells the observer what happened on the floor of sockets.
    pub(crate) fn tell(&self, event: Event, connections_max: usize) {
        self.app().observer.incident(&match event {
            Event::AcceptFailed(error) => Incident::AcceptFailed { error: error.to_string() },
            Event::DriverRefused(error) => Incident::DriverRefused { error: error.to_string() },
            Event::AcceptRecovered => Incident::AcceptRecovered,
            Event::ConnectionsFull => Incident::ConnectionsFull { limit: connections_max },
            Event::ConnectionsFree => Incident::ConnectionsFree,
        });
    }

    /// Gives all observers the time to hand on what they gathered.
    pub(crate) fn tick(&self) {
        self.app().observer.tick();
        self.earlier.borrow().iter().filter_map(Weak::upgrade).for_each(|earlier| earlier.observer.tick());
    }
}
