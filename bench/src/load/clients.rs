//! The sockets of the load generator: many connections, one epoll set, one thread.
//!
//! Invariant: the client is as cheap as possible, so that the server is measured and not the client. A request
//! takes one send and one receive and no allocation; long content is counted in the kernel, not copied.
//! Never decides what to send or when; see `closed` and `open` for that.

use super::mix::RequestBatch;
use super::response::{ParseProgress, ResponseEnd, ResponseReader};
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

/// Large enough that one receive takes a 64 KiB response.
const RECEIVE_BYTES: usize = 256 * 1024;
/// The bytes of long content that one readiness event sends, so that all connections make progress.
const SEND_BYTES_PER_EVENT_MAX: usize = 1024 * 1024;
/// The number of events that one wait returns, as in most servers.
const EVENTS_MAX: usize = 512;

/// The outcome of sending or receiving on a connection.
pub(crate) enum ConnectionOutcome {
    /// The responses are not complete.
    Pending,
    /// All expected responses are complete.
    Completed(Completed),
    /// The connection failed and must be closed.
    Failed,
}

/// A request, or a batch of pipelined requests, whose responses are complete.
#[derive(Clone, Copy)]
pub(crate) struct Completed {
    /// When the request was sent or due, in nanoseconds since the clients were created.
    pub(crate) started_at: u64,
    /// The number of requests.
    pub(crate) requests: usize,
    /// The number of responses without a 2xx status or with content of the wrong length.
    pub(crate) failed: usize,
    /// Whether the server closes the connection.
    pub(crate) closes: bool,
    /// When the last bytes were received, if receive timestamps are on.
    pub(crate) received_at: u64,
}

/// The source of the time at which a response was received.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveTimestamps {
    /// None. The caller reads the clock if it needs the time.
    Off,
    /// When the kernel received the last bytes, which is before this thread reads them. Costs a system call for each
    /// connection, and a little for each response. For content that is counted in the kernel: when it was counted.
    Kernel,
}

struct ClientConnection {
    socket: OwnedFd,
    reader: ResponseReader,
    /// The requests that are not completely sent, and the number of bytes sent.
    unsent: Option<(Rc<RequestBatch>, u64)>,
    /// The expected length of the content of each response.
    response_bytes: Option<u64>,
    outstanding: usize,
    completed: Completed,
}

/// The connections to one server.
pub(crate) struct Clients {
    address: SocketAddr,
    epoll: OwnedFd,
    events: Vec<Event>,
    buffer: Vec<u8>,
    connections: Vec<Option<ClientConnection>>,
    free: Vec<usize>,
    origin: Instant,
    /// An unused socket with receive timestamps, if they are on. The kernel stamps packets while a socket wants it, and
    /// takes 0.1 ms to start or stop. This socket keeps it on for a client that opens a new connection for each request.
    timestamp_socket: Option<OwnedFd>,
    /// The buffer for control messages (timestamps).
    control: Vec<u8>,
}

impl Clients {
    pub(crate) fn new(address: SocketAddr, arrivals: ReceiveTimestamps) -> rustix::io::Result<Self> {
        Ok(Self {
            address,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS_MAX),
            buffer: vec![0; RECEIVE_BYTES],
            connections: Vec::new(),
            free: Vec::new(),
            origin: Instant::now(),
            timestamp_socket: match arrivals {
                ReceiveTimestamps::Off => None,
                ReceiveTimestamps::Kernel => Some(enable_receive_timestamps(socket()?)?),
            },
            control: nix::cmsg_space!(nix::sys::time::TimeSpec),
        })
    }

    /// Returns the nanoseconds since the clients were created.
    pub(crate) fn now(&self) -> u64 {
        elapsed_since(self.origin)
    }

    /// Returns the number of open connections.
    pub(crate) fn open_count(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Opens a connection. Over loopback it is established at once and can be written to.
    pub(crate) fn connect(&mut self) -> rustix::io::Result<usize> {
        let socket = if self.timestamp_socket.is_some() { enable_receive_timestamps(socket()?)? } else { socket()? };
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        epoll::add(&self.epoll, &socket, EventData::new_u64(id as u64), EventFlags::IN)?;
        let completed = Completed { started_at: 0, requests: 0, failed: 0, closes: false, received_at: 0 };
        let (reader, unsent, response_bytes) = (ResponseReader::default(), None, None);
        self.connections[id] =
            Some(ClientConnection { socket, reader, unsent, response_bytes, outstanding: 0, completed });
        Ok(id)
    }

    /// Closes a connection. `Reset` leaves no TIME_WAIT entry in the kernel.
    pub(crate) fn close(&mut self, id: usize, how: Close) {
        if let Some(connection) = self.connections[id].take() {
            if matches!(how, Close::Reset) {
                // If this fails, the connection is closed with a FIN: slower, but correct.
                let _ = sockopt::set_socket_linger(&connection.socket, Some(Duration::ZERO));
            }
            self.free.push(id);
        }
    }

    /// Sends requests with this number of responses. Their time counts from `started_at`.
    pub(crate) fn send_requests(
        &mut self,
        id: usize,
        message: &Rc<RequestBatch>,
        responses: usize,
        started_at: u64,
    ) -> ConnectionOutcome {
        let Some(connection) = &mut self.connections[id] else { return ConnectionOutcome::Failed };
        connection.outstanding = responses;
        connection.completed = Completed { started_at, requests: responses, failed: 0, closes: false, received_at: 0 };
        connection.response_bytes = message.response_bytes;
        match connection.send(message, 0) {
            Ok(sent) if sent == message.length() => ConnectionOutcome::Pending,
            Ok(sent) => self.send_later(id, message.clone(), sent),
            Err(_) => ConnectionOutcome::Failed,
        }
    }

    fn send_later(&mut self, id: usize, message: Rc<RequestBatch>, sent: u64) -> ConnectionOutcome {
        let Some(connection) = &mut self.connections[id] else { return ConnectionOutcome::Failed };
        connection.unsent = Some((message, sent));
        let flags = EventFlags::IN | EventFlags::OUT;
        match epoll::modify(&self.epoll, &connection.socket, EventData::new_u64(id as u64), flags) {
            Ok(()) => ConnectionOutcome::Pending,
            Err(_) => ConnectionOutcome::Failed,
        }
    }

    /// Waits until connections are ready, and returns their number.
    pub(crate) fn wait(&mut self, longest: Duration) -> rustix::io::Result<usize> {
        self.events.clear();
        let timeout = Timespec::try_from(longest).expect("the duration fits a timespec");
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(error) => Err(error),
        }
    }

    /// Returns the connection of the event with this number.
    pub(crate) fn ready_connection(&self, number: usize) -> usize {
        usize::try_from(self.events[number].data.u64()).expect("the event has an index of `connections`")
    }

    /// Receives available bytes of a connection, after sending the rest of its requests.
    pub(crate) fn receive(&mut self, id: usize) -> ConnectionOutcome {
        let Some(connection) = &mut self.connections[id] else { return ConnectionOutcome::Pending };
        if let Some((message, before)) = connection.unsent.take() {
            match connection.send(&message, before) {
                Ok(sent) if sent == message.length() => {
                    let data = EventData::new_u64(id as u64);
                    if epoll::modify(&self.epoll, &connection.socket, data, EventFlags::IN).is_err() {
                        return ConnectionOutcome::Failed;
                    }
                }
                Ok(sent) => connection.unsent = Some((message, sent)),
                Err(_) => return ConnectionOutcome::Failed,
            }
        }
        let long = connection.reader.body_remaining() >= RECEIVE_BYTES as u64;
        if !long && self.timestamp_socket.is_some() {
            return match receive_with_timestamp(&connection.socket, self.origin, &mut self.buffer, &mut self.control) {
                Ok((0, _)) => ConnectionOutcome::Failed,
                Ok((count, received_at)) => {
                    connection.completed.received_at = received_at;
                    connection.read(&self.buffer[..count])
                }
                Err(Errno::AGAIN | Errno::INTR) => ConnectionOutcome::Pending,
                Err(_) => ConnectionOutcome::Failed,
            };
        }
        let flags = if long { RecvFlags::TRUNC } else { RecvFlags::empty() };
        match rustix::net::recv(&connection.socket, &mut self.buffer[..], flags) {
            Ok((_, 0)) => ConnectionOutcome::Failed,
            Ok((_, count)) if long => {
                connection.completed.received_at = elapsed_since(self.origin);
                match connection.reader.skip(count as u64) {
                    ParseProgress::More => ConnectionOutcome::Pending,
                    ParseProgress::Complete { end, .. } => connection.ended(end),
                    ParseProgress::Malformed => ConnectionOutcome::Failed,
                }
            }
            Ok((_, count)) => connection.read(&self.buffer[..count]),
            Err(Errno::AGAIN | Errno::INTR) => ConnectionOutcome::Pending,
            Err(_) => ConnectionOutcome::Failed,
        }
    }
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
}

/// Enables the kernel's receive timestamps.
fn enable_receive_timestamps(socket: OwnedFd) -> rustix::io::Result<OwnedFd> {
    setsockopt(&socket, ReceiveTimestampns, &true).map_err(from_nix)?;
    Ok(socket)
}

fn elapsed_since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).expect("a run is shorter than centuries")
}

fn from_nix(error: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(error as i32)
}

/// Receives bytes, and returns their number and when the kernel received the last of them.
fn receive_with_timestamp(
    socket: &OwnedFd,
    origin: Instant,
    buffer: &mut [u8],
    control: &mut [u8],
) -> rustix::io::Result<(usize, u64)> {
    let mut into = [IoSliceMut::new(buffer)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(control), MsgFlags::empty()).map_err(from_nix)?;
    // The timestamps use the real-time clock. It is read last, so that reading it does not make a response later.
    let (read, now) = (elapsed_since(origin), clock_gettime(ClockId::Realtime));
    let mut stamps = received.cmsgs().map_err(from_nix)?;
    let age = stamps.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(stamp) => {
            Some((now.tv_sec - stamp.tv_sec()) * 1_000_000_000 + now.tv_nsec - stamp.tv_nsec())
        }
        _ => None,
    });
    // The real-time clock may have been set in between.
    Ok((received.bytes, read.saturating_sub(u64::try_from(age.unwrap_or(0)).unwrap_or(0))))
}

impl ClientConnection {
    /// Sends the rest of the requests after `sent` bytes, and returns the new number of sent bytes.
    fn send(&self, message: &RequestBatch, mut sent: u64) -> rustix::io::Result<u64> {
        let head = message.bytes.len() as u64;
        if sent < head {
            let more = if message.upload.is_some() { SendFlags::MORE } else { SendFlags::empty() };
            let from = usize::try_from(sent).expect("`sent` is less than the length of the head");
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
            match rustix::fs::sendfile(
                &self.socket,
                &upload.file,
                Some(&mut offset),
                count.min(SEND_BYTES_PER_EVENT_MAX),
            ) {
                Ok(count) => sent += count as u64,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn read(&mut self, mut bytes: &[u8]) -> ConnectionOutcome {
        loop {
            if self.outstanding == 0 {
                return ConnectionOutcome::Failed; // bytes without a request
            }
            match self.reader.feed(bytes) {
                ParseProgress::More => return ConnectionOutcome::Pending,
                ParseProgress::Malformed => return ConnectionOutcome::Failed,
                ParseProgress::Complete { consumed, end } => {
                    if let ConnectionOutcome::Completed(completed) = self.ended(end) {
                        return ConnectionOutcome::Completed(completed);
                    }
                    bytes = &bytes[consumed..];
                    if bytes.is_empty() {
                        return ConnectionOutcome::Pending;
                    }
                }
            }
        }
    }

    fn ended(&mut self, end: ResponseEnd) -> ConnectionOutcome {
        self.outstanding -= 1;
        let as_expected =
            (200..300).contains(&end.status) && self.response_bytes.is_none_or(|bytes| bytes == end.length);
        self.completed.failed += usize::from(!as_expected);
        self.completed.closes |= end.closes;
        if self.outstanding > 0 {
            return ConnectionOutcome::Pending;
        }
        ConnectionOutcome::Completed(self.completed)
    }
}

/// How to close a connection.
#[derive(Clone, Copy)]
pub(crate) enum Close {
    /// With a FIN.
    Fin,
    /// With a RST.
    Reset,
}

#[cfg(test)]
mod tests {
    use super::super::mix::{Mix, Persistence};
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    const BYTES: usize = 3 * SEND_BYTES_PER_EVENT_MAX + 7;

    /// Reads an upload and responds with its length followed by `more`.
    fn respond(stream: TcpStream, more: &str) {
        let mut reader = BufReader::new(stream);
        let (mut line, mut content) = (String::new(), vec![0; BYTES]);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        reader.read_exact(&mut content).unwrap();
        assert!(content.iter().all(|byte| *byte == b'u'));
        let text = format!("{BYTES}{more}");
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        reader.get_mut().write_all(response.as_bytes()).unwrap();
    }

    fn completed(outcome: ConnectionOutcome) -> Completed {
        match outcome {
            ConnectionOutcome::Completed(completed) => completed,
            ConnectionOutcome::Pending | ConnectionOutcome::Failed => panic!("no response"),
        }
    }

    fn upload(more: &'static str) -> Completed {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Clients::new(listener.local_addr().unwrap(), ReceiveTimestamps::Off).unwrap();
        let mix = Mix::upload("/upload", BYTES).unwrap();
        let id = clients.connect().unwrap();
        let mut outcome = clients.send_requests(id, mix.message(0), 1, 0);
        let server = std::thread::spawn(move || respond(listener.accept().unwrap().0, more));
        while let ConnectionOutcome::Pending = outcome {
            for number in 0..clients.wait(Duration::from_secs(1)).unwrap() {
                outcome = clients.receive(clients.ready_connection(number));
            }
        }
        server.join().unwrap();
        completed(outcome)
    }

    #[test]
    fn long_content_is_sent_piecewise_and_the_response_length_is_checked() {
        assert_eq!(upload("").failed, 0);
        assert_eq!(upload(" and more").failed, 1);
    }

    #[test]
    fn a_response_is_timed_when_the_kernel_receives_it_not_when_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Clients::new(listener.local_addr().unwrap(), ReceiveTimestamps::Kernel).unwrap();
        let id = clients.connect().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        // The kernel starts to stamp packets with a delay. Before that, the timestamp is the time of the receive call.
        let is_stamped = (0..100_000).any(|_| {
            assert!(matches!(
                clients.send_requests(id, Mix::one("/", Persistence::KeepAlive).message(0), 1, 0),
                ConnectionOutcome::Pending
            ));
            assert!(server.read(&mut [0; 1_024]).unwrap() > 0);
            server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
            assert_eq!(clients.wait(Duration::from_secs(10)).unwrap(), 1);
            let ready_at = clients.now();
            completed(clients.receive(id)).received_at < ready_at
        });
        assert!(is_stamped);
    }
}
