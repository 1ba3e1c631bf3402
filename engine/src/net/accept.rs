//! Accepting: a permit for each connection, the idlest one's place when there is none,
//! and a pause when the system is out of descriptors.

use crate::limits::{ACCEPT_PAUSE, ACCEPTS_PER_TURN, SWEEP_INTERVAL};
use crate::net::sys;
use crate::net::uring::{RingListener, Uring};
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
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
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
    async fn ready(&self) -> io::Result<Option<AsyncFdReadyGuard<'_, OwnedFd>>> {
        match self {
            Self::Watched(socket) => socket.readable().await.map(Some),
            Self::Ringed(listener) => {
                poll_fn(|cx| listener.poll_accepted(cx)).await;
                Ok(None)
            }
        }
    }

    /// Whether somebody waits to be accepted. Nobody else is let in from the ring for now.
    fn is_waited_for(&self) -> bool {
        match self {
            Self::Watched(socket) => {
                let mut sockets = [PollFd::new(socket.get_ref(), PollFlags::IN)];
                retry_on_intr(|| rustix::event::poll(&mut sockets, Some(&Timespec::default()))) != Ok(0)
            }
            Self::Ringed(listener) => {
                listener.pause();
                true
            }
        }
    }

    fn accept_one(&self) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
        match self {
            Self::Watched(socket) => accept_at(socket.get_ref().as_fd()),
            Self::Ringed(listener) => {
                let fd = listener.next().unwrap_or(Err(Errno::AGAIN))?;
                // The ring does not say who it is.
                let peer = rustix::net::getpeername(&fd).ok().flatten().ok_or(Errno::CONNABORTED).and_then(peer_of)?;
                Ok((fd, peer))
            }
        }
    }

    /// Accepts past the ring.
    fn accept_at_once(&self) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
        match self {
            Self::Watched(socket) => accept_at(socket.get_ref().as_fd()),
            Self::Ringed(listener) => listener.with_socket(accept_at),
        }
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
        let Ok(mut ready) = source.ready().await else { return };
        let permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            // Readiness may be left from the last accept. Nobody loses a place to nobody.
            Err(_) if !source.is_waited_for() => {
                if let Some(ready) = &mut ready {
                    ready.clear_ready();
                }
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
                if let Some(ready) = &mut ready {
                    ready.clear_ready();
                }
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
    if let Source::Ringed(_) = source {
        loop {
            match source.accept_one() {
                Ok((fd, peer)) => {
                    let permit = permits.clone().try_acquire_owned().ok();
                    worker.admit(Accepted { fd, peer, permit }, serve);
                }
                Err(Errno::AGAIN) => break,
                // One who has given up, or could not be accepted, is not there to be served.
                Err(_) => {}
            }
        }
    }
    while let Ok(permit) = permits.clone().try_acquire_owned()
        && let Ok((fd, peer)) = source.accept_at_once()
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
        if let Ok((fd, _)) = source.accept_at_once() {
            say_no_room(&fd);
        }
        self.held = File::open("/dev/null").ok();
    }
}
