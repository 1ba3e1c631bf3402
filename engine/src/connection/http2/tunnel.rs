//! Streams of other protocols: a client opens one by an extended CONNECT (RFC 8441), and a handler of the application
//! uses it like a connection of its own.
//!
//! The handler may use its end on any thread. The ends share two bounded buffers under a lock. A task of the worker
//! moves received content into one of them, and so opens the client's window as the handler reads. The connection
//! sends from the other one when it is the stream's turn.

use super::connection::Connection;
use super::data_frame::{SendStep, send_bytes};
use crate::net::runtime::spawn_local;
use crate::net::stop_notice::{StopNotice, StopSender, stop_notice};
use crate::net::stream::Stream;
use crate::peer::{Duplex, StoppingFuture};
use crate::service::{Body, IncomingBody, Request, Response, UpgradeResponse};
use bytes::{Buf, Bytes, BytesMut};
use selvedge_proto::StatusCode;
use selvedge_proto::http2::{End, StreamId, Turn};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

/// Bytes that a handler can have written while the client takes none.
const SEND_BYTES_MAX: usize = 64 * 1024;
/// Received bytes that wait for the handler, beside those that the windows permit. One piece may exceed it.
const RECEIVE_BYTES_MAX: usize = 16 * 1024;

/// What the worker and the handler share.
#[derive(Default)]
struct TunnelState {
    received: VecDeque<Bytes>,
    received_bytes: usize,
    /// How the client's direction ended.
    receive_end: Option<ReceiveEnd>,
    to_send: BytesMut,
    handler: Handler,
    /// Whether the stream has ended, so that nothing can be sent.
    is_closed: bool,
    /// The handler, which waits for received bytes.
    reader: Option<Waker>,
    /// The handler, which waits for room.
    writer: Option<Waker>,
    /// The task that moves received content.
    mover: Option<Waker>,
    /// The place of the stream in its connection.
    sender: Option<Waker>,
}

/// What the handler still does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handler {
    #[default]
    Sends,
    /// It has shut down its direction, and still receives.
    Receives,
    Dropped,
}

#[derive(Clone, Copy)]
enum ReceiveEnd {
    /// All has arrived.
    Complete,
    Failed,
}

/// The state, which both ends lock for single steps only. No waker is called while it is locked.
#[derive(Clone, Default)]
struct SharedTunnel(Arc<Mutex<TunnelState>>);

impl SharedTunnel {
    fn lock(&self) -> MutexGuard<'_, TunnelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Stores the waker of a context.
fn store(waker: &mut Option<Waker>, cx: &Context<'_>) {
    match waker {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *waker = Some(cx.waker().clone()),
    }
}

/// Returns the handler of a response that accepts an extended CONNECT. The response is then one with 200.
pub(super) fn take_upgrade(request: &Request, response: &mut Response) -> Option<Box<UpgradeResponse>> {
    let is_accepted = response.status == StatusCode::SWITCHING_PROTOCOLS || matches!(response.status.code(), 200..=299);
    if !is_accepted || !request.head().is_extended_connect() || !matches!(response.body, Body::Upgrade(_)) {
        return None;
    }
    let Body::Upgrade(upgrade) = std::mem::take(&mut response.body) else { return None };
    response.status = StatusCode::OK;
    Some(upgrade)
}

/// Creates both ends of a stream. Starts a task that moves `content` to the handler.
pub(super) fn open(mut content: IncomingBody) -> (Box<dyn Duplex>, OutgoingTunnel) {
    let shared = SharedTunnel::default();
    let (stop, stopping) = stop_notice();
    content.set_bytes_max(u64::MAX);
    drop(spawn_local(move_received(content, shared.clone())));
    let tunnel = TunnelStream { shared: shared.clone(), stopping };
    (Box::new(tunnel), OutgoingTunnel { shared, has_ended: false, stop })
}

/// Moves received content to the handler until either ends.
async fn move_received(mut content: IncomingBody, shared: SharedTunnel) {
    poll_fn(|cx| {
        loop {
            {
                let mut state = shared.lock();
                if state.handler == Handler::Dropped {
                    return Poll::Ready(());
                }
                store(&mut state.mover, cx);
                if state.received_bytes >= RECEIVE_BYTES_MAX {
                    return Poll::Pending;
                }
            }
            let polled = ready!(content.poll_chunk(cx));
            let mut state = shared.lock();
            match polled {
                Some(Ok(piece)) => {
                    state.received_bytes += piece.len();
                    state.received.push_back(piece);
                }
                Some(Err(_)) => state.receive_end = Some(ReceiveEnd::Failed),
                None => state.receive_end = Some(ReceiveEnd::Complete),
            }
            let has_ended = state.receive_end.is_some();
            let (reader, sender) = (state.reader.take(), state.sender.clone().filter(|_| has_ended));
            drop(state);
            wake(reader);
            wake(sender);
            if has_ended {
                return Poll::Ready(());
            }
        }
    })
    .await;
}

/// The connection's end of a stream. Dropping it ends the stream with an error for the handler, unless it is complete.
pub(super) struct OutgoingTunnel {
    shared: SharedTunnel,
    /// Whether the end of the server's direction was written.
    has_ended: bool,
    stop: StopSender,
}

impl OutgoingTunnel {
    /// Writes the next frame. `Pending` if the handler has written nothing more; the context is woken then.
    pub(super) fn poll_send<S: Stream>(
        &mut self,
        connection: &Connection<S>,
        turn: Turn,
        cx: &mut Context<'_>,
    ) -> Poll<SendStep> {
        let polled = ready!(self.poll_end(connection, turn.stream, cx));
        if !matches!(polled, SendStep::More(_)) {
            return Poll::Ready(polled);
        }
        let mut state = self.shared.lock();
        let count = state.to_send.len().min(turn.bytes_max);
        let piece = state.to_send.split_to(count);
        let writer = state.writer.take();
        drop(state);
        wake(writer);
        Poll::Ready(send_bytes(connection, turn.stream, &piece, End::More))
    }

    /// Writes the end if no bytes precede it, which needs no window.
    pub(super) fn poll_end<S: Stream>(
        &mut self,
        connection: &Connection<S>,
        stream: StreamId,
        cx: &mut Context<'_>,
    ) -> Poll<SendStep> {
        let mut state = self.shared.lock();
        store(&mut state.sender, cx);
        if !state.to_send.is_empty() {
            return Poll::Ready(SendStep::More(0));
        }
        if state.handler == Handler::Sends {
            return Poll::Pending;
        }
        let is_complete = state.receive_end.is_some() || state.handler == Handler::Dropped;
        drop(state);
        if !self.has_ended {
            if let failed @ SendStep::Failed(_) = send_bytes(connection, stream, &[], End::Last) {
                return Poll::Ready(failed);
            }
            self.has_ended = true;
        }
        // The client may still send to a handler that receives.
        if is_complete { Poll::Ready(SendStep::All(0)) } else { Poll::Pending }
    }

    /// Whether the handler uses the stream, so that no time limit applies.
    pub(super) fn is_used(&self) -> bool {
        self.shared.lock().handler != Handler::Dropped
    }

    /// Informs the handler that the connection is about to end.
    pub(super) fn announce_stop(&mut self) {
        self.stop.announce();
    }
}

impl Drop for OutgoingTunnel {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.receive_end.get_or_insert(ReceiveEnd::Failed);
        state.to_send = BytesMut::new();
        state.sender = None;
        let wakers = [state.reader.take(), state.writer.take(), state.mover.take()];
        drop(state);
        wakers.into_iter().for_each(wake);
    }
}

/// The handler's end of a stream.
struct TunnelStream {
    shared: SharedTunnel,
    stopping: StopNotice,
}

impl Duplex for TunnelStream {
    fn poll_receive(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut state = self.shared.lock();
        let Some(piece) = state.received.front_mut() else {
            return match state.receive_end {
                Some(ReceiveEnd::Complete) => Poll::Ready(Ok(0)),
                Some(ReceiveEnd::Failed) => Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
                None => {
                    store(&mut state.reader, cx);
                    Poll::Pending
                }
            };
        };
        let count = piece.len().min(into.len());
        piece.copy_to_slice(&mut into[..count]);
        if piece.is_empty() {
            state.received.pop_front();
        }
        state.received_bytes -= count;
        let mover = state.mover.take();
        drop(state);
        wake(mover);
        Poll::Ready(Ok(count))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut state = self.shared.lock();
        if state.is_closed || state.handler != Handler::Sends {
            return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
        }
        let mut room = SEND_BYTES_MAX - state.to_send.len();
        if room == 0 {
            store(&mut state.writer, cx);
            return Poll::Pending;
        }
        let mut count = 0;
        for slice in slices {
            let part = &slice[..slice.len().min(room)];
            state.to_send.extend_from_slice(part);
            room -= part.len();
            count += part.len();
        }
        let sender = state.sender.clone();
        drop(state);
        wake(sender);
        Poll::Ready(Ok(count))
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.is_closed {
            return Err(ErrorKind::BrokenPipe.into());
        }
        state.handler = Handler::Receives;
        let sender = state.sender.clone();
        drop(state);
        wake(sender);
        Ok(())
    }

    fn stopping(&self) -> StoppingFuture {
        self.stopping.future()
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handler = Handler::Dropped;
        state.received.clear();
        let wakers = [state.sender.clone(), state.mover.take()];
        drop(state);
        wakers.into_iter().for_each(wake);
    }
}
