//! How the task of a connection ends.

use crate::service::CloseReason;

/// Why a protocol has ended its work on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The connection has ended.
    Closed(CloseReason),
    /// The connection is idle and continues without a task.
    Parked,
    /// The connection continues with HTTP/2.
    Http2,
}
