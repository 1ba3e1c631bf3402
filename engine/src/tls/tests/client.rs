//! A client that sends bytes over TLS and reads until the connection ends.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

/// Longest wait for the server.
const WAIT_MAX: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With a closing message.
    Closed,
    /// Without one.
    Cut,
}

/// A TLS connection of a client.
pub(super) struct Client {
    pub(super) tls: ClientConnection,
    pub(super) socket: TcpStream,
    pub(super) received: Vec<u8>,
    pub(super) end: Option<End>,
}

/// Connects, without waiting for the handshake.
pub(super) fn connect(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Client {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut tls = ClientConnection::new(config.clone(), name).unwrap();
    tls.set_buffer_limit(None);
    Client { tls, socket, received: Vec::new(), end: None }
}

impl Client {
    /// Sends and receives until a condition holds or the connection ends.
    ///
    /// # Errors
    /// If the TLS library refuses what the server sends, or the handshake is not completed.
    pub(super) fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) -> io::Result<()> {
        while self.end.is_none() && !is_done(self) {
            while self.tls.wants_write() {
                match self.tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The server's last bytes may still be there to read.
                    Err(_) => break,
                }
            }
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => self.end = Some(End::Cut),
                Ok(_) => self.decode()?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(),
                Err(_) => self.end = Some(End::Cut),
            }
        }
        if self.tls.is_handshaking() && self.end.is_some() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn decode(&mut self) -> io::Result<()> {
        let state = self.tls.process_new_packets().map_err(io::Error::other)?;
        let at = self.received.len();
        self.received.resize(at + state.plaintext_bytes_to_read(), 0);
        self.tls.reader().read_exact(&mut self.received[at..])?;
        if state.peer_has_closed() {
            self.end = Some(End::Closed);
        }
        Ok(())
    }

    fn wait(&self) {
        let write = if self.tls.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
        let ready = poll(&mut [PollFd::new(&self.socket, PollFlags::IN | write)], Some(&WAIT_MAX));
        assert_ne!(ready, Ok(0), "the server sends nothing for a minute");
    }
}

/// Sends bytes on a new connection, then a closing message. Returns what the server sends until its end.
pub(super) fn exchange(
    address: SocketAddr,
    name: &str,
    config: &Arc<ClientConfig>,
    sent: &[u8],
) -> io::Result<(Vec<u8>, End)> {
    let mut client = connect(address, name, config);
    client.tls.writer().write_all(sent)?;
    client.run_until(|client| !client.tls.is_handshaking() && !client.tls.wants_write())?;
    client.tls.send_close_notify();
    client.run_until(|client| !client.tls.wants_write())?;
    let _ = client.socket.shutdown(Shutdown::Write);
    client.run_until(|_| false)?;
    Ok((client.received, client.end.expect("the connection has ended")))
}

/// Sends a GET request for a path. Returns the content of the response.
pub(super) fn get(address: SocketAddr, name: &str, config: &Arc<ClientConfig>, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
    let (received, end) = exchange(address, name, config, request.as_bytes())?;
    assert_eq!(end, End::Closed, "the server sends a closing message");
    let text = String::from_utf8(received).unwrap();
    Ok(text.split_once("\r\n\r\n").expect("a response has a head").1.to_owned())
}
