//! The state of an HTTP/1 connection.

use super::body::RequestBody;
use crate::connection::exchange::StreamFacts;
use crate::connection::exit::FirstProtocol;
use crate::connection::send_queue;
use crate::connection::transport::Transport;
use crate::limits::BATCH_BYTES;
use crate::net::raw::SendMode;
use crate::net::stream::Stream;
use crate::response_lease::ResponseLease;
use crate::service::{ConnectionExtensions, ContentError, ContentSource, HalfClosed, StreamId, UpgradeHandler};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::http1::write::write_interim;
use std::cell::Cell;
use std::task::{Context, Poll};
use std::time::Instant;

/// An HTTP/1 connection.
pub(in crate::connection) struct Connection<S> {
    pub(in crate::connection) transport: Transport<S>,
    pub(super) body: RequestBody,
    pub(super) first_protocol: FirstProtocol,
    /// Application state of this connection, which outlives a request.
    pub(super) extensions: Cell<ConnectionExtensions>,
    /// Whether a request is cancelled when its client shuts down its sending side.
    pub(super) half_closed: Cell<HalfClosed>,
    /// What takes the connection after an upgrade response.
    pub(super) upgrade: Cell<Option<Box<PendingUpgrade>>>,
    /// Requests so far.
    pub(in crate::connection) requests: Cell<u32>,
    /// Set after parking, until the next read of a request.
    pub(super) is_resumed: Cell<bool>,
}

/// What takes a connection after an upgrade response.
pub(in crate::connection) struct PendingUpgrade {
    pub(in crate::connection) handler: UpgradeHandler,
    /// Lets the connection outlive a replacement of the application.
    pub(in crate::connection) lease: Option<ResponseLease>,
}

/// What of a connection lasts while it is parked.
pub(in crate::connection) struct ParkedState {
    requests: u32,
    extensions: ConnectionExtensions,
}

impl<S: Stream> Connection<S> {
    pub(in crate::connection) fn new(transport: Transport<S>, first_protocol: FirstProtocol) -> Self {
        Self {
            transport,
            first_protocol,
            body: RequestBody::default(),
            extensions: Cell::default(),
            half_closed: Cell::new(HalfClosed::Continue),
            upgrade: Cell::default(),
            requests: Cell::new(0),
            is_resumed: Cell::new(false),
        }
    }

    /// Restores a parked connection.
    pub(in crate::connection) fn resumed(transport: Transport<S>, parked: ParkedState) -> Self {
        let ParkedState { requests, extensions } = parked;
        let new = Self::new(transport, FirstProtocol::Http1);
        new.requests.set(requests);
        new.extensions.set(extensions);
        new.is_resumed.set(true);
        new
    }

    /// Splits the connection into its transport and what lasts while it is parked.
    pub(in crate::connection) fn into_parked(self) -> (Transport<S>, ParkedState) {
        let parked = ParkedState { requests: self.requests.get(), extensions: self.extensions.take() };
        (self.transport, parked)
    }

    /// Returns the transport, for another protocol.
    pub(in crate::connection) fn into_transport(self) -> Transport<S> {
        self.transport
    }

    /// Returns the transport and the handler of the protocol to which the connection was upgraded.
    pub(in crate::connection) fn into_upgraded(self) -> Option<(Transport<S>, Box<PendingUpgrade>)> {
        Some((self.transport, self.upgrade.take()?))
    }

    /// Continues a connection that could not be parked.
    pub(in crate::connection) fn keep_active(&self) {
        self.is_resumed.set(true);
    }

    /// The stream of the current request is the number of the request.
    pub(super) fn stream_id(&self) -> StreamId {
        StreamId(self.requests.get().into())
    }

    pub(super) fn facts(&self, began: Option<Instant>) -> StreamFacts {
        StreamFacts { stream: self.stream_id(), requests: self.requests.get(), began }
    }

    /// Wakes the reader of request content, if one waits.
    pub(in crate::connection) fn wake_reader(&self) {
        self.body.wake_reader();
    }

    /// Whether all buffers are empty, so that the connection can park. Releases an unused send buffer permit.
    pub(super) fn is_parkable(&self) -> bool {
        let transport = &self.transport;
        transport.unsent_len() == 0
            && transport.link.send([&[], &[]], SendMode::Flush).is_ok()
            && transport.input.borrow().bytes().is_empty()
            && self.body.is_none()
            && send_queue::release(transport)
    }

    /// Completes when the client has disconnected, if that cancels a request.
    pub(super) fn poll_client_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.half_closed.get() == HalfClosed::Continue {
            return Poll::Pending;
        }
        // A body reader receives only while the send buffer is empty.
        let may_receive = self.transport.unsent_len() == 0;
        match self.transport.link.poll_read_closed(cx) {
            // Content may precede the end of the stream. The body reader sees both.
            Poll::Ready(()) if may_receive && self.body.wake_reader() => Poll::Pending,
            polled => polled,
        }
    }
}

impl<S: Stream> ContentSource for Connection<S> {
    fn poll_content(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        self.body.poll_content(&self.transport, stream, cx)
    }

    fn trailers(&self, stream: StreamId) -> Option<Fields> {
        self.body.trailers(stream)
    }

    fn stop_reading(&self, stream: StreamId) {
        self.body.stop_reading(stream);
    }

    fn failure(&self, stream: StreamId) -> Option<ContentError> {
        self.body.failure(stream)
    }

    fn send_interim(&self, stream: StreamId, status: StatusCode, fields: &Fields) -> Result<(), ContentError> {
        if stream != self.stream_id() {
            return Err(ContentError::Ended);
        }
        let mut output = self.transport.output.borrow_mut();
        if output.len() >= BATCH_BYTES {
            return Err(ContentError::Disconnected);
        }
        write_interim(status, fields, output.bytes());
        let timeouts = &self.transport.timeouts;
        timeouts.worker.connections.wake(timeouts.id, None);
        Ok(())
    }
}
