//! The transport of one connection: buffers, deadlines, flushing and lingering.
//!
//! Each wait ends in one of three ways: progress, failure or end of the connection, or an interrupt from the worker.
//! Received bytes take precedence over an interrupt that arrived with them.

use crate::buffer::{Buffer, Size};
use crate::connection::app_context::SharedContext;
use crate::connection::body_state::BodyState;
use crate::connection::large_send_buffer::LargeSendBuffer;
use crate::connection::progress::Progress;
use crate::limits::{LINGER_BYTES_MAX, LINGER_TIMEOUT};
use crate::net::clock::Tick;
use crate::net::connection_table::{ConnectionId, Deadline, Interrupt};
use crate::net::raw::{SendBuffer, SendMode, ShutdownMode};
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::service::{CloseReason, ConnectionExtensions, HalfClosed, Phase, UpgradeHandler};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A connection: its stream, its receive and send buffers, and the state between requests.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    pub(super) worker: Rc<Worker>,
    pub(super) shared: Rc<SharedContext>,
    pub(super) input: RefCell<ReceiveBuffer>,
    pub(super) output: RefCell<SendBuffer>,
    pub(super) content: RefCell<Option<Box<BodyState>>>,
    /// Application state of this connection, which outlives a request.
    pub(super) extensions: Cell<ConnectionExtensions>,
    /// Whether a request is cancelled when its client shuts down its sending side.
    pub(super) half_closed: Cell<HalfClosed>,
    /// Handler that takes the connection after an upgrade response.
    pub(super) upgrade_handler: Cell<Option<UpgradeHandler>>,
    /// Permit for a larger send buffer.
    pub(super) large_send_buffer: Cell<Option<LargeSendBuffer>>,
    peer: SocketAddr,
    id: ConnectionId,
    requests: Cell<u32>,
    /// Set after parking, until the next read of a request.
    pub(super) is_resumed: Cell<bool>,
    /// Whether it has waited for the client.
    pub(super) has_waited: Cell<bool>,
}

/// Received bytes, from `at` on.
#[derive(Default)]
pub(super) struct ReceiveBuffer {
    pub(super) buffer: Option<Buffer>,
    pub(super) at: usize,
}

/// The result of a receive.
pub(super) enum Received {
    /// Bytes arrived.
    More,
    /// The client shut down its sending side.
    End,
    /// The connection failed.
    Failed,
    /// The worker interrupted the wait.
    Interrupted(Interrupt),
    /// A deferred response waits because the client does not read.
    SendStalled,
}

impl ReceiveBuffer {
    /// Returns the unconsumed bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_ref().map_or(&[], |buffer| &buffer[self.at..])
    }

    /// Consumes the first `count` bytes, and returns an empty buffer to the pool.
    pub(super) fn consume(&mut self, count: usize) {
        self.at += count;
        if self.buffer.as_ref().is_some_and(|buffer| buffer.len() == self.at) {
            *self = Self::default();
        }
    }

    /// Switches to a long buffer for bulk content. It returns to the pool if nothing arrives.
    pub(super) fn use_long_buffer(&mut self) {
        let mut long = Buffer::of_size(Size::Long);
        long.extend_from_slice(self.bytes());
        *self = Self { buffer: Some(long), at: 0 };
    }

    /// Moves unconsumed bytes to the front to free capacity.
    pub(super) fn compact(&mut self) {
        if self.at > 0
            && let Some(buffer) = &mut self.buffer
        {
            buffer.drain(..self.at);
            self.at = 0;
        }
    }
}

impl<S> Connection<S> {
    pub(super) fn new(
        stream: S,
        peer: SocketAddr,
        id: ConnectionId,
        worker: Rc<Worker>,
        shared: Rc<SharedContext>,
    ) -> Self {
        Self {
            stream,
            worker,
            shared,
            input: RefCell::default(),
            output: RefCell::default(),
            content: RefCell::default(),
            extensions: Cell::default(),
            half_closed: Cell::new(HalfClosed::Continue),
            upgrade_handler: Cell::default(),
            large_send_buffer: Cell::default(),
            peer,
            id,
            requests: Cell::new(0),
            is_resumed: Cell::new(false),
            has_waited: Cell::new(false),
        }
    }

    /// Restores the state of a parked connection after `requests` requests.
    pub(super) fn resumed(self, requests: u32, extensions: ConnectionExtensions) -> Self {
        self.requests.set(requests);
        self.extensions.set(extensions);
        self.is_resumed.set(true);
        self.has_waited.set(true);
        self
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.id
    }

    /// Returns why the worker aborts the connection.
    pub(super) fn abort_reason(&self) -> CloseReason {
        abort_reason(&self.worker)
    }

    /// Returns the number of requests so far.
    pub(super) fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Counts the next request and returns its number.
    pub(super) fn count_request(&self) -> u32 {
        self.requests.set(self.requests.get().wrapping_add(1));
        self.requests.get()
    }

    pub(super) fn deadline(&self) -> Deadline {
        self.worker.connections.deadline(self.id)
    }

    /// Sets the deadline, `time` from now.
    pub(super) fn wait_for(&self, deadline: Deadline, time: Duration) {
        self.worker.connections.wait_for(self.id, deadline, self.worker.clock.tick_after(time));
    }

    /// Sets the deadline to an absolute tick.
    pub(super) fn wait_until(&self, deadline: Deadline, due: Tick) {
        self.worker.connections.wait_for(self.id, deadline, due);
    }

    /// Clears the deadline: the connection does not wait for the client.
    pub(super) fn clear_deadline(&self) {
        self.worker.connections.wait_for(self.id, Deadline::None, Tick::MAX);
    }

    /// Sets the deadline of a transfer with a minimum rate: `progress.timeout` from now, but not later than the
    /// minimum rate allows for the bytes since `progress.began`.
    pub(super) fn wait_for_progress(&self, deadline: Deadline, progress: &Progress) {
        self.wait_for_progress_since(deadline, progress, self.worker.clock.tick());
    }

    /// Sets the deadline of a transfer with a minimum rate, where `progress.timeout` starts at `since`.
    pub(super) fn wait_for_progress_since(&self, deadline: Deadline, progress: &Progress, since: Tick) {
        let rate_seconds = progress.bytes / u64::from(progress.min_rate.max(1));
        let allowed_time = Duration::from_secs(rate_seconds).saturating_add(progress.timeout);
        let due_by_rate = progress.began.saturating_add(crate::net::clock::ticks(allowed_time)).saturating_add(1);
        let due_by_timeout = since.saturating_add(crate::net::clock::ticks(progress.timeout)).saturating_add(1);
        self.wait_until(deadline, due_by_timeout.min(due_by_rate));
    }
}

/// Returns why a worker aborts a connection.
pub(super) fn abort_reason(worker: &Worker) -> CloseReason {
    match (worker.stopped_immediately.get(), worker.is_draining.get()) {
        (true, _) => CloseReason::StoppedImmediately,
        (false, true) => CloseReason::ShutdownTimeout,
        (false, false) => CloseReason::AppReplacedTimeout,
    }
}

impl<S: Stream> Connection<S> {
    /// Receives bytes and appends them to the unconsumed ones.
    pub(super) fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Received> {
        let mut input = self.input.borrow_mut();
        input.compact();
        let polled = self.stream.poll_receive(cx, &mut input.buffer);
        let is_stalled = match &polled {
            Poll::Pending => false,
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::WouldBlock => true,
            Poll::Ready(Ok(0)) => return Poll::Ready(Received::End),
            Poll::Ready(Ok(_)) => return Poll::Ready(Received::More),
            Poll::Ready(Err(_)) => return Poll::Ready(Received::Failed),
        };
        self.has_waited.set(true);
        match self.worker.connections.interrupt(self.id) {
            Interrupt::None if is_stalled => Poll::Ready(Received::SendStalled),
            Interrupt::None => {
                if let Some(buffer) = &mut input.buffer {
                    buffer.shrink_for_waiting();
                }
                Poll::Pending
            }
            interrupt => Poll::Ready(Received::Interrupted(interrupt)),
        }
    }

    /// Completes when the client has disconnected, if that cancels a request.
    pub(super) fn poll_client_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.half_closed.get() == HalfClosed::Continue {
            return Poll::Pending;
        }
        // A body reader receives only while the send buffer is empty.
        let may_receive = self.output.borrow().len() == 0;
        match self.stream.poll_read_closed(cx) {
            // Content may precede the end of the stream. The body reader sees both.
            Poll::Ready(()) if may_receive && self.wake_reader() => Poll::Pending,
            polled => polled,
        }
    }

    /// Whether all buffers are empty, so that the connection can park. Releases an unused send buffer
    /// permit.
    pub(super) fn is_parkable(&self) -> bool {
        self.output.borrow().len() == 0
            && self.stream.send([&[], &[]], SendMode::Flush).is_ok()
            && self.input.borrow().bytes().is_empty()
            && self.content.borrow().is_none()
            && self.release_large_send_buffer()
    }

    /// Receives bytes and appends them to the unconsumed ones.
    pub(super) async fn receive(&self) -> Received {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Sends buffered bytes without waiting. Returns whether all were sent, or accepted if `mode` defers them.
    pub(super) fn send_now(&self, mode: SendMode) -> Result<bool, CloseReason> {
        let output = &mut *self.output.borrow_mut();
        loop {
            match self.stream.send([output.rest(), &[]], mode) {
                // A send of nothing succeeds when all accepted output has left.
                Ok(sent) if sent == output.len() && (sent == 0 || mode == SendMode::Deferred) => {
                    *output = SendBuffer::default();
                    return Ok(true);
                }
                Ok(sent) => output.at += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(CloseReason::Reset),
            }
        }
    }

    /// Sends the buffered bytes in the background while the connection waits for the next request.
    pub(super) async fn send_deferred(&self) -> Result<(), CloseReason> {
        if self.send_now(SendMode::Deferred)? { Ok(()) } else { Box::pin(self.flush_waiting()).await }
    }

    /// Sends the buffered bytes.
    pub(super) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        while !self.send_now(SendMode::Flush)? {
            ready!(self.poll_writable(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits until the socket accepts bytes, or fails when the send deadline passes.
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        match self.stream.poll_writable(cx) {
            Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| CloseReason::Reset)),
            Poll::Pending => {
                self.has_waited.set(true);
                match self.worker.connections.interrupt(self.id) {
                    Interrupt::TimedOut => Poll::Ready(Err(CloseReason::SendTooSlow)),
                    _ => Poll::Pending,
                }
            }
        }
    }

    /// Sends the buffered bytes. Allocates only if it has to wait.
    pub(super) async fn flush(&self) -> Result<(), CloseReason> {
        if self.send_now(SendMode::Flush)? { Ok(()) } else { Box::pin(self.flush_waiting()).await }
    }

    /// Sends the buffered bytes and shuts down the sending side, so that the FIN leaves in the last packet. The
    /// shutdown precedes the close: closing with unread bytes would discard unsent ones.
    pub(super) async fn send_and_shutdown(&self) -> Result<(), CloseReason> {
        if !self.send_now(SendMode::MoreFollows)? {
            Box::pin(self.flush_waiting()).await?;
        }
        self.stream.shutdown(ShutdownMode::Write);
        Ok(())
    }

    pub(super) async fn flush_waiting(&self) -> Result<(), CloseReason> {
        let mut progress = self.send_progress();
        let output = std::mem::take(&mut *self.output.borrow_mut());
        self.send_parts(output.rest(), &[], &mut progress).await
    }

    /// Starts the progress of a response.
    pub(super) fn send_progress(&self) -> Progress {
        Progress {
            began: self.worker.clock.tick(),
            bytes: 0,
            timeout: self.shared.limits.send_timeout,
            min_rate: self.shared.limits.send_min_rate,
        }
    }

    /// Waits, within bounds, until the client has read its last response. An immediate close could send a reset that
    /// destroys the response (RFC 9112 §9.6).
    pub(super) async fn linger(&self) {
        self.wait_for(Deadline::Linger, LINGER_TIMEOUT);
        let mut discarded = 0u64;
        while discarded < LINGER_BYTES_MAX {
            let have = {
                let mut input = self.input.borrow_mut();
                let have = input.bytes().len();
                input.consume(have);
                have
            };
            discarded += have as u64;
            if !matches!(self.receive().await, Received::More) {
                return;
            }
        }
        // Closing now would send a reset to a client that is still sending and has not read the response. It cannot
        // send more, and gets the rest of the linger time.
        poll_fn(|_| match self.worker.connections.interrupt(self.id) {
            Interrupt::None => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Sends all of `first` and `second`.
    pub(super) async fn send_parts(
        &self,
        first: &[u8],
        second: &[u8],
        progress: &mut Progress,
    ) -> Result<(), CloseReason> {
        let mut sent = 0;
        loop {
            let parts = [&first[sent.min(first.len())..], &second[sent.saturating_sub(first.len())..]];
            let accepted = self.send_step(progress, || self.stream.send(parts, SendMode::Flush)).await?;
            if parts == [b"", b""] {
                return Ok(());
            }
            sent += accepted;
        }
    }

    /// Sends one part of a response, and waits until the socket accepts it.
    pub(super) async fn send_step(
        &self,
        progress: &mut Progress,
        mut attempt: impl FnMut() -> io::Result<usize>,
    ) -> Result<usize, CloseReason> {
        self.wait_for_progress(Deadline::ResponseProgress, progress);
        loop {
            match attempt() {
                Ok(sent) => {
                    progress.bytes += sent as u64;
                    return Ok(sent);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => poll_fn(|cx| self.poll_writable(cx)).await?,
                Err(_) => return Err(CloseReason::Reset),
            }
        }
    }
}

impl<S> Connection<S> {
    /// Returns the phase of the connection, for statistics.
    pub(super) fn phase(&self) -> Phase {
        phase_of(self.deadline())
    }
}

/// Returns the phase that belongs to a deadline.
pub(crate) fn phase_of(deadline: Deadline) -> Phase {
    match deadline {
        Deadline::None | Deadline::Upgraded => Phase::Processing,
        Deadline::RequestHead => Phase::ReadingHead,
        Deadline::RequestBody => Phase::ReadingContent,
        Deadline::ResponseProgress => Phase::Sending,
        Deadline::KeepAlive => Phase::Idle,
        Deadline::Linger => Phase::Lingering,
    }
}
