//! How far the stop of a server is.

/// The progress of a stop, which never goes back. Workers watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopState {
    Running,
    /// No new connections, because another server has the listeners; active requests may finish, and responses with a
    /// lease last.
    HandOver,
    /// No new connections; active requests may finish.
    Drain,
    /// All connections are aborted.
    Immediate,
}

impl StopState {
    /// Whether responses end their connections, and idle connections close soon.
    pub(crate) fn is_draining(self) -> bool {
        self >= Self::HandOver
    }

    /// Whether a lease keeps its response.
    pub(crate) fn keeps_leases(self) -> bool {
        self <= Self::HandOver
    }
}
