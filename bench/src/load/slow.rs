//! Slow clients, as in an attack: some never finish a request head, some hardly read the response.
//!
//! Each client sends or reads a little once per second. If the server closes its connection, it reconnects. The
//! total number of reconnects is bounded.

use super::open::BackgroundLoad;
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The interval between two steps of a client.
const PERIOD: Duration = Duration::from_secs(1);
/// The maximum number of reconnects of all clients together.
const RECONNECTS_MAX: usize = 20_000;
/// A small receive window, so that the response stays in the server.
const RECEIVE_BUFFER_BYTES: usize = 4_096;

enum SlowBehaviour {
    /// Sends a head that never ends, byte by byte.
    SlowHead { sent: usize },
    /// Requests long content and reads a little at a time.
    SlowRead,
}

struct Client {
    /// `None` while the server refuses the connection.
    socket: Option<OwnedFd>,
    behaviour: SlowBehaviour,
}

/// The slow clients.
pub(crate) struct SlowClients {
    address: SocketAddr,
    long_path: String,
    clients: Vec<Client>,
    began: Instant,
    steps: usize,
    reconnects: usize,
}

impl SlowClients {
    /// Connects `count` clients. Every second one is a slow reader of this path.
    pub(crate) fn connect(address: SocketAddr, count: usize, long_path: &str) -> Result<Self> {
        let mut slow = Self {
            address,
            long_path: long_path.to_owned(),
            clients: Vec::with_capacity(count),
            began: Instant::now(),
            steps: 0,
            reconnects: 0,
        };
        for number in 0..count {
            let behaviour = if number % 2 == 0 { SlowBehaviour::SlowHead { sent: 0 } } else { SlowBehaviour::SlowRead };
            let socket = slow.open(&behaviour).with_context(|| format!("cannot connect slow client {number}"))?;
            slow.clients.push(Client { socket: Some(socket), behaviour });
            if number % 64 == 63 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        slow.began = Instant::now();
        Ok(slow)
    }

    /// Runs for some time before the measurement, so that the server receives the first bytes of all clients.
    pub(crate) fn settle(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the number of connections that the server closed.
    pub(crate) fn reconnects(&self) -> usize {
        self.reconnects
    }

    fn open(&self, behaviour: &SlowBehaviour) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if let SlowBehaviour::SlowRead = behaviour {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        }
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let first = match behaviour {
            SlowBehaviour::SlowHead { .. } => "GET / HTTP/1.1\r\nHost: localhost\r\n".to_owned(),
            SlowBehaviour::SlowRead => format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.long_path),
        };
        match rustix::net::send(&socket, first.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    fn act(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let alive = client.socket.as_ref().is_some_and(|socket| client.behaviour.act(socket));
        if !alive && self.reconnects < RECONNECTS_MAX {
            self.reconnects += 1;
            let behaviour = match self.clients[number].behaviour {
                SlowBehaviour::SlowHead { .. } => SlowBehaviour::SlowHead { sent: 0 },
                SlowBehaviour::SlowRead => SlowBehaviour::SlowRead,
            };
            let socket = self.open(&behaviour).ok();
            self.clients[number] = Client { socket, behaviour };
        }
    }
}

impl SlowBehaviour {
    /// Sends or reads a little. Returns false if the server has closed the connection.
    fn act(&mut self, socket: &OwnedFd) -> bool {
        const FIELD: &[u8] = b"X-a: b\r\n";
        let mut little = [0; 512];
        match self {
            Self::SlowHead { sent } => {
                let byte = FIELD[*sent % FIELD.len()];
                *sent += 1;
                // Any response means that the server no longer waits for the head.
                let receive_result = rustix::net::recv(socket, &mut little[..], RecvFlags::empty());
                let send_result = rustix::net::send(socket, &[byte], SendFlags::NOSIGNAL);
                matches!(receive_result, Err(Errno::AGAIN)) && matches!(send_result, Ok(_) | Err(Errno::AGAIN))
            }
            Self::SlowRead => match rustix::net::recv(socket, &mut little[..], RecvFlags::empty()) {
                Ok((_, count)) => count > 0,
                Err(error) => error == Errno::AGAIN,
            },
        }
    }
}

impl BackgroundLoad for SlowClients {
    fn step(&mut self) -> Result<()> {
        let due = self.began.elapsed().as_secs_f64() / PERIOD.as_secs_f64() * self.clients.len() as f64;
        while self.steps < due as usize {
            self.act(self.steps % self.clients.len());
            self.steps += 1;
        }
        Ok(())
    }
}
