//! The listeners of one worker. Listeners are added and removed while the worker serves.

use crate::limits::{BACKLOG, DEFER_ACCEPT_SECONDS, DEFERRED_CONNECTIONS_TIME, HELD_CONNECTIONS_TIME};
use crate::net::accept::{self, Acceptor};
use crate::net::adaptive_backlog::AdaptiveBacklog;
use crate::net::listen::{Endpoint, WorkerSockets};
use crate::net::sys;
use crate::net::worker::{WorkerEvent, spawn_critical};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The listeners of a worker.
pub(crate) struct WorkerListeners {
    acceptor: Rc<Acceptor>,
    tasks: RefCell<Vec<AcceptTask>>,
    /// Groups of removed listeners that are not yet closed.
    closing: Cell<usize>,
    closed: Notify,
}

/// Listeners that are about to close. They accept until then.
pub(crate) struct RemovedListeners(Vec<AcceptTask>);

impl RemovedListeners {
    /// Returns how long they accept, of at most `notice`.
    pub(crate) fn closing_time(&self, notice: Duration) -> Duration {
        if self.0.is_empty() { Duration::ZERO } else { notice.min(HELD_CONNECTIONS_TIME) }
    }
}

/// A listening socket and the task that accepts at it.
struct AcceptTask {
    endpoint: Rc<Endpoint>,
    socket: Rc<AsyncFd<OwnedFd>>,
    adapts_backlog: bool,
    task: JoinHandle<()>,
}

impl WorkerListeners {
    pub(crate) fn new(acceptor: Acceptor) -> Self {
        Self { acceptor: Rc::new(acceptor), tasks: RefCell::default(), closing: Cell::new(0), closed: Notify::new() }
    }

    /// Starts to accept at the sockets of an endpoint.
    pub(crate) fn add(&self, endpoint: &Endpoint, WorkerSockets { sockets, adapts_backlog }: WorkerSockets) {
        let (worker, endpoint) = (&self.acceptor.worker, Rc::new(endpoint.clone()));
        for socket in sockets {
            let socket = match sys::register(socket) {
                Ok(socket) => Rc::new(socket),
                Err(error) => {
                    worker.event(WorkerEvent::AcceptFailed(error));
                    continue;
                }
            };
            let backlog = adapts_backlog.then(|| AdaptiveBacklog::new(worker.clock.tick()));
            let task = spawn_critical(worker, self.acceptor.clone().accept(socket.clone(), endpoint.clone(), backlog));
            self.tasks.borrow_mut().push(AcceptTask { endpoint: endpoint.clone(), socket, adapts_backlog, task });
        }
    }

    /// Removes the listeners of the endpoints that match. [`WorkerListeners::close`] ends them.
    pub(crate) fn remove_where(&self, matches: impl Fn(&Endpoint) -> bool) -> RemovedListeners {
        RemovedListeners(self.tasks.borrow_mut().extract_if(.., |task| matches(&task.endpoint)).collect())
    }

    /// Stops accepting at removed listeners, and waits until no listener is being closed. Connections that already wait
    /// in their accept queues are still served.
    pub(crate) async fn close(&self, RemovedListeners(removed): RemovedListeners) {
        if !removed.is_empty() {
            self.accept_deferred(&removed).await;
            self.accept_last(removed).await;
        }
        while self.closing.get() > 0 {
            self.closed.notified().await;
        }
    }

    /// Closes all listeners because the server stops, as [`WorkerListeners::close`]. If the kernel still holds connections,
    /// returns the listeners instead. They accept until [`WorkerListeners::close_after`].
    pub(crate) async fn close_all(&self) -> RemovedListeners {
        let RemovedListeners(removed) = self.remove_where(|_| true);
        if !removed.is_empty() {
            let since = self.accept_deferred(&removed).await;
            let endpoints = removed.iter().map(|removed| &*removed.endpoint);
            if self.acceptor.worker.has_held_connections(endpoints, since).await {
                return RemovedListeners(removed);
            }
            self.accept_last(removed).await;
        }
        self.close(RemovedListeners(Vec::new())).await;
        RemovedListeners(Vec::new())
    }

    /// Closes the listeners of [`WorkerListeners::close_all`] when the kernel has completed the connections that it held, at
    /// most after `notice`.
    pub(crate) async fn close_after(&self, removed: RemovedListeners, notice: Duration) {
        if !removed.0.is_empty() {
            sleep(removed.closing_time(notice)).await;
            self.accept_last(removed.0).await;
        }
        self.close(RemovedListeners(Vec::new())).await;
    }

    /// Lets the kernel complete the connections that it holds back until they send something, and accepts those that do so
    /// soon. A close would reset them. Returns since when it holds back no new ones. [`WorkerListeners::accept_last`]
    /// follows.
    async fn accept_deferred(&self, removed: &[AcceptTask]) -> Instant {
        self.closing.set(self.closing.get() + 1);
        removed.iter().for_each(|removed| accept::set_deferral(&removed.socket, 0));
        let since = Instant::now();
        sleep(DEFERRED_CONNECTIONS_TIME).await;
        since
    }

    /// Accepts the connections that are complete, and closes the listeners.
    async fn accept_last(&self, removed: Vec<AcceptTask>) {
        removed.iter().for_each(|removed| removed.task.abort());
        for AcceptTask { endpoint, socket, adapts_backlog, task } in removed {
            // The task shares the socket. If it ended later, so would the socket, and clients that connect until then
            // would be reset.
            let _ = task.await;
            if adapts_backlog {
                // The next process that listens at this socket starts with the full backlog.
                accept::set_backlog(&socket, BACKLOG);
            }
            self.acceptor.accept_pending(&socket, &endpoint);
            // Another process may listen at this socket.
            accept::set_deferral(&socket, DEFER_ACCEPT_SECONDS);
            drop(socket);
        }
        self.closing.set(self.closing.get() - 1);
        self.closed.notify_waiters();
    }
}
