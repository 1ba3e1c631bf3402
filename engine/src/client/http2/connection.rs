//! The state of one connection of HTTP/2, which its task and the tasks of its exchanges share.

use super::stream::{StreamFailure, StreamState};
use super::stream_queue::StreamQueue;
use crate::client::error::{ClientErrorKind, RetrySafety};
use crate::client::limits::ClientLimits;
use crate::net::clock::{Clock, Tick};
use crate::net::raw::SendBuffer;
use hashbrown::HashMap;
use selvedge_proto::http2::{self, ExtendedConnect, Millis, Role, StreamId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

/// A connection of HTTP/2.
pub(in crate::client) struct SharedConnection {
    pub(super) state: RefCell<Http2State>,
    /// The task of the connection.
    driver: Cell<Option<Waker>>,
    /// Requests that wait for a stream of this connection or of another one to the destination.
    waiting: Rc<StreamQueue>,
}

pub(super) struct Http2State {
    pub(super) protocol: http2::Connection,
    /// What the task of the connection sends next.
    pub(super) output: SendBuffer,
    pub(super) streams: HashMap<StreamId, StreamState, foldhash::fast::RandomState>,
    /// Bytes that were taken from `output`, and those that the system has accepted.
    pub(super) taken: u64,
    pub(super) sent: u64,
    /// Most streams at once, beside the limit of the upstream.
    streams_max: u32,
    /// When the last bytes arrived.
    pub(super) last_received: Tick,
    /// Whether an exchange waits for a window or for room in the output.
    pub(super) has_waiting_senders: bool,
    /// Whether no more streams are opened.
    pub(super) is_ending: bool,
    /// Whether the connection has served a request.
    pub(super) has_served: bool,
}

/// Returns the time of a client for the core of HTTP/2.
pub(super) fn millis(clock: &Clock) -> Millis {
    Millis(u64::try_from(clock.elapsed().as_millis()).unwrap_or(u64::MAX))
}

impl SharedConnection {
    pub(super) fn new(limits: &ClientLimits, clock: &Clock, waiting: Rc<StreamQueue>) -> Rc<Self> {
        let mut protocol = http2::Connection::new(Role::Client, &limits.of_http2(), millis(clock));
        let mut output = SendBuffer::default();
        protocol.start(output.bytes());
        let state = Http2State {
            protocol,
            output,
            streams: HashMap::default(),
            taken: 0,
            sent: 0,
            streams_max: limits.of_http2().streams_max,
            last_received: clock.tick(),
            has_waiting_senders: false,
            is_ending: false,
            has_served: false,
        };
        Rc::new(Self { state: RefCell::new(state), driver: Cell::default(), waiting })
    }

    /// Whether a stream can be opened now.
    pub(super) fn is_usable(&self) -> bool {
        let state = self.state.borrow();
        let streams_max = state.protocol.peer_settings().streams_max.min(state.streams_max) as usize;
        // Until the settings of the upstream arrive, its limit is not known.
        !state.is_ending && state.protocol.peer_settings().is_received && state.protocol.open_streams() < streams_max
    }

    /// Whether the settings of the upstream have arrived.
    pub(super) fn has_settings(&self) -> bool {
        self.state.borrow().protocol.peer_settings().is_received
    }

    /// Whether the upstream accepts extended CONNECT (RFC 8441).
    pub(super) fn accepts_connect(&self) -> bool {
        self.state.borrow().protocol.peer_settings().extended_connect == ExtendedConnect::Enabled
    }

    /// Calls the first request that waits for a stream, if one can be opened.
    pub(super) fn call_waiting(&self) {
        if !self.waiting.is_empty() && self.is_usable() {
            self.waiting.call_next();
        }
    }

    /// Calls the first request that waits for a stream, since another connection can be opened.
    pub(super) fn call_waiting_at_end(&self) {
        self.waiting.call_next();
    }

    /// Returns the number of open streams.
    pub(super) fn open_streams(&self) -> usize {
        self.state.borrow().protocol.open_streams()
    }

    /// Opens no more streams, and closes the connection after the last one.
    pub(in crate::client) fn retire(&self) {
        self.state.borrow_mut().is_ending = true;
        self.wake_driver();
    }

    /// Lets the task of the connection send or receive.
    pub(super) fn wake_driver(&self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    pub(super) fn set_driver(&self, cx: &Context<'_>) {
        let replaced = self.driver.replace(Some(cx.waker().clone()));
        drop(replaced);
    }
}

impl Http2State {
    /// Fails all streams, since the connection has ended. Returns the tasks to wake.
    pub(super) fn fail_all(&mut self, kind: ClientErrorKind) -> Vec<Waker> {
        self.is_ending = true;
        let sent = self.sent;
        let mut wakers = Vec::new();
        for stream in self.streams.values_mut() {
            stream.is_closed = true;
            wakers.extend(stream.waker.take());
            if !stream.has_ended() {
                let retry = if stream.head_at >= sent { RetrySafety::NotSent } else { RetrySafety::NoResponse };
                stream.fail(StreamFailure { kind, retry });
            }
        }
        wakers
    }
}
