//! The start of a connection: completes the handshake of its session, and chooses its protocol.

use crate::connection::transport::Transport;
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::link::SessionFailure;
use crate::net::raw::ShutdownMode;
use crate::net::stream::Stream;
use crate::peer::TlsInfo;
use crate::service::CloseReason;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::Poll;

/// The protocol of a connection.
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// The start of a connection that has to wait for the client.
type Start<'a> = Pin<Box<dyn Future<Output = Result<Protocol, CloseReason>> + 'a>>;

/// Starts a connection. Without a handshake, its protocol is HTTP/1.
#[inline]
pub(super) fn start<S: Stream>(transport: &Transport<S>) -> Option<Start<'_>> {
    transport.link.is_handshaking().then(|| Box::pin(complete_handshake(transport)) as Start<'_>)
}

/// Completes the handshake within the time for a request head, which it is part of.
async fn complete_handshake<S: Stream>(transport: &Transport<S>) -> Result<Protocol, CloseReason> {
    transport.timeouts.wait_for(Deadline::RequestHead, transport.shared.limits.header_timeout);
    let turns = &transport.timeouts.worker.turns;
    let failed = poll_fn(|cx| match transport.link.poll_handshake(cx, turns) {
        Poll::Ready(Ok(())) => Poll::Ready(Ok(chosen_protocol(transport))),
        Poll::Ready(Err(error)) => Poll::Ready(Err(reason_of(&error))),
        Poll::Pending => match transport.timeouts.interrupt() {
            Interrupt::TimedOut => Poll::Ready(Err(CloseReason::HandshakeTooSlow)),
            _ => Poll::Pending,
        },
    })
    .await;
    if let Err(reason) = &failed
        && has_message(reason)
    {
        // A client that is still sending would get a reset in place of the message.
        transport.link.shutdown(ShutdownMode::Write);
        transport.linger().await;
    }
    failed
}

/// Whether a handshake that fails for this reason ends with a message that the client should read.
fn has_message(reason: &CloseReason) -> bool {
    use CloseReason::{ClientCertificateInvalid, HandshakeFailed, HandshakeIncompatible, PlainHttp, UnknownServerName};
    matches!(
        reason,
        PlainHttp | HandshakeFailed | HandshakeIncompatible | UnknownServerName | ClientCertificateInvalid(_)
    )
}

/// Returns the protocol that the handshake agreed on. A client that offered none speaks HTTP/1.
fn chosen_protocol<S: Stream>(transport: &Transport<S>) -> Protocol {
    let info = transport.link.tls_info();
    match info.as_ref().and_then(TlsInfo::protocol) {
        Some(b"h2") => Protocol::Http2,
        _ => Protocol::Http1,
    }
}

/// Returns the close reason for a handshake that failed.
fn reason_of(error: &io::Error) -> CloseReason {
    match SessionFailure::of(error) {
        Some(SessionFailure::Invalid | SessionFailure::ServerCertificate(_)) => CloseReason::HandshakeFailed,
        Some(SessionFailure::PlainText) => CloseReason::PlainHttp,
        Some(SessionFailure::Incompatible) => CloseReason::HandshakeIncompatible,
        Some(SessionFailure::UnknownServerName) => CloseReason::UnknownServerName,
        Some(SessionFailure::ClientCertificate(reason)) => CloseReason::ClientCertificateInvalid(reason),
        Some(SessionFailure::RefusedByPeer(reason)) => CloseReason::HandshakeRefused(reason),
        Some(SessionFailure::Abandoned) => CloseReason::HandshakeIncomplete,
        None if error.kind() == ErrorKind::UnexpectedEof => CloseReason::HandshakeIncomplete,
        None => CloseReason::Reset,
    }
}
