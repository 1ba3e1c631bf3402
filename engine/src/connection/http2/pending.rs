//! Responses whose head was written and whose content is being sent.

use super::call::{ActiveRequest, finish};
use super::connection::Connection;
use super::data_frame::SendStep;
use super::output::Outgoing;
use super::tunnel::OutgoingTunnel;
use crate::connection::app_context::AppContext;
use crate::connection::exchange::ResponseRecord;
use crate::connection::timeouts::HeldLease;
use crate::net::clock::Tick;
use crate::net::stream::Stream;
use crate::service::{CloseReason, Observer};
use selvedge_proto::http2::Turn;
use std::task::{Context, Poll};

/// A response whose head was written.
pub(super) struct PendingResponse {
    pub(super) active: ActiveRequest,
    pub(super) record: ResponseRecord,
    pub(super) content: Outgoing,
    /// Whether the application, or the disk, has to deliver the next content.
    pub(super) waits_for_content: bool,
    /// Set while the client does not open its windows.
    pub(super) stall: Option<Stall>,
    /// Bytes of the request's content that had arrived when the windows were last looked at.
    pub(super) arrived_bytes: u64,
    /// Lets the response outlive a replacement of the application.
    pub(super) lease: Option<HeldLease>,
}

impl PendingResponse {
    /// Reports the response, and releases the memory of its request.
    pub(super) fn finish<S: Stream, T, O: Observer>(
        self,
        outcome: Result<(), CloseReason>,
        connection: &Connection<S>,
        app: &AppContext<T, O>,
    ) {
        let Self { active, mut record, .. } = self;
        record.outcome = outcome;
        finish(active, record, connection, app);
    }

    /// Informs the handler of another protocol that the connection is about to end, unless its lease keeps it.
    pub(super) fn announce_stop(&mut self, reason: CloseReason) {
        let may_be_kept = matches!(reason, CloseReason::AppReplaced | CloseReason::Draining);
        let is_kept = may_be_kept && self.is_leased();
        if let Some(tunnel) = self.tunnel().filter(|_| !is_kept) {
            tunnel.announce_stop();
        }
    }

    /// Whether it outlives a replacement.
    pub(super) fn is_leased(&self) -> bool {
        self.lease.as_ref().is_some_and(HeldLease::is_in_force)
    }

    /// Returns the stream of another protocol, if it is one.
    pub(super) fn tunnel(&mut self) -> Option<&mut OutgoingTunnel> {
        match &mut self.content {
            Outgoing::Tunnel(tunnel) => Some(tunnel),
            Outgoing::Bytes(_) | Outgoing::File(_) | Outgoing::Stream(_) => None,
        }
    }

    /// Whether the response waits for the client to open a window, for a limited time. The handler of another protocol
    /// has its own time limits.
    pub(super) fn waits_for_window(&self) -> bool {
        let is_limited = !matches!(&self.content, Outgoing::Tunnel(tunnel) if tunnel.is_used());
        is_limited && !self.waits_for_content
    }
}

/// How long the windows of a client have been closed for a response.
pub(super) struct Stall {
    pub(super) began: Tick,
    /// Content that was sent since then.
    pub(super) bytes: u64,
}

/// Writes the next frame of a response. `Pending` if its content is not available yet; the context is woken then.
/// `scratch` is memory for a frame header.
pub(super) fn poll_send<S: Stream>(
    connection: &Connection<S>,
    response: &mut PendingResponse,
    turn: Turn,
    scratch: &mut Vec<u8>,
    cx: &mut Context<'_>,
) -> Poll<SendStep> {
    let polled = response.content.poll_send(connection, turn, scratch, cx);
    response.waits_for_content = polled.is_pending();
    if let Poll::Ready(SendStep::More(count) | SendStep::All(count)) = polled {
        response.record.content_bytes += count as u64;
        if let Some(stall) = &mut response.stall {
            stall.bytes += count as u64;
        }
    }
    polled
}

/// Writes the end of a response if no content precedes it, which needs no window. `Pending` if the application has to
/// tell; the context is woken then.
pub(super) fn poll_end<S: Stream>(
    connection: &Connection<S>,
    response: &mut PendingResponse,
    cx: &mut Context<'_>,
) -> Poll<SendStep> {
    let polled = response.content.poll_end(connection, response.active.stream, cx);
    response.waits_for_content = polled.is_pending();
    polled
}
