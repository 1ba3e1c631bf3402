//! Accepts connections. Each takes a permit. If none is free, a connection is evicted, by default the
//! idlest. If file descriptors run out, accepting pauses.

use crate::limits::{ACCEPT_PAUSE, ACCEPTS_PER_YIELD, SWEEP_INTERVAL};
use crate::net::accepted::{Accepted, ServeAccepted, send_refusal};
use crate::net::adaptive_backlog::AdaptiveBacklog;
use crate::net::clock::Tick;
use crate::net::listen::Endpoint;
use crate::net::sys;
use crate::net::worker::{Worker, WorkerEvent, evict};
use crate::peer::UNIX_PEER;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::timeout;

/// Accepts connections for one worker.
pub(crate) struct Acceptor {
    pub(crate) worker: Rc<Worker>,
    pub(crate) permits: Arc<Semaphore>,
    /// Starts to serve a connection that was accepted at an endpoint.
    pub(crate) serve: Rc<ServeAccepted>,
    /// Sent to a client that is accepted only to be refused.
    pub(crate) refusal: &'static [u8],
}

impl Acceptor {
    /// Accepts connections until the task is aborted. If file descriptors run out, it uses a reserve descriptor to
    /// refuse one more client.
    pub(crate) async fn accept(
        self: Rc<Self>,
        listener: Rc<AsyncFd<OwnedFd>>,
        endpoint: Rc<Endpoint>,
        mut backlog: Option<AdaptiveBacklog>,
    ) {
        let Self { worker, permits, serve, refusal } = &*self;
        let mut reserve = ReserveFd::new();
        let mut accepted_in_row = 0;
        loop {
            let Ok(mut ready) = listener.readable().await else { return };
            let permit = match permits.clone().try_acquire_owned() {
                Ok(permit) => permit,
                // The readiness event may be stale. Without a waiting client, do not evict an idle connection.
                Err(_) if !has_pending_connection(&listener) => {
                    ready.clear_ready();
                    update_backlog(&mut backlog, AdaptiveBacklog::found_empty, &listener, worker);
                    continue;
                }
                Err(_) => match wait_for_permit(worker, permits).await {
                    Some(permit) => permit,
                    None => return,
                },
            };
            match accept_one(&listener) {
                Ok((fd, peer)) => {
                    if reserve.refused_count() > 0 {
                        reserve.reset();
                        worker.event(WorkerEvent::AcceptRecovered);
                    }
                    update_backlog(&mut backlog, AdaptiveBacklog::accepted, &listener, worker);
                    worker.dispatch(Accepted { fd, peer, permit }, &endpoint, &**serve);
                }
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    update_backlog(&mut backlog, AdaptiveBacklog::found_empty, &listener, worker);
                    accepted_in_row = 0;
                    continue;
                }
                // The client or the network aborted the connection before it was accepted.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    if reserve.refused_count() == 0 {
                        worker.event(WorkerEvent::AcceptFailed(error.into()));
                    }
                    reserve.refuse_one(&listener, refusal);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Err(error) => {
                    worker.event(WorkerEvent::AcceptFailed(error.into()));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
            accepted_in_row += 1;
            if accepted_in_row >= ACCEPTS_PER_YIELD {
                accepted_in_row = 0;
                yield_now().await;
            }
        }
    }

    /// Accepts all connections in the accept queue, so that closing the listener does not reset them.
    pub(crate) fn accept_pending(&self, listener: &AsyncFd<OwnedFd>, endpoint: &Endpoint) {
        while let Ok(permit) = self.permits.clone().try_acquire_owned()
            && let Ok((fd, peer)) = accept_one(listener)
        {
            self.worker.dispatch(Accepted { fd, peer, permit }, endpoint, &*self.serve);
        }
    }
}

/// Records the state of the accept queue and sets the backlog if it changed.
fn update_backlog(
    backlog: &mut Option<AdaptiveBacklog>,
    record: fn(&mut AdaptiveBacklog, Tick) -> Option<i32>,
    listener: &AsyncFd<OwnedFd>,
    worker: &Worker,
) {
    if let Some(length) = backlog.as_mut().and_then(|backlog| record(backlog, worker.clock.tick())) {
        set_backlog(listener, length);
    }
}

/// Sets the length of the accept queue.
pub(super) fn set_backlog(listener: &AsyncFd<OwnedFd>, length: i32) {
    // The socket already listens, so this cannot fail.
    let _ = rustix::net::listen(listener.get_ref(), length);
}

/// Sets how long the kernel holds back a connection without data.
pub(super) fn set_deferral(listener: &AsyncFd<OwnedFd>, seconds: i32) {
    // A Unix socket has no such option.
    let _ = sys::set_tcp_option(listener.get_ref().as_fd(), libc::TCP_DEFER_ACCEPT, seconds);
}

fn accept_one(listener: &AsyncFd<OwnedFd>) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, address) = rustix::net::acceptfrom_with(listener.get_ref(), flags)?;
    let address = address.ok_or(Errno::CONNABORTED)?;
    let peer = match address.address_family() {
        AddressFamily::UNIX => UNIX_PEER,
        _ => SocketAddr::try_from(address).map_err(|_| Errno::CONNABORTED)?,
    };
    Ok((fd, peer))
}

/// Returns whether a connection waits in the accept queue.
fn has_pending_connection(listener: &AsyncFd<OwnedFd>) -> bool {
    let mut listeners = [PollFd::new(listener.get_ref(), PollFlags::IN)];
    retry_on_intr(|| rustix::event::poll(&mut listeners, Some(&Timespec::default()))) != Ok(0)
}

/// Waits for a permit when none is free. Evicts a connection, and retries every [`SWEEP_INTERVAL`] until
/// a permit is free.
async fn wait_for_permit(worker: &Worker, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let mut has_reported_full = false;
    for attempt in 0.. {
        if !evict(worker) {
            worker.evict_on_another_worker(attempt);
            // The other workers had one interval to evict a connection.
            if attempt > 0 && !has_reported_full {
                has_reported_full = true;
                worker.event(WorkerEvent::ConnectionsFull);
            }
        }
        if let Ok(permit) = timeout(SWEEP_INTERVAL, permits.clone().acquire_owned()).await {
            if has_reported_full {
                worker.event(WorkerEvent::ConnectionsFree);
            }
            return permit.ok();
        }
    }
    None
}

/// A reserve file descriptor. It is closed when descriptors run out, so that one more connection can be accepted.
struct ReserveFd {
    fd: Option<File>,
    refused: u32,
}

impl ReserveFd {
    fn new() -> Self {
        Self { fd: File::open("/dev/null").ok(), refused: 0 }
    }

    /// Returns how many clients were refused since the last successful accept.
    fn refused_count(&self) -> u32 {
        self.refused
    }

    fn reset(&mut self) {
        *self = Self::new();
    }

    /// Closes the reserve descriptor, accepts one client, sends it `refusal`, and reserves a descriptor again.
    fn refuse_one(&mut self, listener: &AsyncFd<OwnedFd>, refusal: &[u8]) {
        self.refused = self.refused.saturating_add(1);
        drop(self.fd.take());
        if let Ok((fd, _)) = accept_one(listener) {
            send_refusal(&fd, refusal);
        }
        self.fd = File::open("/dev/null").ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{BACKLOG, BACKLOG_MIN, Limits};
    use crate::net::sys;
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::pin::pin;
    use std::task::Poll;
    use tokio::time::advance;

    #[test]
    fn backlog_shrinks_while_the_queue_is_never_empty() {
        let Ok(runtime) = crate::net::runtime::runtime() else { panic!("cannot create a runtime") };
        runtime.block_on(async {
            tokio::time::pause();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let listener = Rc::new(sys::register(listener.into()).unwrap());
            let backlog_length = || sys::backlog(listener.get_ref().as_fd()).unwrap();
            // The kernel may have a lower bound.
            set_backlog(&listener, BACKLOG);
            let full = backlog_length();

            let worker = Rc::new(Worker::standalone(&Limits::default()));
            let (served, permits) = (Rc::new(Cell::new(0)), Arc::new(Semaphore::new(1024)));
            let count = served.clone();
            let serve = Rc::new(move |_, _: &Endpoint| count.set(count.get() + 1));
            let backlog = AdaptiveBacklog::new(worker.clock.tick());
            let acceptor = Acceptor { worker: worker.clone(), permits, serve, refusal: b"" };
            let mut accepting =
                pin!(Rc::new(acceptor).accept(listener.clone(), Rc::new(Endpoint::Inet(address)), Some(backlog)));
            let clients: Vec<TcpStream> =
                (0..3 * ACCEPTS_PER_YIELD + 1).map(|_| TcpStream::connect(address).unwrap()).collect();
            for turn in 1..=3 {
                while served.get() < turn * ACCEPTS_PER_YIELD {
                    poll_fn(|cx| Poll::Ready(accepting.as_mut().poll(cx).is_pending())).await;
                    yield_now().await;
                }
                let expected = if turn < 3 { full } else { full.min(BACKLOG_MIN as u32) };
                assert_eq!(backlog_length(), expected, "after {} of {}", served.get(), clients.len());
                advance(SWEEP_INTERVAL).await;
                worker.clock.update();
            }
            while served.get() < clients.len() {
                poll_fn(|cx| Poll::Ready(accepting.as_mut().poll(cx).is_pending())).await;
                yield_now().await;
            }
            assert_eq!(backlog_length(), full, "the queue is empty");
        });
    }
}
