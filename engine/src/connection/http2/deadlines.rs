//! The deadlines of a connection: one of its own, which is the first of all its streams and of the protocol.

use super::call::{ActiveRequest, Called};
use super::pending::{PendingResponse, Stall};
use super::serve::ConnectionTask;
use super::stalls::{self, WindowState};
use crate::connection::exit::Exit;
use crate::connection::progress::TransferLimits;
use crate::limits::LINGER_TIMEOUT;
use crate::net::clock::{Tick, ticks};
use crate::net::connection_table::Deadline;
use crate::net::stream::Stream;
use crate::service::{CloseReason, Observer, Service};
use selvedge_proto::http2::WindowOf;
use std::future::Future;
use std::time::Duration;

impl<S, T, O, M, F> ConnectionTask<'_, S, T, O, M, F>
where
    S: Stream,
    T: Service,
    O: Observer,
    M: Fn(ActiveRequest) -> F,
    F: Future<Output = Called>,
{
    /// Sets the deadline of what the connection waits for.
    pub(super) fn set_deadline(&mut self) {
        let limits = &self.connection.transport.shared.limits;
        let sending = TransferLimits::of_responses(limits);
        let timeouts = &self.connection.transport.timeouts;
        let now = timeouts.worker.clock.tick();
        let (mut kind, mut due) = (Deadline::None, Tick::MAX);
        let mut add = |other, other_due: Option<Tick>| {
            if let Some(other_due) = other_due.filter(|&other_due| other_due < due) {
                (kind, due) = (other, other_due);
            }
        };
        if self.is_idle() {
            let since = self.connection.idle_since.get().unwrap_or(now);
            self.connection.idle_since.set(Some(since));
            self.window_stall = None;
            // Without a stream, only this deadline and those of the protocol apply.
            let (waits_for, idle_due) = match (self.ending, self.connection.requests.get()) {
                (Some(_), _) => (Deadline::Linger, since.saturating_add(ticks(LINGER_TIMEOUT))),
                (None, 0) => (Deadline::RequestHead, self.first_due),
                (None, _) => (Deadline::KeepAlive, since.saturating_add(ticks(limits.keep_alive_timeout))),
            };
            add(waits_for, Some(idle_due));
        } else {
            self.connection.idle_since.set(None);
            add(Deadline::ResponseProgress, self.sending.due(sending));
            if !self.connection.contents.borrow().is_empty() {
                add(Deadline::RequestBody, self.connection.contents.borrow().due(TransferLimits::of_content(limits)));
            }
            let protocol = self.connection.protocol.borrow();
            let mut stalled = WindowState::Open;
            for (_, response) in self.streams.responses_mut() {
                let closed_window = protocol.closed_window(response.active.stream);
                stalls::update(response, closed_window, now);
                let waits = closed_window.is_some() && response.waits_for_window();
                // A client that sends content may read the response after it.
                let is_uploading = waits && stalls::has_arrived(response, &self.connection.contents.borrow());
                if is_uploading {
                    stalls::restart(&mut response.stall, now);
                    stalls::restart(&mut self.window_stall, now);
                }
                if waits && closed_window == Some(WindowOf::Connection) {
                    stalled = WindowState::Closed;
                }
                add(Deadline::ResponseProgress, stalls::due(response.stall.as_ref(), sending));
            }
            stalls::update_stall(&mut self.window_stall, stalled, now);
            add(Deadline::ResponseProgress, stalls::due(self.window_stall.as_ref(), sending));
        }
        if let Some(protocol_due) = self.connection.protocol.borrow().deadline() {
            let from_now = protocol_due.0.saturating_sub(self.connection.now().0);
            let protocol_due = now.saturating_add(ticks(Duration::from_millis(from_now)));
            if protocol_due < due {
                due = protocol_due;
            }
        }
        if self.deadline != Some((kind, due)) {
            self.deadline = Some((kind, due));
            timeouts.wait_until(kind, due);
        }
    }

    /// Acts on the deadlines that have passed.
    pub(super) fn on_timeout(&mut self) -> Result<(), Exit> {
        let connection = self.connection;
        let limits = &connection.transport.shared.limits;
        let sending = TransferLimits::of_responses(limits);
        let now = connection.transport.timeouts.worker.clock.tick();
        let protocol_now = connection.now();
        let expired = connection.with_protocol(|protocol, out| match protocol.deadline() {
            Some(due) if due <= protocol_now => protocol.expired(protocol_now, out),
            _ => Ok(()),
        });
        expired.map_err(|error| Exit::Closed(CloseReason::Http2(error)))?;
        if self.sending.due(sending).is_some_and(|due| due <= now) {
            return Err(Exit::Closed(CloseReason::SendTooSlow));
        }
        if self.is_idle() {
            return self.on_idle_timeout(now);
        }
        let discarded = connection.contents.borrow_mut().remove_slow_discards(now, TransferLimits::of_content(limits));
        for stream in discarded {
            connection.refuse_content(stream);
        }
        let readers = connection.contents.borrow_mut().fail_slow(now, TransferLimits::of_content(limits));
        for reader in readers {
            reader.wake();
        }
        let is_due = |stall: Option<&Stall>| stalls::due(stall, sending).is_some_and(|due| due <= now);
        let is_window_due = is_due(self.window_stall.as_ref());
        let is_stalled = |response: &PendingResponse| {
            let closed_window = connection.protocol.borrow().closed_window(response.active.stream);
            let waits_for_window = closed_window == Some(WindowOf::Connection) && response.waits_for_window();
            is_due(response.stall.as_ref()) || is_window_due && waits_for_window
        };
        let stalled = self.streams.responses_mut().filter(|(_, response)| is_stalled(response));
        let stalled: Vec<u32> = stalled.map(|(place, _)| place).collect();
        for place in stalled {
            self.end_response(place, Err(CloseReason::SendTooSlow));
        }
        self.check_end()
    }

    fn on_idle_timeout(&mut self, now: Tick) -> Result<(), Exit> {
        // A request may have arrived together with the interrupt.
        let Some(since) = self.connection.idle_since.get() else { return self.check_end() };
        let idle_for = now.saturating_sub(since);
        match (self.ending, self.connection.requests.get()) {
            (Some(reason), _) if idle_for >= ticks(LINGER_TIMEOUT) => return Err(Exit::Closed(reason)),
            (None, 0) if self.first_due <= now => self.begin_ending(CloseReason::NothingReceived),
            // The worker shortens the timeout near the connection limit.
            (None, 1..) => self.begin_ending(CloseReason::KeepAliveTimeout),
            _ => {}
        }
        self.check_end()
    }
}
