//! One connection to an upstream: opening it, and what it keeps while exchanges use it.

use super::destination::{Address, Protocol};
use super::error::{ClientError, ClientErrorKind, ClientPhase, ConnectionUse, RetrySafety};
use super::input::Input;
use super::table::{Group, Lease, Table};
use crate::limits::SWEEP_INTERVAL;
use crate::net::client_session::ApplicationProtocol;
use crate::net::clock::Tick;
use crate::net::connect::{Started, start_tcp, start_unix};
use crate::net::epoll::EpollSocket;
use crate::net::link::Link;
use crate::net::raw::{SendBuffer, SendMode};
use crate::net::stream::Stream;
use crate::net::turns::Turns;
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// A connection to an upstream.
pub(super) struct Connection {
    pub(super) link: Link<EpollSocket>,
    pub(super) group: Rc<Group>,
    pub(super) input: Input,
    /// Bytes to send, and content to send after them.
    pub(super) output: SendBuffer,
    pub(super) piece: Bytes,
    /// Bytes that were sent since it was opened.
    pub(super) sent: u64,
    /// Whether it has served a request before.
    pub(super) connection_use: ConnectionUse,
    /// How long it was idle before its current use.
    pub(super) idle_for: Tick,
    /// Wakes the client's task while the connection is idle.
    pub(super) idle_waker: Option<Waker>,
    pub(super) idle_since: Tick,
    pub(super) idle_until: Tick,
}

impl Connection {
    fn new(link: Link<EpollSocket>, group: Rc<Group>) -> Self {
        Self {
            link,
            group,
            input: Input::default(),
            output: SendBuffer::default(),
            piece: Bytes::new(),
            sent: 0,
            connection_use: ConnectionUse::First,
            idle_for: 0,
            idle_waker: None,
            idle_since: 0,
            idle_until: 0,
        }
    }

    /// Whether nothing is left to send or to read, as an idle connection requires.
    pub(super) fn is_clean(&self) -> bool {
        self.input.bytes().is_empty() && self.output.len() == 0 && self.piece.is_empty()
    }

    /// Whether an idle connection is open and has received nothing. The waker is woken when that changes.
    pub(super) fn is_quiet(&self, waker: &Waker) -> bool {
        self.link.poll_receive(&mut Context::from_waker(waker), &mut None).is_pending()
    }

    /// Sends the closing message of the session, if it has one. The socket is closed when the connection is dropped.
    pub(super) fn close(&self) {
        self.link.close_session();
    }

    /// Sends what is to be sent. Ready when the system has accepted all of it.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.output.len() + self.piece.len() > 0 {
            match self.link.send([self.output.rest(), &self.piece], SendMode::Flush) {
                Ok(sent) => {
                    let of_output = sent.min(self.output.len());
                    self.output.at += of_output;
                    self.piece.advance(sent - of_output);
                    self.sent += sent as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.link.poll_writable(cx))?,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.output = SendBuffer::default();
        self.piece = Bytes::new();
        // What a session has encoded leaves, too.
        loop {
            match self.link.send([&[], &[]], SendMode::Flush) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.link.poll_writable(cx))?,
                result => return Poll::Ready(result.map(drop)),
            }
        }
    }

    /// Receives bytes behind the unconsumed ones. Returns how many, 0 at the end of the stream.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            match self.input.poll_receive(&self.link, cx) {
                // Messages of the session have to leave first.
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::WouldBlock => {
                    ready!(self.link.poll_writable(cx))?;
                }
                received => return received,
            }
        }
    }
}

/// Opens a connection, the handshake of TLS included.
pub(super) async fn open(
    table: &Rc<Table>,
    group: &Rc<Group>,
    timeout: Duration,
    protocol: ApplicationProtocol,
) -> Result<Lease, ClientError> {
    let mut lease = table.add();
    let destination = &group.destination;
    let socket =
        connect(&lease, &destination.address, timeout).await.map_err(|kind| failed(ClientPhase::Connect, kind))?;
    if let Some(first) = &destination.first_bytes {
        send_first(&socket, first).map_err(|error| failed(ClientPhase::Connect, ClientErrorKind::of_io(&error)))?;
    }
    let session = match &destination.tls {
        None => None,
        Some(tls) => {
            let session = tls.session(protocol);
            Some(session.map_err(|error| failed(ClientPhase::Tls, ClientErrorKind::of_io(&error)))?)
        }
    };
    let link = Link::new(socket, session);
    if destination.tls.is_some() {
        handshake(&lease, &link, timeout).await.map_err(|kind| failed(ClientPhase::Tls, kind))?;
        let selected = link.tls_info();
        let selected = selected.as_ref().and_then(|info| info.protocol());
        if protocol == ApplicationProtocol::Http2 && selected != Some(b"h2") {
            return Err(failed(ClientPhase::Tls, ClientErrorKind::ProtocolUnsupported));
        }
    }
    lease.end_wait();
    lease.set_connection(Box::new(Connection::new(link, group.clone())));
    Ok(lease)
}

/// Nothing of a request was sent.
const fn failed(phase: ClientPhase, kind: ClientErrorKind) -> ClientError {
    ClientError::new(phase, kind, RetrySafety::NotSent)
}

async fn connect(lease: &Lease, address: &Address, timeout: Duration) -> Result<EpollSocket, ClientErrorKind> {
    let mut attempts = 0;
    let socket = loop {
        let started = match address {
            Address::Tcp(address) => start_tcp(*address),
            Address::Unix(path) => start_unix(path),
        };
        match started.map_err(|error| ClientErrorKind::of_io(&error))? {
            Started::Begun(socket) => break socket,
            // A busy application accepts connections a little later.
            Started::QueueFull if SWEEP_INTERVAL * attempts < timeout => {
                attempts += 1;
                crate::net::runtime::sleep(SWEEP_INTERVAL).await;
            }
            Started::QueueFull => return Err(ClientErrorKind::TimedOut),
        }
    };
    if matches!(address, Address::Unix(_)) {
        return Ok(socket);
    }
    poll_fn(|cx| poll_or_timeout(lease, timeout, cx, |cx| socket.poll_writable(cx))).await?;
    socket.take_error().map_err(|error| ClientErrorKind::of_io(&error))?;
    Ok(socket)
}

async fn handshake(lease: &Lease, link: &Link<EpollSocket>, timeout: Duration) -> Result<(), ClientErrorKind> {
    // No step of a client's session takes a turn.
    let turns = Turns::default();
    poll_fn(|cx| poll_or_timeout(lease, timeout, cx, |cx| link.poll_handshake(cx, &turns))).await
}

/// Polls a step of opening the connection, within the timeout of all of them.
fn poll_or_timeout(
    lease: &Lease,
    timeout: Duration,
    cx: &mut Context<'_>,
    mut step: impl FnMut(&mut Context<'_>) -> Poll<io::Result<()>>,
) -> Poll<Result<(), ClientErrorKind>> {
    match step(cx) {
        Poll::Ready(result) => Poll::Ready(result.map_err(|error| ClientErrorKind::of_io(&error))),
        Poll::Pending if lease.wait(timeout, cx) => Poll::Ready(Err(ClientErrorKind::TimedOut)),
        Poll::Pending => Poll::Pending,
    }
}

/// Sends the first bytes of a new connection, which the empty send buffer of the system accepts at once.
fn send_first(socket: &EpollSocket, bytes: &[u8]) -> io::Result<()> {
    let sent = socket.send([bytes, &[]], SendMode::Flush)?;
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}

impl Protocol {
    /// Returns what is offered in the handshake.
    pub(super) const fn alpn(self) -> ApplicationProtocol {
        match self {
            Self::Http1 => ApplicationProtocol::Http1,
            Self::Http2 => ApplicationProtocol::Http2,
        }
    }
}
