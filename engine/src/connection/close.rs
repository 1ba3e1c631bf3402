//! Whether a connection stays open, and how it closes.

use crate::service::{CloseReason, Phase};
use selvedge_proto::Persistence;

/// Log reason of the 500 response after a panic of the application.
pub(super) const PANICKED: &str = "the application panicked";

/// Whether the connection stays open after a response.
#[derive(Clone, Copy)]
pub(super) struct CloseDecision {
    pub(super) persistence: Persistence,
    /// The reason if it closes.
    pub(super) close_reason: CloseReason,
}

/// Whether the client may still read bytes that were sent to it.
pub(super) fn may_read_more(reason: CloseReason) -> bool {
    use CloseReason::{ClientClosed, CloseRequested, ClosedAfterResponse, ContentIncomplete, HeadIncomplete};
    matches!(reason, ClientClosed | HeadIncomplete | ContentIncomplete | CloseRequested | ClosedAfterResponse)
}

/// Whether the client did not read its response in time. Bytes in the send queue are then discarded.
pub(super) fn has_stalled(reason: CloseReason, phase: Phase) -> bool {
    use CloseReason::{AppReplacedTimeout, SendTooSlow, ShutdownTimeout, StoppedImmediately};
    match reason {
        SendTooSlow => true,
        AppReplacedTimeout | ShutdownTimeout | StoppedImmediately => phase == Phase::Sending,
        _ => false,
    }
}
