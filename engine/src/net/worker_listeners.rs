//! The listeners of one worker. Listeners are added and removed while the worker serves.

use crate::limits::{BACKLOG, DEFER_ACCEPT_SECONDS, DEFERRED_CONNECTIONS_TIME};
use crate::net::accept::{self, Acceptor};
use crate::net::adaptive_backlog::AdaptiveBacklog;
use crate::net::listen::{Endpoint, WorkerSockets};
use crate::net::sys;
use crate::net::worker::{WorkerEvent, spawn_critical};
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The listeners of a worker.
pub(crate) struct WorkerListeners {
    acceptor: Rc<Acceptor>,
    tasks: RefCell<Vec<AcceptTask>>,
    /// Calls of [`WorkerListeners::close`] in progress.
    closing: Cell<usize>,
    closed: Notify,
}

/// Listeners that are about to close. They accept until then.
pub(crate) struct RemovedListeners(Vec<AcceptTask>);

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
            self.closing.set(self.closing.get() + 1);
            self.accept_last(removed).await;
            self.closing.set(self.closing.get() - 1);
            self.closed.notify_waiters();
        }
        while self.closing.get() > 0 {
            self.closed.notified().await;
        }
    }

    /// Accepts the connections that the kernel has, and closes the listeners.
    async fn accept_last(&self, removed: Vec<AcceptTask>) {
        // Clients whose connections the kernel holds back until they send something would be reset by the close.
        removed.iter().for_each(|removed| accept::set_deferral(&removed.socket, 0));
        sleep(DEFERRED_CONNECTIONS_TIME).await;
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
    }
}
