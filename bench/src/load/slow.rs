//! Clients that mean no good: some never finish their request, some never read their answer.
//!
//! Each does one small thing a second. The server may end them; they come back, so often and no
//! more.

use super::open::Beside;
use anyhow::{Context, Result};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often each slow client acts.
const PERIOD: Duration = Duration::from_secs(1);
/// How often they come back, all together.
const RETURNS_MAX: usize = 20_000;
/// A small window: the answer stays in the server.
const RECEIVE_BUFFER_BYTES: usize = 4_096;

enum Habit {
    /// A head that never ends, a byte at a time.
    SlowHead { sent: usize },
    /// A long answer, read a little at a time.
    SlowRead,
}

struct Client {
    /// Absent while the server refuses it.
    socket: Option<OwnedFd>,
    habit: Habit,
}

/// The slow clients.
pub(crate) struct Slow {
    address: SocketAddr,
    long_path: String,
    clients: Vec<Client>,
    began: Instant,
    steps: usize,
    returns: usize,
}

impl Slow {
    /// Connects so many, every second one a slow reader of this path.
    pub(crate) fn connect(address: SocketAddr, count: usize, long_path: &str) -> Result<Self> {
        let mut slow = Self {
            address,
            long_path: long_path.to_owned(),
            clients: Vec::with_capacity(count),
            began: Instant::now(),
            steps: 0,
            returns: 0,
        };
        for number in 0..count {
            let habit = if number % 2 == 0 { Habit::SlowHead { sent: 0 } } else { Habit::SlowRead };
            let socket = slow.open(&habit).with_context(|| format!("slow client {number}"))?;
            slow.clients.push(Client { socket: Some(socket), habit });
            if number % 64 == 63 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        slow.began = Instant::now();
        Ok(slow)
    }

    /// Lets the server take in what they began with, before anything is measured.
    pub(crate) fn settle(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// How often the server ended one of them.
    pub(crate) fn returns(&self) -> usize {
        self.returns
    }

    fn open(&self, habit: &Habit) -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        if let Habit::SlowRead = habit {
            sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
        }
        match rustix::net::connect(&socket, &self.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error),
        }
        let first = match habit {
            Habit::SlowHead { .. } => "GET / HTTP/1.1\r\nHost: localhost\r\n".to_owned(),
            Habit::SlowRead => format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.long_path),
        };
        match rustix::net::send(&socket, first.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(_) | Err(Errno::AGAIN) => Ok(socket),
            Err(error) => Err(error),
        }
    }

    fn act(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let alive = client.socket.as_ref().is_some_and(|socket| client.habit.act(socket));
        if !alive && self.returns < RETURNS_MAX {
            self.returns += 1;
            let habit = match self.clients[number].habit {
                Habit::SlowHead { .. } => Habit::SlowHead { sent: 0 },
                Habit::SlowRead => Habit::SlowRead,
            };
            let socket = self.open(&habit).ok();
            self.clients[number] = Client { socket, habit };
        }
    }
}

impl Habit {
    /// Does one small thing; false when the server has ended it.
    fn act(&mut self, socket: &OwnedFd) -> bool {
        const FIELD: &[u8] = b"X-a: b\r\n";
        let mut little = [0; 512];
        match self {
            Self::SlowHead { sent } => {
                let byte = FIELD[*sent % FIELD.len()];
                *sent += 1;
                // Whatever it says, it says it because it has lost patience.
                let heard = rustix::net::recv(socket, &mut little[..], RecvFlags::empty());
                let spoke = rustix::net::send(socket, &[byte], SendFlags::NOSIGNAL);
                matches!(heard, Err(Errno::AGAIN)) && matches!(spoke, Ok(_) | Err(Errno::AGAIN))
            }
            Self::SlowRead => match rustix::net::recv(socket, &mut little[..], RecvFlags::empty()) {
                Ok((_, count)) => count > 0,
                Err(error) => error == Errno::AGAIN,
            },
        }
    }
}

impl Beside for Slow {
    fn step(&mut self) -> Result<()> {
        let due = self.began.elapsed().as_secs_f64() / PERIOD.as_secs_f64() * self.clients.len() as f64;
        while self.steps < due as usize {
            self.act(self.steps % self.clients.len());
            self.steps += 1;
        }
        Ok(())
    }
}
