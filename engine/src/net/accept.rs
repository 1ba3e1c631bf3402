//! Accepting: a permit for each connection, the idlest one's place when there is none,
//! and a pause when the system is out of descriptors.

use crate::limits::{ACCEPT_PAUSE, ACCEPTS_PER_TURN, SWEEP_INTERVAL};
use crate::net::clock::Tick;
use crate::net::queue::Queue;
use crate::net::worker::{Event, Worker};
use crate::service::UNIX_PEER;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::unix::AsyncFd;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::timeout;

/// A connection that was accepted and is not yet served.
pub(crate) struct Accepted {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: SocketAddr,
    pub(crate) permit: OwnedSemaphorePermit,
}

impl Accepted {
    /// Tells the client that there is no room for it.
    pub(crate) fn refuse(self) {
        say_no_room(&self.fd);
    }
}

/// What is said to a client that is accepted only to be told that there is no room.
const NO_ROOM: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nserver: selvedge\r\nretry-after: 1\r\ncontent-length: 0\r\n\
                         connection: close\r\n\r\n";

/// Accepts until the task is ended. `spare` is closed when descriptors run out, so that
/// one more client can be accepted and told so.
pub(crate) async fn accept(
    listener: Rc<AsyncFd<OwnedFd>>,
    mut queue: Option<Queue>,
    worker: Rc<Worker>,
    permits: Arc<Semaphore>,
    serve: Rc<dyn Fn(Accepted)>,
) {
    let mut spare = Spare::new();
    let mut in_a_row = 0;
    loop {
        let Ok(mut ready) = listener.readable().await else { return };
        let permit = match permits.clone().try_acquire_owned() {
            Ok(permit) => permit,
            // Readiness may be left from the last accept. Nobody loses a place to nobody.
            Err(_) if !is_waited_for(&listener) => {
                ready.clear_ready();
                note(&mut queue, Queue::was_empty, &listener, &worker);
                continue;
            }
            Err(_) => match permit(&worker, &permits).await {
                Some(permit) => permit,
                None => return,
            },
        };
        match accept_one(&listener) {
            Ok((fd, peer)) => {
                if spare.close_count() > 0 {
                    spare.reset();
                    worker.event(Event::AcceptRecovered);
                }
                note(&mut queue, Queue::accepted, &listener, &worker);
                worker.admit(Accepted { fd, peer, permit }, &*serve);
            }
            Err(Errno::AGAIN) => {
                ready.clear_ready();
                note(&mut queue, Queue::was_empty, &listener, &worker);
                in_a_row = 0;
                continue;
            }
            // The client gave up before it was accepted, or the network did.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                if spare.close_count() == 0 {
                    worker.event(Event::AcceptFailed(error.into()));
                }
                spare.refuse_one(&listener);
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

/// Notes what the queue was found like, and has as many wait from then on as it says.
fn note(
    queue: &mut Option<Queue>,
    found: fn(&mut Queue, Tick) -> Option<i32>,
    listener: &AsyncFd<OwnedFd>,
    worker: &Worker,
) {
    if let Some(room) = queue.as_mut().and_then(|queue| found(queue, worker.clock.tick())) {
        set_room(listener, room);
    }
}

/// Has so many wait at the most.
pub(super) fn set_room(listener: &AsyncFd<OwnedFd>, room: i32) {
    // It listens already, so nothing can be wrong with that.
    let _ = rustix::net::listen(listener.get_ref(), room);
}

/// Accepts what had connected before the listener closes, so that nobody is reset who was
/// already in the queue.
pub(crate) fn accept_rest(
    listener: &AsyncFd<OwnedFd>,
    worker: &Worker,
    permits: &Arc<Semaphore>,
    serve: &dyn Fn(Accepted),
) {
    while let Ok(permit) = permits.clone().try_acquire_owned()
        && let Ok((fd, peer)) = accept_one(listener)
    {
        worker.admit(Accepted { fd, peer, permit }, serve);
    }
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

/// Whether somebody waits to be accepted.
fn is_waited_for(listener: &AsyncFd<OwnedFd>) -> bool {
    let mut listeners = [PollFd::new(listener.get_ref(), PollFlags::IN)];
    retry_on_intr(|| rustix::event::poll(&mut listeners, Some(&Timespec::default()))) != Ok(0)
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
    fn refuse_one(&mut self, listener: &AsyncFd<OwnedFd>) {
        self.closed = self.closed.saturating_add(1);
        drop(self.held.take());
        if let Ok((fd, _)) = accept_one(listener) {
            say_no_room(&fd);
        }
        self.held = File::open("/dev/null").ok();
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
    fn a_queue_is_shortened_while_it_is_never_empty() {
        let Ok(runtime) = crate::net::worker::runtime() else { panic!("a runtime") };
        runtime.block_on(async {
            tokio::time::pause();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let listener = Rc::new(sys::watch(listener.into()).unwrap());
            let room = || sys::queue_room(listener.get_ref().as_fd()).unwrap();
            // The system may have a bound below.
            set_room(&listener, BACKLOG);
            let all = room();

            let worker = Rc::new(Worker::alone(&Limits::default()));
            let (served, permits) = (Rc::new(Cell::new(0)), Arc::new(Semaphore::new(1024)));
            let count = served.clone();
            let serve = Rc::new(move |_| count.set(count.get() + 1));
            let queue = Queue::new(worker.clock.tick());
            let mut accepting = pin!(accept(listener.clone(), Some(queue), worker.clone(), permits, serve));
            let clients: Vec<TcpStream> =
                (0..3 * ACCEPTS_PER_TURN + 1).map(|_| TcpStream::connect(address).unwrap()).collect();
            for turn in 1..=3 {
                while served.get() < turn * ACCEPTS_PER_TURN {
                    poll_fn(|cx| Poll::Ready(accepting.as_mut().poll(cx).is_pending())).await;
                    yield_now().await;
                }
                let expected = if turn < 3 { all } else { all.min(BACKLOG_MIN as u32) };
                assert_eq!(room(), expected, "after {} of {}", served.get(), clients.len());
                advance(SWEEP_INTERVAL).await;
                worker.clock.read();
            }
            while served.get() < clients.len() {
                poll_fn(|cx| Poll::Ready(accepting.as_mut().poll(cx).is_pending())).await;
                yield_now().await;
            }
            assert_eq!(room(), all, "nobody waits any more");
        });
    }
}
