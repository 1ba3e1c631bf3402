//! The listeners of one worker. Listeners are added and removed while the worker serves.

use crate::limits::{BACKLOG, DEFER_ACCEPT_SECONDS, DEFERRED_CONNECTIONS_TIME};
use crate::net::accept::{self, Acceptor};
use crate::net::adaptive_backlog::AdaptiveBacklog;
use crate::net::listen::{Endpoint, WorkerSockets};
use crate::net::sys;
use crate::net::worker::{WorkerEvent, spawn_critical};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The listeners of a worker.
pub(crate) struct WorkerListeners {
    acceptor: Rc<Acceptor>,
    tasks: RefCell<Vec<AcceptTask>>,
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
        Self { acceptor: Rc::new(acceptor), tasks: RefCell::default() }
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

    /// Stops accepting at the endpoints that match. Connections that already wait in their accept queues are still
    /// served.
    pub(crate) async fn remove_where(&self, matches: impl Fn(&Endpoint) -> bool) {
        let removed: Vec<AcceptTask> = self.tasks.borrow_mut().extract_if(.., |task| matches(&task.endpoint)).collect();
        if removed.is_empty() {
            return;
        }
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
