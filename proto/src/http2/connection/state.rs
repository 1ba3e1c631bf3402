//! The state of a connection that received and sent frames share.

use super::reset_streams::ResetStreams;
use super::{End, Event, Millis, ResetCause, Role, StreamId};
use crate::http2::budget::{Budget, Waste};
use crate::http2::error::{ErrorCode, StreamError};
use crate::http2::flow::{ReceiveWindow, SendWindow};
use crate::http2::frame::{write_goaway, write_rst_stream, write_window_update};
use crate::http2::hpack::{Decoder, Encoder, INITIAL_TABLE_BYTES};
use crate::http2::limits::{Http2Limits, WINDOW_INITIAL};
use crate::http2::priority::Priority;
use crate::http2::settings::PeerSettings;
use crate::http2::stream::{Side, Slot};
use crate::http2::stream_table::StreamTable;

/// How far a graceful shutdown by this endpoint is (RFC 9113 §6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    /// It has not begun.
    No,
    /// The peer was informed, and may open streams until it acknowledges PING or this moment.
    Announced { until: Millis },
    /// Streams above `last_stream` are ignored.
    Final { last_stream: u32 },
}

/// What [`Decoder::fields`] was reported as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastSection {
    Head,
    Trailers,
    /// The section was not reported.
    Discarded,
}

/// The payload of the PING between the two GOAWAY frames of a shutdown.
pub(super) const SHUTDOWN_PING: [u8; 8] = *b"shutdown";

/// The last stream of a GOAWAY that refuses no stream yet (RFC 9113 §6.8).
pub(super) const LAST_STREAM_MAX: u32 = (1 << 31) - 1;

#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) role: Role,
    pub(super) limits: Http2Limits,
    /// The moment of the last call that had one.
    pub(super) now: Millis,
    pub(super) decoder: Decoder,
    pub(super) encoder: Encoder,
    pub(super) last_section: LastSection,
    pub(super) streams: StreamTable,
    pub(super) resets: ResetStreams,
    pub(super) peer: PeerSettings,
    pub(super) send_window: SendWindow,
    pub(super) receive_window: ReceiveWindow,
    /// The initial window of streams that the peer knows: that of the limits, when it has acknowledged it.
    pub(super) stream_window_bytes: u32,
    pub(super) budget: Budget,
    /// The highest stream that the peer has opened.
    pub(super) last_peer_stream: u32,
    /// Identifiers that the last opened stream has skipped: from, and to (exclusive).
    pub(super) skipped: (u32, u32),
    /// The next stream that this endpoint opens (client).
    pub(super) next_own_stream: u32,
    /// When the peer must have acknowledged SETTINGS.
    pub(super) settings_deadline: Option<Millis>,
    pub(super) shutdown: Shutdown,
    /// The last stream that the peer's GOAWAY permits.
    pub(super) peer_goaway: Option<u32>,
    /// PING frames of the driver that the peer has not acknowledged.
    pub(super) pings: u32,
    /// Priorities for streams that the peer has not opened yet, oldest first (RFC 9218 §7.1).
    pub(super) early_priorities: Vec<(StreamId, Priority)>,
}

impl ConnectionState {
    pub(super) fn new(role: Role, limits: &Http2Limits, now: Millis) -> Self {
        let limits = limits.permitted();
        let encoder = Encoder::with_table_bytes_max(limits.encoder_table_bytes_max as usize);
        Self {
            role,
            limits,
            now,
            // Until the peer acknowledges SETTINGS, its encoder may use the initial size.
            decoder: Decoder::new(INITIAL_TABLE_BYTES),
            encoder,
            last_section: LastSection::Discarded,
            streams: StreamTable::new(limits.turn_bytes),
            resets: ResetStreams::new(),
            peer: PeerSettings::default(),
            send_window: SendWindow::new(WINDOW_INITIAL),
            receive_window: ReceiveWindow::new(limits.connection_window_bytes),
            stream_window_bytes: limits.stream_window_bytes.max(WINDOW_INITIAL),
            budget: Budget::new(limits.budget_points, limits.budget_points_per_second, now.0),
            last_peer_stream: 0,
            skipped: (0, 0),
            next_own_stream: 1,
            settings_deadline: None,
            shutdown: Shutdown::No,
            peer_goaway: None,
            pings: 0,
            early_priorities: Vec::new(),
        }
    }

    /// Charges the budget.
    pub(super) fn charge(&mut self, waste: Waste) {
        self.budget.charge(waste, self.now.0);
    }

    /// Whether the peer opens streams with this identifier (RFC 9113 §5.1.1).
    pub(super) fn is_peer_stream(&self, id: u32) -> bool {
        (id % 2 == 1) == (self.role == Role::Server)
    }

    /// Whether a stream that is not open was never opened.
    pub(super) fn is_idle(&self, id: u32) -> bool {
        if self.is_peer_stream(id) {
            // No server pushes, so a client's peer never opens a stream.
            self.role == Role::Client || id > self.last_peer_stream
        } else {
            self.role == Role::Server || id >= self.next_own_stream
        }
    }

    /// Whether frames of a stream are ignored, as GOAWAY has excluded it.
    pub(super) fn is_excluded(&self, id: u32) -> bool {
        matches!(self.shutdown, Shutdown::Final { last_stream } if id > last_stream)
    }

    /// Returns whether a stream can send now.
    pub(super) fn is_writable(&self) -> bool {
        self.send_window.available() > 0 && self.streams.next_turn().is_some()
    }

    /// Reopens the connection's window for bytes of DATA.
    pub(super) fn credit_connection(&mut self, bytes: u32, out: &mut Vec<u8>) {
        if let Some(increment) = self.receive_window.consume(bytes, self.limits.connection_window_bytes) {
            write_window_update(out, 0, increment);
        }
    }

    /// Reopens a stream's window for bytes of DATA, if more can arrive.
    pub(super) fn credit_stream(&mut self, slot: Slot, bytes: u32, out: &mut Vec<u8>) {
        let size = self.stream_window_bytes;
        let stream = self.streams.get_mut(slot);
        if stream.remote != Side::Ended
            && let Some(increment) = stream.receive_window.consume(bytes, size)
        {
            write_window_update(out, stream.id.get(), increment);
        }
    }

    /// Ends the peer's side of a stream, and closes it if both are ended.
    pub(super) fn end_remote(&mut self, slot: Slot) {
        let stream = self.streams.get_mut(slot);
        stream.remote = Side::Ended;
        if stream.local == Side::Ended {
            self.streams.remove(slot);
        }
    }

    /// Ends this endpoint's side of a stream, and closes it if both are ended.
    pub(super) fn end_local(&mut self, slot: Slot) {
        self.budget.response_completed();
        let stream = self.streams.get_mut(slot);
        stream.local = Side::Ended;
        if stream.remote == Side::Ended {
            self.streams.remove(slot);
        } else {
            self.streams.reschedule(slot);
        }
    }

    /// Ends this endpoint's side if the frame does.
    pub(super) fn end_local_if(&mut self, slot: Slot, end: End) {
        match end {
            End::More => self.streams.reschedule(slot),
            End::Last => self.end_local(slot),
        }
    }

    /// Resets an open stream. Frames of the peer that are in flight are ignored.
    pub(super) fn reset(&mut self, slot: Slot, code: ErrorCode, out: &mut Vec<u8>) {
        let stream = self.streams.get(slot);
        write_rst_stream(out, stream.id.get(), code.0);
        if stream.remote != Side::Ended {
            self.resets.remember(stream.id, stream.receive_window);
        }
        self.streams.remove(slot);
    }

    /// Resets an open stream, as the peer violated a rule.
    pub(super) fn violation(&mut self, slot: Slot, error: StreamError, out: &mut Vec<u8>) -> Event {
        let stream = self.streams.get(slot).id;
        self.reset(slot, error.code(), out);
        self.charge(Waste::ResetOfPeer);
        Event::Reset { stream, code: error.code(), cause: ResetCause::Violation(error) }
    }

    /// Refuses a new stream, which never becomes open. `end` tells whether more frames can be in flight.
    pub(super) fn refuse(&mut self, stream: StreamId, end: End, error: StreamError, out: &mut Vec<u8>) -> Event {
        write_rst_stream(out, stream.get(), error.code().0);
        if end == End::More {
            self.resets.remember(stream, ReceiveWindow::new(self.stream_window_bytes));
        }
        match error {
            // Before it has our SETTINGS, a client cannot know the limit.
            StreamError::StreamsTooMany if self.settings_deadline.is_some() => {}
            StreamError::StreamsTooMany => self.charge(Waste::RefusedStream),
            _ => self.charge(Waste::ResetOfPeer),
        }
        Event::Reset { stream, code: error.code(), cause: ResetCause::Violation(error) }
    }

    /// Returns the last stream of a GOAWAY. It never increases (RFC 9113 §6.8).
    pub(super) fn last_stream(&self) -> u32 {
        match self.shutdown {
            Shutdown::Final { last_stream } => last_stream,
            Shutdown::No | Shutdown::Announced { .. } => self.last_peer_stream,
        }
    }

    /// Excludes streams that the peer opens from now on.
    pub(super) fn finish_shutdown(&mut self, out: &mut Vec<u8>) {
        self.shutdown = Shutdown::Final { last_stream: self.last_peer_stream };
        write_goaway(out, self.last_peer_stream, ErrorCode::NO_ERROR.0, "");
    }
}
