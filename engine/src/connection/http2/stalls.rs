//! Finds clients that do not receive the responses that they requested.
//!
//! A client can stop a stream with its windows, for any time and with little effort, while the server keeps the rest
//! of the response. So a window that stays closed has the time limit of a socket that accepts nothing.

use super::contents::Contents;
use super::pending::{PendingResponse, Stall};
use crate::connection::progress::TransferLimits;
use crate::net::clock::Tick;
use selvedge_proto::http2::WindowOf;

/// Records whether the window of a response is closed. That of the connection does not count here: other responses may
/// use it.
pub(super) fn update(response: &mut PendingResponse, closed_window: Option<WindowOf>, now: Tick) {
    let is_closed = closed_window == Some(WindowOf::Stream) && response.waits_for_window();
    update_stall(&mut response.stall, if is_closed { WindowState::Closed } else { WindowState::Open }, now);
}

/// Whether responses wait for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowState {
    Open,
    Closed,
}

/// Begins or ends a stall.
pub(super) fn update_stall(stall: &mut Option<Stall>, window: WindowState, now: Tick) {
    match window {
        WindowState::Closed => _ = stall.get_or_insert(Stall { began: now, bytes: 0 }),
        WindowState::Open => *stall = None,
    }
}

/// Returns whether content of the request of a response has arrived since the last call.
pub(super) fn has_arrived(response: &mut PendingResponse, contents: &Contents) -> bool {
    let arrived = contents.arrived_bytes(response.active.stream);
    std::mem::replace(&mut response.arrived_bytes, arrived) < arrived
}

/// Begins a stall again.
pub(super) fn restart(stall: &mut Option<Stall>, now: Tick) {
    if let Some(stall) = stall {
        *stall = Stall { began: now, bytes: 0 };
    }
}

/// Returns when a stall is too long. A client that opens its windows by a few bytes from time to time has to reach the
/// minimum rate.
pub(super) fn due(stall: Option<&Stall>, limits: TransferLimits) -> Option<Tick> {
    stall.map(|stall| limits.due_by_rate(stall.began, stall.bytes))
}
