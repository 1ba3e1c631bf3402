//! The transport of one connection: socket, buffers, flushing and lingering. It knows no protocol.
//!
//! Each wait ends in one of three ways: progress, failure or end of the connection, or an interrupt from the worker.
//! Received bytes take precedence over an interrupt that arrived with them.

use crate::connection::app_context::SharedContext;
use crate::connection::large_send_buffer::LargeSendBuffer;
use crate::connection::marks::Marks;
use crate::connection::progress::{Progress, TransferLimits};
use crate::connection::receive_buffer::ReceiveBuffer;
use crate::connection::timeouts::Timeouts;
use crate::limits::{LINGER_BYTES_MAX, LINGER_TIMEOUT};
use crate::net::connection_table::{ConnectionId, Deadline, Interrupt};
use crate::net::link::Link;
use crate::net::raw::{SendBuffer, SendMode, ShutdownMode};
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::peer::Ends;
use crate::service::CloseReason;
use selvedge_proto::http1::write::CommonFields;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The transport of a connection.
pub(super) struct Transport<S> {
    pub(super) link: Link<S>,
    pub(super) timeouts: Timeouts,
    pub(super) shared: Rc<SharedContext>,
    pub(super) input: RefCell<ReceiveBuffer>,
    pub(super) output: RefCell<SendBuffer>,
    /// Permit for a larger send buffer.
    pub(super) large_send_buffer: Cell<Option<LargeSendBuffer>>,
    pub(super) ends: Ends,
    /// Moments before the next complete head.
    pub(super) marks: Marks,
    /// Whether it has waited for the client.
    has_waited: Cell<bool>,
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

impl<S: Stream> Transport<S> {
    pub(super) fn new(
        link: Link<S>,
        ends: Ends,
        id: ConnectionId,
        worker: Rc<Worker>,
        shared: Rc<SharedContext>,
    ) -> Self {
        Self {
            link,
            timeouts: Timeouts { worker, id },
            shared,
            input: RefCell::default(),
            output: RefCell::default(),
            large_send_buffer: Cell::default(),
            ends,
            marks: Marks::default(),
            has_waited: Cell::new(false),
        }
    }

    /// Marks the transport of a connection that was parked.
    pub(super) fn resumed(self) -> Self {
        self.has_waited.set(true);
        self
    }

    /// Whether it has waited for the client, so that more bytes may have arrived.
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited.get()
    }

    /// Returns the lines at the start of response heads.
    pub(super) fn common_fields(&self) -> CommonFields {
        self.shared.common_fields(self.timeouts.worker.clock.unix_seconds())
    }

    /// Returns the number of bytes in the send buffer.
    #[inline]
    pub(super) fn unsent_len(&self) -> usize {
        self.output.borrow().len()
    }

    /// Sets the deadline of a connection that waits for its next request.
    pub(super) fn wait_for_request(&self) {
        let time = self.timeouts.worker.idle_time(self.shared.limits.keep_alive_timeout);
        self.timeouts.wait_for(Deadline::KeepAlive, time);
    }

    /// Receives bytes and appends them to the unconsumed ones.
    pub(super) fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<Received> {
        let mut input = self.input.borrow_mut();
        input.compact();
        let polled = self.link.poll_receive(cx, &mut input.buffer);
        let is_stalled = match &polled {
            Poll::Pending => false,
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::WouldBlock => true,
            Poll::Ready(Ok(0)) => return Poll::Ready(Received::End),
            Poll::Ready(Ok(_)) => return Poll::Ready(Received::More),
            Poll::Ready(Err(_)) => return Poll::Ready(Received::Failed),
        };
        self.has_waited.set(true);
        match self.timeouts.interrupt() {
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

    /// Receives bytes and appends them to the unconsumed ones.
    pub(super) async fn receive(&self) -> Received {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// Receives available bytes without waiting. Returns whether any arrived.
    pub(super) async fn try_receive_more(&self) -> bool {
        poll_fn(|cx| Poll::Ready(matches!(self.poll_receive(cx), Poll::Ready(Received::More)))).await
    }

    /// Discards the unconsumed bytes. Returns how many.
    pub(super) fn discard_input(&self) -> usize {
        let mut input = self.input.borrow_mut();
        let len = input.bytes().len();
        input.consume(len);
        len
    }

    /// Sends buffered bytes without waiting. Returns whether all were sent, or accepted if `mode` defers them.
    pub(super) fn send_now(&self, mode: SendMode) -> Result<bool, CloseReason> {
        let output = &mut *self.output.borrow_mut();
        loop {
            match self.link.send([output.rest(), &[]], mode) {
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
        match self.link.poll_writable(cx) {
            Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| CloseReason::Reset)),
            Poll::Pending => {
                self.has_waited.set(true);
                match self.timeouts.interrupt() {
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
        self.link.shutdown(ShutdownMode::Write);
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
            began: self.timeouts.worker.clock.tick(),
            bytes: 0,
            limits: TransferLimits::of_responses(&self.shared.limits),
        }
    }

    /// Waits, within bounds, until the client has read its last response. An immediate close could send a reset that
    /// destroys the response (RFC 9112 §9.6).
    pub(super) async fn linger(&self) {
        self.timeouts.wait_for(Deadline::Linger, LINGER_TIMEOUT);
        self.link.discard_input();
        let mut discarded = 0u64;
        while discarded < LINGER_BYTES_MAX {
            discarded += self.discard_input() as u64;
            if !matches!(self.receive().await, Received::More) {
                return;
            }
        }
        // Closing now would send a reset to a client that is still sending and has not read the response. It cannot
        // send more, and gets the rest of the linger time.
        poll_fn(|_| match self.timeouts.interrupt() {
            Interrupt::None => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    /// Sends the buffered bytes and `bytes` together.
    pub(super) async fn send_after_buffered(&self, bytes: &[u8], progress: &mut Progress) -> Result<(), CloseReason> {
        let output = std::mem::take(&mut *self.output.borrow_mut());
        self.send_parts(output.rest(), bytes, progress).await
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
            let accepted = self.send_step(progress, || self.link.send(parts, SendMode::Flush)).await?;
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
        self.timeouts.wait_for_progress(Deadline::ResponseProgress, progress);
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
