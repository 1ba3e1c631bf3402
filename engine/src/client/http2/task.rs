//! The task of a connection: receives, sorts what arrives to the streams, and sends what they have written.

use super::connection::{Http2State, SharedConnection, millis};
use super::guard::OpeningGuard;
use super::stream::{StreamFailure, StreamHead, StreamState};
use crate::client::error::{ClientError, ClientErrorKind, ClientPhase, RetrySafety};
use crate::client::limits::{HTTP2_OUTPUT_BYTES_MAX, INTERIM_RESPONSES_MAX};
use crate::client::table::Lease;
use crate::net::clock::{Tick, ticks};
use crate::net::runtime::spawn_local;
use selvedge_proto::StatusCode;
use selvedge_proto::field::Fields;
use selvedge_proto::field_section::{DecodedFields, check_response, read_trailers};
use selvedge_proto::forward::forward_response;
use selvedge_proto::http2::{End, ErrorCode, Event, ResetCause, StreamId};
use selvedge_proto::limits::MessageLimits;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Received buffers before other tasks run.
const RECEIVES_PER_YIELD: usize = 16;

/// Moves the bytes of one connection.
pub(super) struct Http2Task {
    lease: Lease,
    shared: Rc<SharedConnection>,
    /// Ends when the settings of the upstream have arrived.
    opening: Option<OpeningGuard>,
    /// Tasks to wake after the state is no longer borrowed.
    wakers: Vec<Waker>,
}

impl Http2Task {
    /// Starts the task of a connection. It ends with the connection.
    pub(super) fn spawn(lease: Lease, shared: Rc<SharedConnection>, opening: OpeningGuard) {
        let mut task = Self { lease, shared, opening: Some(opening), wakers: Vec::new() };
        spawn_local(async move {
            let kind = poll_fn(|cx| task.poll_run(cx)).await;
            task.end(kind);
        });
    }

    /// Ends the connection and all streams.
    fn end(mut self, kind: ClientErrorKind) {
        let group = self.lease.connection().group.clone();
        group.shared_connections.borrow_mut().retain(|other| !Rc::ptr_eq(other, &self.shared));
        self.lease.connection().close();
        if let Some(opening) = &mut self.opening {
            opening.fail(ClientError::new(ClientPhase::Connect, kind, RetrySafety::NotSent));
        }
        let wakers = self.shared.state.borrow_mut().fail_all(kind);
        wakers.into_iter().for_each(Waker::wake);
        self.shared.call_waiting_at_end();
    }

    /// Runs until the connection ends, and returns why.
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<ClientErrorKind> {
        self.shared.set_driver(cx);
        let result = self.poll_bytes(cx);
        self.wakers.drain(..).for_each(Waker::wake);
        match result {
            Err(kind) => Poll::Ready(kind),
            Ok(()) if self.is_finished() => Poll::Ready(ClientErrorKind::Closed),
            Ok(()) => self.poll_deadline(cx),
        }
    }

    /// Receives and sends what is possible now.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Result<(), ClientErrorKind> {
        let mut receives = 0;
        loop {
            let is_flushed = self.poll_flush(cx)?;
            // Replies to an upstream that does not read are bounded.
            if !is_flushed && self.shared.state.borrow().output.len() >= HTTP2_OUTPUT_BYTES_MAX {
                return Ok(());
            }
            let Poll::Ready(received) = self.lease.connection().poll_receive(cx) else { return Ok(()) };
            if received.map_err(|error| ClientErrorKind::of_io(&error))? == 0 {
                return Err(ClientErrorKind::Closed);
            }
            self.process()?;
            receives += 1;
            if receives == RECEIVES_PER_YIELD {
                cx.waker().wake_by_ref();
                self.poll_flush(cx)?;
                return Ok(());
            }
        }
    }

    /// Sends what was written. Returns whether all of it was accepted.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Result<bool, ClientErrorKind> {
        let connection = self.lease.connection();
        loop {
            let flushed = connection.poll_flush(cx);
            let mut state = self.shared.state.borrow_mut();
            state.sent = connection.sent;
            match flushed {
                Poll::Pending => return Ok(false),
                Poll::Ready(result) => result.map_err(|error| ClientErrorKind::of_io(&error))?,
            }
            if state.output.len() == 0 {
                return Ok(true);
            }
            state.taken += state.output.len() as u64;
            connection.output = std::mem::take(&mut state.output);
            wake_senders(&mut state, &mut self.wakers);
        }
    }

    /// Processes all received bytes.
    fn process(&mut self) -> Result<(), ClientErrorKind> {
        let now = millis(&self.lease.table.clock);
        let limits = self.lease.table.limits.message;
        let input = self.lease.connection().input.take_all();
        let mut state = self.shared.state.borrow_mut();
        state.last_received = self.lease.table.clock.tick();
        let mut at = 0;
        loop {
            let Http2State { protocol, output, .. } = &mut *state;
            let step = match protocol.receive(&input[at..], now, output.bytes()) {
                Ok(step) => step,
                Err(error) => {
                    // The last frame tells the upstream why.
                    drop(state);
                    let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
                    return Err(ClientErrorKind::Http2(error));
                }
            };
            let Some(event) = step.event else {
                wake_senders(&mut state, &mut self.wakers);
                let has_settings = state.protocol.peer_settings().is_received;
                drop(state);
                if has_settings {
                    self.opening = None;
                }
                self.shared.call_waiting();
                return Ok(());
            };
            let rest = &input[at..];
            at += step.consumed;
            Events { state: &mut state, wakers: &mut self.wakers, limits: &limits }.apply(event, rest);
        }
    }

    /// Whether no stream is open and none will be.
    fn is_finished(&self) -> bool {
        let state = self.shared.state.borrow();
        state.is_ending && state.streams.is_empty() && state.output.len() == 0
    }

    /// Acts on the deadline of the protocol or of an idle connection.
    fn poll_deadline(&mut self, cx: &Context<'_>) -> Poll<ClientErrorKind> {
        let table = self.lease.table.clone();
        let mut state = self.shared.state.borrow_mut();
        let now = millis(&table.clock);
        let Http2State { protocol, output, streams, .. } = &mut *state;
        let due = protocol.deadline().map(|deadline| Duration::from_millis(deadline.0.saturating_sub(now.0)));
        let idle = streams.is_empty().then_some(table.limits.idle_timeout);
        let Some(wait) = due.into_iter().chain(idle).min() else {
            self.lease.end_wait();
            return Poll::Pending;
        };
        let deadline = if ticks(wait) == 0 { Tick::MIN } else { table.clock.tick_after(wait) };
        if !self.lease.wait_until(deadline, cx) {
            return Poll::Pending;
        }
        if let Err(error) = protocol.expired(now, output.bytes()) {
            return Poll::Ready(ClientErrorKind::Http2(error));
        }
        if idle.is_some_and(|idle| idle <= wait) {
            return Poll::Ready(ClientErrorKind::Closed);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Wakes the exchanges that wait for a window or for room in the output, if they can go on.
fn wake_senders(state: &mut Http2State, wakers: &mut Vec<Waker>) {
    let Http2State { protocol, output, streams, has_waiting_senders, .. } = state;
    if !*has_waiting_senders || output.len() >= HTTP2_OUTPUT_BYTES_MAX {
        return;
    }
    *has_waiting_senders = false;
    for (id, stream) in streams.iter_mut().filter(|(_, stream)| stream.awaits_window) {
        if protocol.sendable(*id) > 0 {
            stream.awaits_window = false;
            wakers.extend(stream.waker.take());
        } else {
            *has_waiting_senders = true;
        }
    }
}

/// Applies events to the streams.
struct Events<'a> {
    state: &'a mut Http2State,
    wakers: &'a mut Vec<Waker>,
    limits: &'a MessageLimits,
}

impl Events<'_> {
    fn apply(&mut self, event: Event, input: &[u8]) {
        match event {
            Event::Headers { stream, end, .. } => self.receive_head(stream, end),
            Event::Data { stream, content, end } => {
                let is_known = self.with_stream(stream, |stream| {
                    stream.push(&input[content.clone()]);
                    stream.is_complete |= end == End::Last;
                });
                if !is_known {
                    // The exchange was dropped, and the connection's window stays open for the others.
                    let Http2State { protocol, output, .. } = &mut *self.state;
                    protocol.consumed(stream, content.len(), output.bytes());
                }
            }
            Event::Trailers { stream, .. } => {
                let trailers = read_trailers(self.state.protocol.fields(), self.limits);
                self.with_stream(stream, |stream| match trailers {
                    Ok(trailers) => {
                        stream.trailers = Some(trailers);
                        stream.is_complete = true;
                    }
                    Err(error) => stream.fail(StreamFailure {
                        kind: ClientErrorKind::MalformedSection(error),
                        retry: RetrySafety::Never,
                    }),
                });
            }
            Event::Reset { stream, code, cause } => {
                let (kind, retry) = match cause {
                    // The upstream has ended the connection, and the request crossed that.
                    ResetCause::NotProcessed => (ClientErrorKind::Closed, RetrySafety::NotSent),
                    ResetCause::Peer if code == ErrorCode::REFUSED_STREAM => {
                        (ClientErrorKind::StreamReset(code), RetrySafety::NotSent)
                    }
                    ResetCause::Peer => (ClientErrorKind::StreamReset(code), RetrySafety::NoResponse),
                    ResetCause::Violation(error) => (ClientErrorKind::MalformedStream(error), RetrySafety::NoResponse),
                };
                self.with_stream(stream, |stream| {
                    stream.is_closed = true;
                    if !stream.has_ended() {
                        stream.fail(StreamFailure { kind, retry });
                    }
                });
            }
            Event::GoAway { .. } => self.state.is_ending = true,
            // Each exchange has its own place in the output, so windows are looked at after all events.
            Event::Writable | Event::PingAcknowledged { .. } => {}
        }
    }

    /// Acts on a stream that an exchange holds, and wakes the exchange. Returns whether one does.
    fn with_stream(&mut self, id: StreamId, act: impl FnOnce(&mut StreamState)) -> bool {
        let Some(stream) = self.state.streams.get_mut(&id) else { return false };
        act(stream);
        self.wakers.extend(stream.waker.take());
        true
    }

    /// Receives the head of a response, or an interim response.
    fn receive_head(&mut self, id: StreamId, end: End) {
        let Http2State { protocol, output, streams, .. } = &mut *self.state;
        let Some(stream) = streams.get_mut(&id) else { return };
        let failure = match check_response(protocol.fields(), end.into()) {
            Err(error) => Some(ClientErrorKind::MalformedSection(error)),
            Ok(section) if section.status.is_interim() => {
                stream.interim_count += 1;
                if stream.interim_count > INTERIM_RESPONSES_MAX {
                    Some(ClientErrorKind::InterimTooMany)
                } else {
                    if section.status != StatusCode::CONTINUE {
                        stream.interim.push((section.status, fields_of(protocol.fields())));
                    }
                    None
                }
            }
            Ok(section) => {
                let has_ended = end == End::Last;
                let is_tunnel = stream.is_connect && is_success(section.status);
                //= RFC 9110 §9.3.6: the client ignores Content-Length of such a response
                let has_no_content = is_tunnel || stream.is_head || section.status.forbids_content();
                let length = match section.content_length {
                    None if has_ended && !has_no_content => Some(0),
                    length => length,
                };
                let fields = fields_of(protocol.fields());
                stream.head = Some(StreamHead { status: section.status, fields, length });
                stream.has_head = true;
                stream.is_complete = has_ended;
                let expected = match section.content_length {
                    _ if is_tunnel => None,
                    //= RFC 9113 §8.1.1: without content, whatever length is announced, no DATA has a payload
                    _ if has_no_content => Some(0),
                    announced => announced,
                };
                expected.and_then(|expected| {
                    let error = protocol.expect_content(id, expected, output.bytes()).err()?;
                    Some(ClientErrorKind::MalformedStream(error))
                })
            }
        };
        if let Some(kind) = failure {
            stream.has_head = true;
            stream.fail(StreamFailure { kind, retry: RetrySafety::Never });
            protocol.reset(id, ErrorCode::PROTOCOL_ERROR, output.bytes());
        }
        self.wakers.extend(stream.waker.take());
    }
}

/// Whether a status is 2xx, by which an upstream accepts CONNECT.
pub(super) fn is_success(status: StatusCode) -> bool {
    (200..300).contains(&status.code())
}

/// Returns the fields of a section that a gateway forwards.
fn fields_of(section: &DecodedFields) -> Fields {
    let mut fields = crate::service::spare_fields();
    let regular = section.iter().filter(|field| !field.class.is_pseudo());
    // The names and values were checked.
    let _ = forward_response(regular.map(|field| (field.name, field.value)), &mut fields);
    fields
}
