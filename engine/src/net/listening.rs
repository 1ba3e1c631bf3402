//! Where one worker accepts at the moment: it may be given more places, and be told to leave
//! some, while it serves.

use crate::limits::BACKLOG;
use crate::net::accept::{self, Accepted};
use crate::net::listen::{Dealt, Endpoint};
use crate::net::queue::Queue;
use crate::net::sys;
use crate::net::worker::{Event, Worker, spawn_vital};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// The listeners of a worker.
pub(crate) struct Listening {
    worker: Rc<Worker>,
    permits: Arc<Semaphore>,
    serve: Rc<dyn Fn(Accepted)>,
    open: RefCell<Vec<Open>>,
}

/// One socket that is accepted at.
struct Open {
    endpoint: Endpoint,
    socket: Rc<AsyncFd<OwnedFd>>,
    sets_queue: bool,
    accepting: JoinHandle<()>,
}

impl Listening {
    pub(crate) fn new(worker: Rc<Worker>, permits: Arc<Semaphore>, serve: Rc<dyn Fn(Accepted)>) -> Self {
        Self { worker, permits, serve, open: RefCell::default() }
    }

    /// Begins to accept at sockets of one endpoint.
    pub(crate) fn begin(&self, endpoint: &Endpoint, Dealt { sockets, sets_queue }: Dealt) {
        for socket in sockets {
            let socket = match sys::watch(socket) {
                Ok(socket) => Rc::new(socket),
                Err(error) => {
                    self.worker.event(Event::AcceptFailed(error));
                    continue;
                }
            };
            let (worker, permits, serve) = (self.worker.clone(), self.permits.clone(), self.serve.clone());
            let queue = sets_queue.then(|| Queue::new(worker.clock.tick()));
            let accepting = accept::accept(socket.clone(), queue, worker, permits, serve);
            let accepting = spawn_vital(&self.worker, accepting);
            self.open.borrow_mut().push(Open { endpoint: endpoint.clone(), socket, sets_queue, accepting });
        }
    }

    /// Accepts no longer at some endpoints. Whoever was in a queue there is still served.
    pub(crate) fn end(&self, is_meant: impl Fn(&Endpoint) -> bool) {
        let left: Vec<Open> = self.open.borrow_mut().extract_if(.., |open| is_meant(&open.endpoint)).collect();
        for Open { socket, sets_queue, accepting, .. } in left {
            accepting.abort();
            if sets_queue {
                // Whoever listens there next begins with all of it.
                accept::set_room(&socket, BACKLOG);
            }
            accept::accept_rest(&socket, &self.worker, &self.permits, &*self.serve);
        }
    }
}
