//! The protocols of a connection: which it may begin with, and how one ends.

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

/// Which protocols the first bytes of a connection may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstProtocol {
    Http1,
    /// The preface of HTTP/2 chooses it (RFC 9113 §3.4).
    Http1OrHttp2,
}
