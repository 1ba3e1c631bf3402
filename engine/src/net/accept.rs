//! Accepting: a permit for each connection, the idlest one's place when there is none,
//! and a pause when the system is out of descriptors.

use crate::limits::{ACCEPT_PAUSE, ACCEPTS_PER_TURN, SWEEP_INTERVAL};
use crate::net::sys;
use crate::net::uring::{Permits, RingListener, Uring};
use crate::net::worker::{Event, Worker};
use crate::service::UNIX_PEER;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags};
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::timeout;

/// A connection that was accepted and is not yet served.
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: SocketAddr,
    /// One has none that was accepted on its way to a listener that closes, when there was none.
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl Accepted {
    /// Tells the client that there is no room for it.
    pub(crate) fn refuse(self) {
        say_no_room(&self.fd);
    }
}

/// Where somebody is accepted from: a socket in the runtime's epoll set, or in the worker's ring.
pub(crate) enum Source {
    Watched(AsyncFd<OwnedFd>),
    Ringed(RingListener),
}

impl Source {
    pub(crate) fn new(socket: OwnedFd, ring: Option<&Rc<Uring>>) -> io::Result<Self> {
        match ring {
            Some(ring) => Ok(Self::Ringed(RingListener::new(ring.clone(), socket))),
            None => sys::watch(socket).map(Self::Watched),
        }
    }

    /// Waits until somebody may be there to accept.
    async fn ready(&self, permits: Permits) -> io::Result<()> {
        match self {
            Self::Watched(socket) => {
                // What is remembered is that it may be so, until it shows not to be.
                socket.readable().await?.retain_ready();
            }
            Self::Ringed(listener) => poll_fn(|cx| listener.poll_ready(cx, permits)).await,
        }
        Ok(())
    }

    /// Nobody is there any more.
    fn nobody_waits(&self) {
        match self {
            Self::Watched(socket) => {
                let mut cx = Context::from_waker(Waker::noop());
                if let Poll::Ready(Ok(mut ready)) = socket.poll_read_ready(&mut cx) {
                    ready.clear_ready();
                }
            }
            Self::Ringed(listener) => listener.nobody_waits(),
        }
    }

    fn accept_one(&self) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
        self.accepted().unwrap_or_else(|| self.with_socket(accept_at))
    }

    /// Somebody whom the ring has let in.
    fn accepted(&self) -> Option<rustix::io::Result<(OwnedFd, SocketAddr)>> {
        let Self::Ringed(listener) = self else { return None };
        // The ring does not say who it is.
        let named = |fd: OwnedFd| {
            let peer = rustix::net::getpeername(&fd).ok().flatten().ok_or(Errno::CONNABORTED)?;
            Ok((fd, peer_of(peer)?))
        };
        listener.next().map(|accepted| accepted.and_then(named))
    }

    /// Does something with the socket itself.
    fn with_socket<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
        match self {
            Self::Watched(socket) => act(socket.get_ref().as_fd()),
            Self::Ringed(listener) => listener.with_socket(act),
        }
    }

    /// Whether somebody waits to be accepted.
    fn is_waited_for(&self) -> bool {
        let is_readable = |socket: BorrowedFd<'_>| {
            let mut sockets = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
            retry_on_intr(|| rustix::event::poll(&mut sockets, Some(&Timespec::default()))) != Ok(0)
        };
        matches!(self, Self::Ringed(listener) if listener.has_accepted()) || self.with_socket(is_readable)
    }

    /// Has the ring let nobody in any more, but for those whom it has let in already.
    fn end(&self) {
        if let Self::Ringed(listener) = self {
            listener.end();
        }
    }
}

/// What is said to a client that is accepted only to be told that there is no room.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nserver: selvedge\r\nretry-after: 1\r\ncontent-length: 0\r\n\
                         connection: close\r\n\r\n";

/// Accepts until the task is ended. `spare` is closed when descriptors run out, so that
/// one more client can be accepted and told so.
pub(crate) async fn accept(
    source: Rc<Source>,
    worker: Rc<Worker>,
    permits: Arc<Semaphore>,
    serve: Rc<dyn Fn(Accepted)>,
) {
    let mut spare = Spare::new();
    let mut in_a_row = 0;
    loop {
        let plenty = Permits::of(permits.available_permits(), worker.count_of_workers());
        if source.ready(plenty).await.is_err() {
            return;
        }
        let permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            // Readiness may be left from the last accept. Nobody loses a place to nobody.
            Err(_) if !source.is_waited_for() => {
                source.nobody_waits();
                continue;
            }
            Err(_) => match permit(&worker, &permits).await {
                Some(permit) => permit,
                None => return,
            },
        };
        match source.accept_one() {
            Ok((fd, peer)) => {
                if spare.close_count() > 0 {
                    spare.reset();
                    worker.event(Event::AcceptRecovered);
                }
                worker.admit(Accepted { fd, peer, permit: Some(permit) }, &*serve);
            }
            Err(Errno::AGAIN) => {
                source.nobody_waits();
                in_a_row = 0;
                continue;
            }
            // The client gave up before it was accepted, or the network did.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                if spare.close_count() == 0 {
                    worker.event(Event::AcceptFailed(error.into()));
                }
                spare.refuse_one(&source);
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(error) => {
                worker.event(Event::AcceptFailed(error.into()));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        in_a_row += 1;
        if in_a_row >= ACCEPTS_PER_TURN {
            in_a_row = 0;
            yield_now().await;
        }
    }
}

/// Accepts what had connected before the listener closes, so that nobody is reset who was
/// already in the queue. Whom the ring has let in is served with a permit or without.
pub(crate) fn accept_rest(source: &Source, worker: &Worker, permits: &Arc<Semaphore>, serve: &dyn Fn(Accepted)) {
    source.end();
    while let Some(accepted) = source.accepted() {
        // One who has given up, or could not be accepted, is not there to be served.
        if let Ok((fd, peer)) = accepted {
            worker.admit(Accepted { fd, peer, permit: permits.clone().try_acquire_owned().ok() }, serve);
        }
    }
    while let Ok(permit) = permits.clone().try_acquire_owned()
        && let Ok((fd, peer)) = source.with_socket(accept_at)
    {
        worker.admit(Accepted { fd, peer, permit: Some(permit) }, serve);
    }
}

fn accept_at(socket: BorrowedFd<'_>) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, address) = rustix::net::acceptfrom_with(socket, flags)?;
    Ok((fd, peer_of(address.ok_or(Errno::CONNABORTED)?)?))
}

fn peer_of(address: SocketAddrAny) -> rustix::io::Result<SocketAddr> {
    match address.address_family() {
        AddressFamily::UNIX => Ok(UNIX_PEER),
        _ => SocketAddr::try_from(address).map_err(|_| Errno::CONNABORTED),
    }
}

/// A permit when there is none: the idlest connection is asked for its place, and whoever
/// becomes idle while that is not enough.
async fn permit(worker: &Worker, permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let mut is_full = false;
    for attempt in 0.. {
        if !worker.notes.make_room() {
            worker.ask_another_for_room(attempt);
            // Others had their time to answer.
            if attempt > 0 && !is_full {
                is_full = true;
                worker.event(Event::ConnectionsFull);
            }
        }
        if let Ok(permit) = timeout(SWEEP_INTERVAL, permits.clone().acquire_owned()).await {
            if is_full {
                worker.event(Event::ConnectionsFree);
            }
            return permit.ok();
        }
    }
    None
}

/// Says so, and that nothing follows. A client that is gone hears nothing.
fn say_no_room(fd: &OwnedFd) {
    let _ = rustix::net::send(fd, NO_ROOM, rustix::net::SendFlags::NOSIGNAL);
    let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
}

/// A descriptor that is held only to be let go.
struct Spare {
    held: Option<File>,
    closed: u32,
}

impl Spare {
    fn new() -> Self {
        Self { held: File::open("/dev/null").ok(), closed: 0 }
    }

    /// How often it was needed since accepting last worked.
    fn close_count(&self) -> u32 {
        self.closed
    }

    fn reset(&mut self) {
        *self = Self::new();
    }

    /// Uses the held descriptor to accept one client and tell it that there is no room.
    fn refuse_one(&mut self, source: &Source) {
        self.closed = self.closed.saturating_add(1);
        drop(self.held.take());
        if let Ok((fd, _)) = source.with_socket(accept_at) {
            say_no_room(&fd);
        }
        self.held = File::open("/dev/null").ok();
    }
}
