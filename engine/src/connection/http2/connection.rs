//! The state of an HTTP/2 connection that its task shares with readers of content.

use super::contents::{Arrived, Contents, Rest};
use crate::connection::exchange::StreamFacts;
use crate::connection::transport::Transport;
use crate::limits::UNSENT_BYTES_MAX;
use crate::net::clock::Tick;
use crate::net::connection_table::Deadline;
use crate::net::raw::SendMode;
use crate::net::stream::Stream;
use crate::service::{CloseReason, ConnectionExtensions, ContentError, ContentSource, StreamId};
use bytes::Bytes;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::head::Expectation;
use selvedge_proto::http2::{self, End, ErrorCode, ExtendedConnect, Http2Limits, Millis, Role, Section};
use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// An HTTP/2 connection.
pub(in crate::connection) struct Connection<S> {
    pub(in crate::connection) transport: Transport<S>,
    pub(super) protocol: RefCell<Box<http2::Connection>>,
    /// Content of requests.
    pub(super) contents: RefCell<Contents>,
    /// Application state of this connection, which outlives a request.
    pub(super) extensions: RefCell<ConnectionExtensions>,
    /// Requests so far.
    pub(in crate::connection) requests: Cell<u32>,
    /// Whether the task of the connection runs now, so that it needs no wake-up to send what is written.
    pub(super) is_in_turn: Cell<bool>,
    /// Since when no stream is open.
    pub(super) idle_since: Cell<Option<Tick>>,
    /// Why calls are cancelled from now on.
    pub(super) cancel_reason: Cell<CloseReason>,
    /// Whether the task of the connection has ended, so that no stream ends alone.
    pub(super) has_ended: Cell<bool>,
}

/// What of a connection lasts while it is parked, besides its protocol.
pub(in crate::connection) struct ParkedState {
    extensions: ConnectionExtensions,
    requests: u32,
    idle_since: Option<Tick>,
}

impl<S: Stream> Connection<S> {
    /// Begins a connection, and writes the server's preface.
    pub(in crate::connection) fn new(transport: Transport<S>, extended_connect: ExtendedConnect) -> Self {
        let limits = Http2Limits { extended_connect, ..transport.shared.limits.of_http2() };
        let mut protocol = Box::new(http2::Connection::new(Role::Server, &limits, now(&transport)));
        protocol.start(transport.output.borrow_mut().bytes());
        Self::resumed(transport, protocol, ParkedState { extensions: None, requests: 0, idle_since: None })
    }

    /// Restores a parked connection.
    pub(in crate::connection) fn resumed(
        transport: Transport<S>,
        protocol: Box<http2::Connection>,
        parked: ParkedState,
    ) -> Self {
        let ParkedState { extensions, requests, idle_since } = parked;
        transport.timeouts.worker.connections.set_has_streams(transport.timeouts.id);
        Self {
            transport,
            protocol: RefCell::new(protocol),
            contents: RefCell::default(),
            extensions: RefCell::new(extensions),
            requests: Cell::new(requests),
            is_in_turn: Cell::new(false),
            idle_since: Cell::new(idle_since),
            cancel_reason: Cell::new(CloseReason::ClientDisconnected),
            has_ended: Cell::new(false),
        }
    }

    /// Splits the connection into its transport, its protocol, and what else lasts while it is parked.
    pub(in crate::connection) fn into_parked(self) -> (Transport<S>, Box<http2::Connection>, ParkedState) {
        let mut protocol = self.protocol.into_inner();
        protocol.compact();
        let (requests, idle_since) = (self.requests.get(), self.idle_since.get());
        (self.transport, protocol, ParkedState { extensions: self.extensions.take(), requests, idle_since })
    }

    /// Whether all buffers are empty, so that the connection can park. Releases an unused send buffer permit.
    pub(super) fn is_parkable(&self) -> bool {
        let transport = &self.transport;
        transport.unsent_len() == 0
            && transport.link.send([&[], &[]], SendMode::Flush).is_ok()
            && transport.input.borrow().bytes().is_empty()
            && self.contents.borrow().is_empty()
    }

    /// Ends all content. Its readers, which may be tasks of the application, get an error.
    pub(in crate::connection) fn end_contents(&self) {
        let readers = self.contents.borrow_mut().fail_all(ContentError::Disconnected);
        for reader in readers {
            reader.wake();
        }
    }

    /// Returns the time for the protocol.
    pub(super) fn now(&self) -> Millis {
        now(&self.transport)
    }

    /// Returns when the first request has to be there. The time of a handshake, or since the connection was accepted,
    /// counts.
    pub(super) fn first_due(&self) -> Tick {
        let timeouts = &self.transport.timeouts;
        match timeouts.worker.connections.deadline(timeouts.id) {
            (Deadline::RequestHead, due) => due,
            _ => timeouts.worker.clock.tick_after(self.transport.shared.limits.header_timeout),
        }
    }

    pub(super) fn facts(&self, stream: http2::StreamId, began: Option<Instant>) -> StreamFacts {
        StreamFacts { stream: StreamId(stream.get().into()), requests: self.requests.get(), began }
    }

    /// Calls the protocol with the send buffer.
    pub(super) fn with_protocol<R>(&self, call: impl FnOnce(&mut http2::Connection, &mut Vec<u8>) -> R) -> R {
        call(&mut self.protocol.borrow_mut(), self.transport.output.borrow_mut().bytes())
    }

    /// Resets a stream.
    pub(super) fn reset(&self, stream: http2::StreamId, code: ErrorCode) {
        self.with_protocol(|protocol, out| protocol.reset(stream, code, out));
    }

    /// Reports content as consumed, which opens the client's windows.
    pub(super) fn consume(&self, stream: http2::StreamId, bytes: usize) {
        if bytes > 0 {
            self.with_protocol(|protocol, out| protocol.consumed(stream, bytes, out));
        }
    }

    /// Stores content for the application, or discards it.
    pub(super) fn store_content(&self, stream: http2::StreamId, piece: &[u8], end: End) {
        let now = self.transport.timeouts.worker.clock.tick();
        if !piece.is_empty() {
            let discarded_max = self.transport.shared.limits.discard_bytes_max;
            let arrived = self.contents.borrow_mut().push(stream, piece, now, discarded_max);
            match arrived {
                Arrived::Kept(reader) => {
                    if let Some(reader) = reader {
                        reader.wake();
                    }
                }
                Arrived::Discarded => self.consume(stream, piece.len()),
                Arrived::TooMuch => {
                    self.refuse_content(stream);
                    self.consume(stream, piece.len());
                }
            }
        }
        if end == End::Last {
            let reader = self.contents.borrow_mut().end(stream, None);
            if let Some(reader) = reader {
                reader.wake();
            }
        }
    }

    /// Drops the content of a stream that the application reads no more.
    pub(super) fn drop_content(&self, stream: http2::StreamId) {
        let Some(dropped) = self.contents.borrow_mut().remove(stream) else { return };
        self.consume(stream, dropped.unread_bytes());
        if let Some(reader) = dropped.into_reader() {
            reader.wake();
        }
    }

    /// Returns why the content of a stream could not be read to its end.
    pub(super) fn failure_of_content(&self, stream: http2::StreamId) -> Option<ContentError> {
        self.contents.borrow().failure(stream)
    }

    /// Ends the content of a stream whose response is complete.
    pub(super) fn finish_content(&self, stream: http2::StreamId) {
        if self.contents.borrow().is_empty() {
            return;
        }
        let rest = self.contents.borrow().rest(stream);
        match rest {
            Rest::Nothing => self.drop_content(stream),
            Rest::Discard => self.discard_content(stream),
            Rest::Refuse => self.refuse_content(stream),
        }
    }

    /// Discards what arrives of a content. Many clients read no response before they have sent their content, and some
    /// forget one whose stream is reset.
    fn discard_content(&self, stream: http2::StreamId) {
        if self.transport.shared.limits.discard_bytes_max == 0 {
            return self.refuse_content(stream);
        }
        let now = self.transport.timeouts.worker.clock.tick();
        let (unread, reader) = self.contents.borrow_mut().discard(stream, now);
        self.consume(stream, unread);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Drops the content of a stream, and resets the stream.
    pub(super) fn refuse_content(&self, stream: http2::StreamId) {
        self.drop_content(stream);
        //= RFC 9113 §8.1: the client is to send no more of its content, and the response stays valid
        self.reset(stream, ErrorCode::NO_ERROR);
    }

    /// Sends what the application has caused, if it runs outside of the connection's task.
    fn wake_to_send(&self, waker: Option<&Waker>) {
        if self.transport.unsent_len() > 0 {
            self.wake(waker);
        }
    }

    /// Wakes the connection's task, unless this is called by it or from a task with this waker.
    fn wake(&self, waker: Option<&Waker>) {
        if !self.is_in_turn.get() {
            let timeouts = &self.transport.timeouts;
            timeouts.worker.connections.wake(timeouts.id, waker);
        }
    }
}

/// Returns the stream of a request.
fn stream_of(id: StreamId) -> Option<http2::StreamId> {
    http2::StreamId::new(u32::try_from(id.0).ok()?)
}

fn now<S: Stream>(transport: &Transport<S>) -> Millis {
    let elapsed = transport.timeouts.worker.clock.elapsed().as_millis();
    Millis(u64::try_from(elapsed).unwrap_or(u64::MAX))
}

impl<S: Stream> ContentSource for Connection<S> {
    fn poll_content(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ContentError>>> {
        let Some(stream) = stream_of(stream) else { return Poll::Ready(Some(Err(ContentError::Ended))) };
        let now = self.transport.timeouts.worker.clock.tick();
        let (polled, expectation) = self.contents.borrow_mut().poll(stream, now, cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            self.consume(stream, piece.len());
        }
        if expectation == Expectation::Continue {
            self.with_protocol(|protocol, out| {
                // A stream that was reset meanwhile needs no interim response.
                let _ = protocol.send_fields(stream, Section::Interim, out, |block| block.status(StatusCode::CONTINUE));
            });
        }
        if polled.is_pending() {
            // The client has a time limit from now on.
            self.wake(Some(cx.waker()));
        } else {
            self.wake_to_send(Some(cx.waker()));
        }
        polled
    }

    fn trailers(&self, stream: StreamId) -> Option<Fields> {
        self.contents.borrow().trailers(stream_of(stream)?)
    }

    fn stop_reading(&self, stream: StreamId) {
        let Some(stream) = stream_of(stream) else { return };
        let unread = self.contents.borrow_mut().stop(stream);
        self.consume(stream, unread);
        self.wake_to_send(None);
    }

    fn failure(&self, stream: StreamId) -> Option<ContentError> {
        self.contents.borrow().failure(stream_of(stream)?)
    }

    fn send_interim(&self, stream: StreamId, status: StatusCode, fields: &Fields) -> Result<(), ContentError> {
        let id = stream_of(stream).ok_or(ContentError::Ended)?;
        if self.transport.unsent_len() > UNSENT_BYTES_MAX {
            return Err(ContentError::Disconnected);
        }
        let sent = self.with_protocol(|protocol, out| {
            protocol.send_fields(id, Section::Interim, out, |block| {
                block.status(status);
                block.fields(fields);
            })
        });
        self.wake_to_send(None);
        sent.map_err(|_| ContentError::Ended)
    }
}
