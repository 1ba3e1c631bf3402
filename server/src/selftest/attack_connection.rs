//! A connection of the attacking client: bytes with deadlines, and how the server ends it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use selvedge::tls::rustls::{ClientConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of one receive.
const PIECE_BYTES: usize = 64 * 1024;
/// Most bytes that are stored of what the server sends.
const RECEIVED_BYTES_MAX: usize = 16 << 20;

/// A connection.
#[derive(Debug)]
pub(super) struct AttackConnection {
    stream: AttackStream,
    /// What was received and not yet removed.
    pub(super) received: Vec<u8>,
    has_ended: bool,
}

#[derive(Debug)]
enum AttackStream {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// What a wait for bytes results in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveOutcome {
    Bytes,
    /// The server has closed or reset the connection.
    Ended,
    /// The deadline has passed.
    TimedOut,
}

/// How much of some bytes was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    All,
    /// The server reads no more, or has ended the connection.
    Part,
}

impl AttackConnection {
    pub(super) fn plain(socket: TcpStream) -> Self {
        Self { stream: AttackStream::Plain(socket), received: Vec::new(), has_ended: false }
    }

    pub(super) fn encrypted(stream: StreamOwned<ClientConnection, TcpStream>) -> Self {
        Self { stream: AttackStream::Encrypted(Box::new(stream)), received: Vec::new(), has_ended: false }
    }

    /// Returns the application protocol of the handshake.
    pub(super) fn protocol(&self) -> Option<&[u8]> {
        match &self.stream {
            AttackStream::Plain(_) => None,
            AttackStream::Encrypted(stream) => stream.conn.alpn_protocol(),
        }
    }

    fn socket(&self) -> &TcpStream {
        match &self.stream {
            AttackStream::Plain(socket) => socket,
            AttackStream::Encrypted(stream) => stream.get_ref(),
        }
    }

    /// Sends bytes. A server that has closed the connection is noticed by [`Self::receive`].
    pub(super) fn send(&mut self, bytes: &[u8]) -> SendOutcome {
        let sent = match &mut self.stream {
            AttackStream::Plain(socket) => socket.write_all(bytes),
            AttackStream::Encrypted(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        };
        if sent.is_ok() { SendOutcome::All } else { SendOutcome::Part }
    }

    /// Waits for bytes, and appends them to [`Self::received`].
    pub(super) fn receive(&mut self, deadline: Instant) -> ReceiveOutcome {
        if self.has_ended {
            return ReceiveOutcome::Ended;
        }
        let mut piece = [0; PIECE_BYTES];
        loop {
            // A timeout of zero would mean none.
            let rest = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if self.socket().set_read_timeout(Some(rest)).is_err() {
                return self.end();
            }
            let read = match &mut self.stream {
                AttackStream::Plain(socket) => socket.read(&mut piece),
                AttackStream::Encrypted(stream) => stream.read(&mut piece),
            };
            match read {
                Ok(0) => return self.end(),
                Ok(count) => {
                    let room = RECEIVED_BYTES_MAX.saturating_sub(self.received.len());
                    self.received.extend_from_slice(&piece[..count.min(room)]);
                    return ReceiveOutcome::Bytes;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return ReceiveOutcome::TimedOut;
                }
                Err(_) => return self.end(),
            }
        }
    }

    /// Whether the server was seen to end the connection.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn end(&mut self) -> ReceiveOutcome {
        self.has_ended = true;
        ReceiveOutcome::Ended
    }

    /// Makes the buffers of the kernel small, and bounds the time of a send.
    pub(super) fn with_small_buffers(self, send_timeout: Duration) -> io::Result<Self> {
        const BUFFER_BYTES: usize = 16 * 1024;
        set_socket_recv_buffer_size(self.socket(), BUFFER_BYTES)?;
        set_socket_send_buffer_size(self.socket(), BUFFER_BYTES)?;
        self.socket().set_write_timeout(Some(send_timeout))?;
        Ok(self)
    }

    /// Waits until the server ends the connection, without reading. Returns whether it has.
    pub(super) fn wait_for_end_unread(&mut self, deadline: Instant) -> bool {
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let Ok(timeout) = Timespec::try_from(rest) else { return false };
            let mut watched = [PollFd::new(self.socket(), PollFlags::RDHUP)];
            match poll(&mut watched, Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => {
                    self.end();
                    return true;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Discards what was received, and what arrives until the server ends the connection. Returns whether it does.
    pub(super) fn discard_until_end(&mut self, deadline: Instant) -> bool {
        while Instant::now() < deadline {
            self.received.clear();
            match self.receive(deadline) {
                ReceiveOutcome::Bytes => {}
                ReceiveOutcome::Ended => return true,
                ReceiveOutcome::TimedOut => return false,
            }
        }
        false
    }
}
