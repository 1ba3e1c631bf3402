//! How a connection closes.

use crate::service::{CloseReason, Phase};

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
