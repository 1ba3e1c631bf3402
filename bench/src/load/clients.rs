//! The sockets of the load: many connections, one epoll set, one thread.
//!
//! Invariant: as cheap as a client can be, so that the server is what gets measured. One send and
//! one receive for a request, no allocation, and a long body is counted in the kernel, not copied.
//! Never decides what to ask or when; see `closed` and `open` for that.

use super::mix::Message;
use super::response::{End, Progress, Reader};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use rustix::time::{ClockId, clock_gettime};
use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Large enough that a 64 KiB response is one receive.
const RECEIVE_BYTES: usize = 256 * 1024;
/// So much of long content is sent in a turn, so that all connections have theirs.
const TURN_BYTES: usize = 1024 * 1024;
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
    /// How many of them were answered with something else than success, or with content of the wrong length.
    pub(crate) refused: usize,
    /// The server ends the connection.
    pub(crate) last: bool,
    /// When its last bytes came, where arrivals are asked for.
    pub(crate) arrived: u64,
}

/// Which time of an answer is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// None: whoever needs one looks at the clock.
    Unknown,
    /// When the kernel had its last bytes, which is before this thread comes to read them. Costs a system call for
    /// each connection, and a little for each answer. (Of content that is counted in the kernel: when it was counted.)
    Kernel,
}

struct Connection {
    socket: OwnedFd,
    reader: Reader,
    /// What the kernel has not taken yet, and how much of it it has.
    unsent: Option<(Rc<Message>, u64)>,
    /// How long the content of each answer has to be.
    answer_bytes: Option<u64>,
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
    /// A socket that has the kernel stamp all the time, where arrivals are asked for. It stamps while somebody wants it
    /// to, and it takes a tenth of a millisecond to begin or to end with that: what the only client of a server that
    /// asks over a new connection each time would do for each of them.
    stamping: Option<OwnedFd>,
    /// Room for what the kernel says beside the bytes.
    control: Vec<u8>,
}

impl Clients {
    pub(crate) fn new(address: SocketAddr, arrivals: Arrivals) -> rustix::io::Result<Self> {
        Ok(Self {
            address,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; RECEIVE_BYTES],
            connections: Vec::new(),
            free: Vec::new(),
            origin: Instant::now(),
            stamping: match arrivals {
                Arrivals::Unknown => None,
                Arrivals::Kernel => Some(stamped(socket()?)?),
            },
            control: nix::cmsg_space!(nix::sys::time::TimeSpec),
        })
    }

    /// Nanoseconds since the clients were made.
    pub(crate) fn now(&self) -> u64 {
        elapsed_since(self.origin)
    }

    /// How many connections are open.
    pub(crate) fn open_count(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Begins a connection; it can be written to at once, over loopback it stands already.
    pub(crate) fn connect(&mut self) -> rustix::io::Result<usize> {
        let socket = if self.stamping.is_some() { stamped(socket()?)? } else { socket()? };
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        epoll::add(&self.epoll, &socket, EventData::new_u64(id as u64), EventFlags::IN)?;
        let answered = Answered { began: 0, count: 0, refused: 0, last: false, arrived: 0 };
        let (reader, unsent, answer_bytes) = (Reader::default(), None, None);
        self.connections[id] = Some(Connection { socket, reader, unsent, answer_bytes, awaited: 0, answered });
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

    /// Sends what will have so many responses, begun at `began`.
    pub(crate) fn ask(&mut self, id: usize, message: &Rc<Message>, responses: usize, began: u64) -> Outcome {
        let Some(connection) = &mut self.connections[id] else { return Outcome::Failed };
        connection.awaited = responses;
        connection.answered = Answered { began, count: responses, refused: 0, last: false, arrived: 0 };
        connection.answer_bytes = message.answer_bytes;
        match connection.send(message, 0) {
            Ok(sent) if sent == message.length() => Outcome::Pending,
            Ok(sent) => self.send_later(id, message.clone(), sent),
            Err(_) => Outcome::Failed,
        }
    }

    fn send_later(&mut self, id: usize, message: Rc<Message>, sent: u64) -> Outcome {
        let Some(connection) = &mut self.connections[id] else { return Outcome::Failed };
        connection.unsent = Some((message, sent));
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
        if let Some((message, before)) = connection.unsent.take() {
            match connection.send(&message, before) {
                Ok(sent) if sent == message.length() => {
                    let data = EventData::new_u64(id as u64);
                    if epoll::modify(&self.epoll, &connection.socket, data, EventFlags::IN).is_err() {
                        return Outcome::Failed;
                    }
                }
                Ok(sent) => connection.unsent = Some((message, sent)),
                Err(_) => return Outcome::Failed,
            }
        }
        let long = connection.reader.body_left() >= RECEIVE_BYTES as u64;
        if !long && self.stamping.is_some() {
            return match receive_stamped(&connection.socket, self.origin, &mut self.buffer, &mut self.control) {
                Ok((0, _)) => Outcome::Failed,
                Ok((count, arrived)) => {
                    connection.answered.arrived = arrived;
                    connection.read(&self.buffer[..count])
                }
                Err(Errno::AGAIN | Errno::INTR) => Outcome::Pending,
                Err(_) => Outcome::Failed,
            };
        }
        let flags = if long { RecvFlags::TRUNC } else { RecvFlags::empty() };
        match rustix::net::recv(&connection.socket, &mut self.buffer[..], flags) {
            Ok((_, 0)) => Outcome::Failed,
            Ok((_, count)) if long => {
                connection.answered.arrived = elapsed_since(self.origin);
                match connection.reader.skip(count as u64) {
                    Progress::More => Outcome::Pending,
                    Progress::Ended { end, .. } => connection.ended(end),
                    Progress::Malformed => Outcome::Failed,
                }
            }
            Ok((_, count)) => connection.read(&self.buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => Outcome::Pending,
            Err(_) => Outcome::Failed,
        }
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
}

/// Has the kernel say when it had what is read.
fn stamped(socket: OwnedFd) -> rustix::io::Result<OwnedFd> {
    setsockopt(&socket, ReceiveTimestampns, &true).map_err(from_nix)?;
    Ok(socket)
}

fn elapsed_since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).expect("a run is shorter than centuries")
}

fn from_nix(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

/// Reads, and says when the kernel had the last of what was read.
fn receive_stamped(
    socket: &OwnedFd,
    origin: Instant,
    buffer: &mut [u8],
    control: &mut [u8],
) -> rustix::io::Result<(usize, u64)> {
    let mut into = [IoSliceMut::new(buffer)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(control), MsgFlags::empty()).map_err(from_nix)?;
    // The stamps are of the clock of the day, which is looked at last: an answer is not made later by looking.
    let (read, now) = (elapsed_since(origin), clock_gettime(ClockId::Realtime));
    let mut stamps = received.cmsgs().map_err(from_nix)?;
    let age = stamps.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(came) => {
            Some((now.tv_sec - came.tv_sec()) * 1_000_000_000 + now.tv_nsec - came.tv_nsec())
        }
        _ => None,
    });
    // That clock may have been set meanwhile.
    Ok((received.bytes, read.saturating_sub(u64::try_from(age.unwrap_or(0)).unwrap_or(0))))
}

impl Connection {
    /// Sends on, after so much of the message, and says how much of it the kernel has then.
    fn send(&self, message: &Message, mut sent: u64) -> rustix::io::Result<u64> {
        let head = message.bytes.len() as u64;
        if sent < head {
            let more = if message.upload.is_some() { SendFlags::MORE } else { SendFlags::empty() };
            let from = usize::try_from(sent).expect("within a head");
            match rustix::net::send(&self.socket, &message.bytes[from..], SendFlags::NOSIGNAL | more) {
                Ok(count) => sent += count as u64,
                Err(Errno::AGAIN) => return Ok(sent),
                Err(error) => return Err(error),
            }
        }
        if let Some(upload) = &message.upload
            && sent >= head
        {
            let mut offset = sent - head;
            let count = usize::try_from(upload.bytes - offset).expect("an upload fits into memory");
            match rustix::fs::sendfile(&self.socket, &upload.file, Some(&mut offset), count.min(TURN_BYTES)) {
                Ok(count) => sent += count as u64,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

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
        let as_expected = (200..300).contains(&end.status) && self.answer_bytes.is_none_or(|bytes| bytes == end.length);
        self.answered.refused += usize::from(!as_expected);
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

#[cfg(test)]
mod tests {
    use super::super::mix::{Afterwards, Mix};
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    const BYTES: usize = 3 * TURN_BYTES + 7;

    /// Reads an upload and answers with its length, and this behind it.
    fn answer(stream: TcpStream, more: &str) {
        let mut reader = BufReader::new(stream);
        let (mut line, mut content) = (String::new(), vec![0; BYTES]);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader.read_exact(&mut content).unwrap();
        assert!(content.iter().all(|byte| *byte == b'u'));
        let text = format!("{BYTES}{more}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        reader.get_mut().write_all(answer.as_bytes()).unwrap();
    }

    fn answered(outcome: Outcome) -> Answered {
        match outcome {
            Outcome::Answered(answered) => answered,
            Outcome::Pending | Outcome::Failed => panic!("no answer"),
        }
    }

    fn upload(more: &'static str) -> Answered {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Clients::new(listener.local_addr().unwrap(), Arrivals::Unknown).unwrap();
        let mix = Mix::upload("/upload", BYTES).unwrap();
        let id = clients.connect().unwrap();
        let mut outcome = clients.ask(id, mix.message(0), 1, 0);
        let server = std::thread::spawn(move || answer(listener.accept().unwrap().0, more));
        while let Outcome::Pending = outcome {
            for number in 0..clients.wait(Duration::from_secs(1)).unwrap() {
                outcome = clients.receive(clients.ready(number));
            }
        }
        server.join().unwrap();
        answered(outcome)
    }

    #[test]
    fn long_content_is_sent_in_turns_and_the_length_of_the_answer_counts() {
        assert_eq!(upload("").refused, 0);
        assert_eq!(upload(" and more").refused, 1);
    }

    #[test]
    fn an_answer_arrives_when_the_kernel_has_it_and_not_when_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Clients::new(listener.local_addr().unwrap(), Arrivals::Kernel).unwrap();
        let id = clients.connect().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        // The kernel begins to stamp some time after it was told to, and until then says when it was asked.
        let stamped = (0..100_000).any(|_| {
            assert!(matches!(clients.ask(id, Mix::one("/", Afterwards::KeepAlive).message(0), 1, 0), Outcome::Pending));
            assert!(server.read(&mut [0; 1_024]).unwrap() > 0);
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
            assert_eq!(clients.wait(Duration::from_secs(10)).unwrap(), 1);
            let there = clients.now();
            answered(clients.receive(id)).arrived < there
        });
        assert!(stamped);
    }
}
