//! Opens connections to upstreams.

use super::connection::PooledConnection;
use super::destination::Address;
use super::error::{ClientError, ClientErrorKind, ClientPhase, RetrySafety};
use super::group::Group;
use super::table::{Lease, Table};
use crate::limits::SWEEP_INTERVAL;
use crate::net::client_session::ApplicationProtocol;
use crate::net::connect::{Started, start_tcp, start_unix};
use crate::net::epoll::EpollSocket;
use crate::net::link::Link;
use crate::net::raw::SendMode;
use crate::net::stream::Stream;
use crate::net::turns::Turns;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

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
    lease.set_connection(Box::new(PooledConnection::new(link, group.clone())));
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
