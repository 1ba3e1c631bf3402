//! The sockets of the load: many connections, one epoll set, one thread.
//!
//! Invariant: as cheap as a client can be, so that the server is what gets measured. One send and
//! one receive for a request, no allocation, and a long body is counted in the kernel, not copied.
//! Never decides what to ask or when; see `closed` and `open` for that.

use super::response::{End, Progress, Reader};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Large enough that a 64 KiB response is one receive.
const RECEIVE_BYTES: usize = 256 * 1024;
/// So many events for one wait, as in most servers.
const EVENTS_MAX: usize = 512;

/// What a connection had to say.
pub(crate) enum Outcome {
    /// Its responses are not complete.
    Pending,
    /// All responses it waited for are here.
    Answered(Answered),
    /// It is of no more use.
    Failed,
}

/// A request, or a batch of pipelined ones, that has its answer.
#[derive(Clone, Copy)]
pub(crate) struct Answered {
    /// When it was begun, or meant to be.
    pub(crate) began: u64,
    /// How many requests.
    pub(crate) count: usize,
    /// How many of them were answered with something else than success.
    pub(crate) refused: usize,
    /// The server ends the connection.
    pub(crate) last: bool,
}

struct Connection {
    socket: OwnedFd,
    reader: Reader,
    /// What the kernel has not taken yet.
    unsent: Option<(Rc<[u8]>, usize)>,
    awaited: usize,
    answered: Answered,
}

/// The connections to one server.
pub(crate) struct Clients {
    address: SocketAddr,
    epoll: OwnedFd,
    events: Vec<Event>,
    buffer: Vec<u8>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    origin: Instant,
}

impl Clients {
    pub(crate) fn new(address: SocketAddr) -> rustix::io::Result<Self> {
        Ok(Self {
            address,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; RECEIVE_BYTES],
            connections: Vec::new(),
            free: Vec::new(),
            origin: Instant::now(),
        })
    }

    /// Nanoseconds since the clients were made.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).expect("a run is shorter than centuries")
    }

    /// How many connections are open.
    pub(crate) fn open_count(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Begins a connection; it can be written to at once, over loopback it stands already.
    pub(crate) fn connect(&mut self) -> rustix::io::Result<usize> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        epoll::add(&self.epoll, &socket, EventData::new_u64(id as u64), EventFlags::IN)?;
        let answered = Answered { began: 0, count: 0, refused: 0, last: false };
        self.connections[id] =
            Some(Connection { socket, reader: Reader::default(), unsent: None, awaited: 0, answered });
        Ok(id)
    }

    /// Ends a connection; `Reset` leaves nothing behind in the kernel's tables.
    pub(crate) fn close(&mut self, id: usize, how: Close) {
        if let Some(connection) = self.connections[id].take() {
            if matches!(how, Close::Reset) {
                // Without it, the connection ends in the ordinary way: slower, not wrong.
                let _ = sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
            }
            self.free.push(id);
        }
    }

    /// Sends a request that will have so many responses, begun at `began`.
    pub(crate) fn ask(&mut self, id: usize, request: &Rc<[u8]>, responses: usize, began: u64) -> Outcome {
        let Some(connection) = &mut self.connections[id] else { return Outcome::Failed };
        connection.awaited = responses;
        connection.answered = Answered { began, count: responses, refused: 0, last: false };
        match rustix::net::send(&connection.socket, request, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == request.len() => Outcome::Pending,
            Ok(sent) => self.send_later(id, request.clone(), sent),
            Err(Errno::AGAIN) => self.send_later(id, request.clone(), 0),
            Err(_) => Outcome::Failed,
        }
    }

    fn send_later(&mut self, id: usize, request: Rc<[u8]>, sent: usize) -> Outcome {
        let Some(connection) = &mut self.connections[id] else { return Outcome::Failed };
        connection.unsent = Some((request, sent));
        let flags = EventFlags::IN | EventFlags::OUT;
        match epoll::modify(&self.epoll, &connection.socket, EventData::new_u64(id as u64), flags) {
            Ok(()) => Outcome::Pending,
            Err(_) => Outcome::Failed,
        }
    }

    /// Waits until connections have something to say, and says how many.
    pub(crate) fn wait(&mut self, longest: Duration) -> rustix::io::Result<usize> {
        self.events.clear();
        let timeout = Timespec::try_from(longest).expect("a wait is short");
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(error) => Err(error),
        }
    }

    /// The connection that the event with this number is about.
    pub(crate) fn ready(&self, number: usize) -> usize {
        usize::try_from(self.events[number].data.u64()).expect("an index that this set was given")
    }

    /// Reads what a connection has.
    pub(crate) fn receive(&mut self, id: usize) -> Outcome {
        let Some(connection) = &mut self.connections[id] else { return Outcome::Pending };
        if let Some((request, sent)) = connection.unsent.take() {
            match rustix::net::send(&connection.socket, &request[sent..], SendFlags::NOSIGNAL) {
                Ok(more) if sent + more == request.len() => {
                    let data = EventData::new_u64(id as u64);
                    if epoll::modify(&self.epoll, &connection.socket, data, EventFlags::IN).is_err() {
                        return Outcome::Failed;
                    }
                }
                Ok(more) => connection.unsent = Some((request, sent + more)),
                Err(Errno::AGAIN) => connection.unsent = Some((request, sent)),
                Err(_) => return Outcome::Failed,
            }
        }
        let long = connection.reader.body_left() >= RECEIVE_BYTES as u64;
        let flags = if long { RecvFlags::TRUNC } else { RecvFlags::empty() };
        match rustix::net::recv(&connection.socket, &mut self.buffer[..], flags) {
            Ok((_, 0)) => Outcome::Failed,
            Ok((_, count)) if long => match connection.reader.skip(count as u64) {
                Progress::More => Outcome::Pending,
                Progress::Ended { end, .. } => connection.ended(end),
                Progress::Malformed => Outcome::Failed,
            },
            Ok((_, count)) => connection.read(&self.buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => Outcome::Pending,
            Err(_) => Outcome::Failed,
        }
    }
}

impl Connection {
    fn read(&mut self, mut bytes: &[u8]) -> Outcome {
        loop {
            if self.awaited == 0 {
                return Outcome::Failed; // bytes that nobody asked for
            }
            match self.reader.feed(bytes) {
                Progress::More => return Outcome::Pending,
                Progress::Malformed => return Outcome::Failed,
                Progress::Ended { consumed, end } => {
                    if let Outcome::Answered(answered) = self.ended(end) {
                        return Outcome::Answered(answered);
                    }
                    bytes = &bytes[consumed..];
                    if bytes.is_empty() {
                        return Outcome::Pending;
                    }
                }
            }
        }
    }

    fn ended(&mut self, end: End) -> Outcome {
        self.awaited -= 1;
        self.answered.refused += usize::from(!(200..300).contains(&end.status));
        self.answered.last |= end.last;
        if self.awaited > 0 {
            return Outcome::Pending;
        }
        Outcome::Answered(self.answered)
    }
}

/// How a connection is ended.
#[derive(Clone, Copy)]
pub(crate) enum Close {
    /// With a FIN.
    Politely,
    /// With a RST.
    Reset,
}
