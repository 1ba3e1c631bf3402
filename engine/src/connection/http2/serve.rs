//! The task of a connection: takes turns until the connection ends or parks.
//!
//! In a turn it receives, calls the application, and sends. All frames of a turn leave in one send.

use super::call::{ActiveRequest, Called, call, finish_content};
use super::connection::Connection;
use super::data_frame::SendStep;
use super::output::Outgoing;
use super::pending::{Stall, poll_end, poll_send};
use super::refusal::RefusedStreams;
use super::repeated_head::RepeatedHead;
use super::respond::{AfterHead, respond};
use super::sending::Sending;
use super::streams::Streams;
use crate::connection::app_context::{AppContext, AppState};
use crate::connection::exit::Exit;
use crate::connection::receive_buffer::ReceiveBuffer;
use crate::connection::timeouts::abort_reason;
use crate::connection::transport::Received;
use crate::limits::{BUFFER_BYTES, BYTES_PER_YIELD, UNSENT_BYTES_MAX};
use crate::net::clock::Tick;
use crate::net::connection_table::{Deadline, Interrupt};
use crate::net::panic;
use crate::net::raw::{SendMode, ShutdownMode};
use crate::net::runtime::yield_now;
use crate::net::stream::Stream;
use crate::service::{CloseReason, ContentError, Observer, ServerEvent, Service};
use selvedge_proto::Persistence;
use selvedge_proto::http2::{Content, ErrorCode, Event, StreamId};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Turns with progress before the task yields.
const TURNS_PER_YIELD: u32 = 64;

/// Serves streams until the connection ends or parks.
pub(in crate::connection) async fn serve<S: Stream, T: Service, O: Observer>(
    connection: &Rc<Connection<S>>,
    app: &AppContext<T, O>,
) -> Exit {
    let mut task = ConnectionTask {
        connection,
        app,
        call: |active| call(connection, app, active),
        streams: Streams::new(),
        ready: Vec::new(),
        scratch: Vec::new(),
        task: None,
        deadline: None,
        first_due: connection.first_due(),
        ending: None,
        closed: None,
        sending: Sending::default(),
        window_stall: None,
        refused: RefusedStreams::default(),
        repeated_head: RepeatedHead::default(),
    };
    let exit = poll_fn(|cx| task.poll(cx)).await;
    if let Exit::Closed(reason) = exit {
        task.closed = Some(reason);
        drop(task);
        // Tasks of the application learn it before the connection lingers.
        connection.end_contents();
        let transport = &connection.transport;
        let is_sent = transport.send_now(SendMode::MoreFollows).unwrap_or(false);
        if is_sent && may_linger(reason) {
            transport.link.shutdown(ShutdownMode::Write);
            transport.linger().await;
        }
    }
    exit
}

/// Whether the client may still send when the connection closes, which would destroy what it has not read.
fn may_linger(reason: CloseReason) -> bool {
    use CloseReason::{AppReplaced, ClientClosed, ClosedAfterResponse, Draining, Http2};
    // A client that has sent GOAWAY still sends WINDOW_UPDATE frames for the responses that it receives.
    matches!(reason, AppReplaced | ClientClosed | ClosedAfterResponse | Draining | Http2(_))
}

/// Whether a response ends because a time limit has passed.
fn is_late(reason: CloseReason) -> bool {
    use CloseReason::{AppReplacedTimeout, ContentTooSlow, SendTooSlow, ShutdownTimeout};
    matches!(reason, ContentTooSlow | SendTooSlow | AppReplacedTimeout | ShutdownTimeout)
}

/// What a turn has received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Receipt {
    Bytes,
    Nothing,
    /// Nothing was tried, because too many bytes are unsent.
    Held,
}

/// What the task of a connection knows.
pub(super) struct ConnectionTask<'a, S: Stream, T, O: Observer, M, F> {
    pub(super) connection: &'a Rc<Connection<S>>,
    pub(super) app: &'a AppContext<T, O>,
    call: M,
    pub(super) streams: Streams<F>,
    ready: Vec<u32>,
    scratch: Vec<u8>,
    task: Option<Waker>,
    /// The deadline that was set last.
    pub(super) deadline: Option<(Deadline, Tick)>,
    /// When the first request has to be there.
    pub(super) first_due: Tick,
    /// Why the connection ends when its streams are complete.
    pub(super) ending: Option<CloseReason>,
    /// Why the connection has ended.
    closed: Option<CloseReason>,
    pub(super) sending: Sending,
    /// Set while the client does not open the window of the connection, for which responses wait.
    pub(super) window_stall: Option<Stall>,
    pub(super) refused: RefusedStreams,
    pub(super) repeated_head: RepeatedHead,
}

impl<S, T, O, M, F> ConnectionTask<'_, S, T, O, M, F>
where
    S: Stream,
    T: Service,
    O: Observer,
    M: Fn(ActiveRequest) -> F,
    F: Future<Output = Called>,
{
    /// Takes turns until nothing can be done without waiting.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Exit> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            self.streams.queue.set_task(cx.waker());
            self.task = Some(cx.waker().clone());
        }
        self.connection.is_in_turn.set(true);
        let polled = self.poll_turns(cx);
        self.connection.is_in_turn.set(false);
        match polled {
            Ok(()) => Poll::Pending,
            Err(exit) => Poll::Ready(exit),
        }
    }

    fn poll_turns(&mut self, cx: &mut Context<'_>) -> Result<(), Exit> {
        let mut sent_bytes = 0;
        for _ in 0..TURNS_PER_YIELD {
            let received = self.receive(cx)?;
            self.poll_ready();
            let has_content = self.fill_output() || self.sending.is_cut();
            let unsent = self.connection.transport.unsent_len();
            let is_sent = self.sending.flush(&self.connection.transport, cx).map_err(Exit::Closed)?;
            sent_bytes += unsent;
            self.check_end()?;
            let can_continue = match received {
                Receipt::Bytes => true,
                Receipt::Nothing => has_content && is_sent,
                Receipt::Held => is_sent,
            };
            if !can_continue {
                return self.wait();
            }
            if sent_bytes >= BYTES_PER_YIELD {
                break;
            }
        }
        let interrupt = self.connection.transport.timeouts.interrupt();
        if matches!(interrupt, Interrupt::TimedOut | Interrupt::AbortStreams) {
            // A connection that is always busy has deadlines, too.
            self.wait()?;
        }
        // A plain wake-up would run this task again, dozens of times, before the runtime looks for new input of the socket.
        let _ = pin!(yield_now()).poll(cx);
        Ok(())
    }

    /// Receives and processes available bytes.
    fn receive(&mut self, cx: &mut Context<'_>) -> Result<Receipt, Exit> {
        let transport = &self.connection.transport;
        if transport.unsent_len() > UNSENT_BYTES_MAX {
            return Ok(Receipt::Held);
        }
        // The bytes that chose this protocol, or that follow a turn with much output, are there already.
        let has_input = !transport.input.borrow().bytes().is_empty();
        match if has_input { Poll::Ready(Received::More) } else { transport.poll_receive(cx) } {
            Poll::Ready(Received::More) => {
                let mut input = std::mem::take(&mut *transport.input.borrow_mut());
                let is_bulk = input.buffer.as_ref().is_some_and(|buffer| buffer.len() >= BUFFER_BYTES);
                self.process(&mut input)?;
                if !input.bytes().is_empty() {
                    transport.input.replace(input);
                } else if is_bulk {
                    // Bulk content is received with fewer calls into a longer buffer.
                    transport.input.borrow_mut().use_long_buffer();
                }
                Ok(Receipt::Bytes)
            }
            Poll::Ready(Received::End) => Err(Exit::Closed(match self.ending {
                Some(reason) => reason,
                None if self.streams.is_empty() => CloseReason::ClientClosed,
                None => CloseReason::ClientDisconnected,
            })),
            Poll::Ready(Received::Failed) => Err(Exit::Closed(CloseReason::Reset)),
            Poll::Ready(Received::SendStalled) => {
                // Messages of the session wait, and their time is limited as that of responses.
                let now = transport.timeouts.worker.clock.tick();
                self.sending.begin_wait(now);
                Ok(Receipt::Nothing)
            }
            Poll::Ready(Received::Interrupted(_)) | Poll::Pending => Ok(Receipt::Nothing),
        }
    }

    /// Processes received bytes. Leaves some if much output was written: requests are short, and responses are not.
    fn process(&mut self, input: &mut ReceiveBuffer) -> Result<(), Exit> {
        let now = self.connection.now();
        loop {
            let bytes = input.bytes();
            let step = self.connection.with_protocol(|protocol, out| protocol.receive(bytes, now, out));
            let step = step.map_err(|error| {
                self.refused.report(self.connection.transport.ends.peer, &self.app.observer);
                Exit::Closed(CloseReason::Http2(error))
            })?;
            let is_done = step.event.is_none();
            if let Some(event) = step.event {
                self.on_event(event, bytes);
            }
            input.consume(step.consumed);
            if is_done || self.connection.transport.unsent_len() > UNSENT_BYTES_MAX {
                self.refused.report(self.connection.transport.ends.peer, &self.app.observer);
                return Ok(());
            }
        }
    }

    fn on_event(&mut self, event: Event, input: &[u8]) {
        match event {
            Event::Headers { stream, end, section } => self.begin_request(stream, end, section),
            Event::Data { stream, content, end } => self.connection.store_content(stream, &input[content], end),
            Event::Trailers { stream, .. } => self.end_content(stream),
            Event::Reset { stream, cause, .. } => self.on_reset(stream, cause),
            Event::GoAway { .. } => {
                self.ending.get_or_insert(CloseReason::ClientClosed);
            }
            Event::Writable | Event::PingAcknowledged { .. } => {}
        }
    }

    /// Calls the application for a request.
    pub(super) fn start_call(&mut self, active: ActiveRequest) {
        let stream = active.stream;
        if let Some(called) = self.streams.start(stream, (self.call)(active)) {
            self.respond(called);
        }
    }

    /// Writes a response, and keeps what cannot be sent now.
    pub(super) fn respond(&mut self, called: Called) {
        if called.response.persistence() == Persistence::Close {
            self.begin_ending(CloseReason::ClosedAfterResponse);
        }
        if let AfterHead::Content(response) = respond(self.connection, self.app, called) {
            let stream = response.active.stream;
            let place = self.streams.keep(response);
            if let Some(reason) = self.ending {
                self.streams.announce_stop(reason);
            }
            self.continue_response(place, stream);
        }
    }

    /// Continues the calls and responses that were woken.
    fn poll_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.streams.queue.take(&mut ready);
        for place in ready.drain(..) {
            if let Some(called) = self.streams.poll_call(place) {
                self.respond(called);
            } else if let Some(stream) = self.streams.stream_of_response(place) {
                self.continue_response(place, stream);
            }
        }
        self.ready = ready;
    }

    /// Writes content in the order of priorities until the send buffer is full. Returns whether any was written.
    fn fill_output(&mut self) -> bool {
        let mut has_written = false;
        while let Some(turn) = self.sending.next_turn(self.connection) {
            let place = self.streams.find(turn.stream);
            let Some((place, (response, mut cx))) = place.and_then(|at| Some((at, self.streams.response_mut(at)?)))
            else {
                // A stream without a response has nothing to send.
                self.connection.protocol.borrow_mut().set_content(turn.stream, Content::Waiting);
                continue;
            };
            let before = response.record.content_bytes;
            let (connection, scratch) = (self.connection, &mut self.scratch);
            let sent = catch(self.app, connection, || poll_send(connection, response, turn, scratch, &mut cx));
            if let Some(stall) = &mut self.window_stall {
                stall.bytes += response.record.content_bytes - before;
            }
            let may_have_ended = matches!(
                (&sent, &response.content),
                (Poll::Ready(SendStep::More(_)), Outgoing::Stream(_) | Outgoing::Tunnel(_))
            );
            has_written |= sent.is_ready();
            self.after_send(place, turn.stream, sent);
            if may_have_ended && connection.protocol.borrow().sendable(turn.stream) == 0 {
                self.continue_response(place, turn.stream);
            }
        }
        has_written
    }

    /// Continues a response that may have content. Without a window, it may still end.
    fn continue_response(&mut self, place: u32, stream: StreamId) {
        let connection = self.connection;
        connection.protocol.borrow_mut().set_content(stream, Content::Ready);
        let can_send = connection.protocol.borrow().sendable(stream) > 0;
        if can_send && !self.sending.waits() {
            return;
        }
        let Some((response, mut cx)) = self.streams.response_mut(place) else { return };
        if can_send {
            return response.content.poll_progress(&mut cx);
        }
        let sent = catch(self.app, connection, || poll_end(connection, response, &mut cx));
        self.after_send(place, stream, sent);
    }

    /// Acts on what a response has sent.
    fn after_send(&mut self, place: u32, stream: StreamId, sent: Poll<SendStep>) {
        match sent {
            Poll::Ready(SendStep::More(_)) => {}
            Poll::Ready(SendStep::All(_)) => self.end_response(place, Ok(())),
            Poll::Ready(SendStep::Failed(reason)) => self.end_response(place, Err(reason)),
            Poll::Pending => self.connection.protocol.borrow_mut().set_content(stream, Content::Waiting),
        }
    }

    /// Reports a response that is complete or has failed.
    pub(super) fn end_response(&mut self, place: u32, outcome: Result<(), CloseReason>) {
        let Some(mut response) = self.streams.remove(place) else { return };
        let stream = response.active.stream;
        let outcome = outcome.map_err(|reason| match self.connection.failure_of_content(stream) {
            // The application fails its response, as it cannot read the content.
            Some(ContentError::TooSlow) if reason == CloseReason::StreamFailed => CloseReason::ContentTooSlow,
            _ => reason,
        });
        match outcome {
            Ok(()) => finish_content(&mut response.active, self.connection),
            Err(reason) => {
                self.connection.drop_content(stream);
                let code = if is_late(reason) { ErrorCode::CANCEL } else { ErrorCode::INTERNAL_ERROR };
                self.connection.reset(stream, code);
            }
        }
        response.finish(outcome, self.connection, self.app);
    }

    /// Cancels the call or the response of a stream that was reset.
    pub(super) fn cancel(&mut self, stream: StreamId, reason: CloseReason) {
        let connection = self.connection;
        connection.cancel_reason.set(reason);
        connection.drop_content(stream);
        let Some(place) = self.streams.find(stream) else { return };
        if let Some(response) = self.streams.remove(place) {
            response.finish(Err(reason), connection, self.app);
        }
    }

    /// Begins to end the connection: no new stream is accepted, and open ones are completed.
    pub(super) fn begin_ending(&mut self, reason: CloseReason) {
        // A client that ends the connection does not know that the server does.
        if matches!(self.ending, None | Some(CloseReason::ClientClosed)) {
            self.ending = Some(reason);
            self.connection.idle_since.set(None);
            let now = self.connection.now();
            self.connection.with_protocol(|protocol, out| protocol.begin_shutdown(now, out));
            self.streams.announce_stop(reason);
        }
    }

    /// Ends the connection if nothing is left to do.
    pub(super) fn check_end(&mut self) -> Result<(), Exit> {
        let transport = &self.connection.transport;
        if transport.timeouts.worker.is_draining() {
            self.begin_ending(CloseReason::Draining);
        } else if self.app.shared.app_state.get() == AppState::Replaced {
            self.begin_ending(CloseReason::AppReplaced);
        }
        match self.ending {
            Some(reason) if self.is_idle() && self.connection.protocol.borrow().is_finished() => {
                Err(Exit::Closed(reason))
            }
            _ => Ok(()),
        }
    }

    /// Handles the interrupts of a wait, and sets its deadline.
    fn wait(&mut self) -> Result<(), Exit> {
        let connection = self.connection;
        let timeouts = &connection.transport.timeouts;
        match timeouts.interrupt() {
            Interrupt::None | Interrupt::Abort => {}
            Interrupt::TimedOut => {
                timeouts.clear_interrupt();
                self.deadline = None;
                self.on_timeout()?;
            }
            Interrupt::Evict => {
                timeouts.clear_interrupt();
                if self.is_idle() {
                    // The place is needed at once, so the client gets no time for a last request.
                    connection.with_protocol(|protocol, out| protocol.finish_shutdown(out));
                    return Err(Exit::Closed(CloseReason::Evicted));
                }
            }
            Interrupt::Drain => {
                timeouts.clear_interrupt();
                self.check_end()?;
                // A lease that kept a stream of another protocol may have ended since then.
                if let Some(reason) = self.ending {
                    self.streams.announce_stop(reason);
                }
            }
            Interrupt::AbortStreams => {
                timeouts.clear_interrupt();
                // Requests without a response continue, because an open request is completed.
                for place in self.streams.unleased() {
                    self.end_response(place, Err(abort_reason(&timeouts.worker)));
                }
                self.check_end()?;
            }
            Interrupt::Park => {
                timeouts.clear_interrupt();
                if self.is_idle() && self.ending.is_none() && connection.is_parkable() {
                    return Err(Exit::Parked);
                }
            }
        }
        // What an interrupt has written leaves with the next turn.
        if connection.transport.unsent_len() > 0
            && !self.sending.waits()
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
        self.set_deadline();
        Ok(())
    }

    pub(super) fn is_idle(&self) -> bool {
        let transport = &self.connection.transport;
        let has_requests = !self.streams.is_empty() || !self.connection.contents.borrow().is_empty();
        !has_requests && transport.unsent_len() == 0 && !self.sending.waits()
    }
}

impl<S: Stream, T, O: Observer, M, F> Drop for ConnectionTask<'_, S, T, O, M, F> {
    /// Cancels the calls and reports the responses that are not complete.
    fn drop(&mut self) {
        let reason = match self.closed {
            Some(CloseReason::ClientClosed) => CloseReason::ClientDisconnected,
            Some(reason) => reason,
            None => abort_reason(&self.connection.transport.timeouts.worker),
        };
        self.connection.cancel_reason.set(reason);
        self.connection.has_ended.set(true);
        for response in self.streams.clear() {
            response.finish(Err(reason), self.connection, self.app);
        }
    }
}

/// Polls content of a response. A panic of the application fails this response, and not the others.
fn catch<S: Stream, T, O: Observer>(
    app: &AppContext<T, O>,
    connection: &Connection<S>,
    poll: impl FnOnce() -> Poll<SendStep>,
) -> Poll<SendStep> {
    panic::catch(poll).unwrap_or_else(|message| {
        app.observer.event(&ServerEvent::Panic { peer: connection.transport.ends.peer, message });
        Poll::Ready(SendStep::Failed(CloseReason::Panicked))
    })
}
