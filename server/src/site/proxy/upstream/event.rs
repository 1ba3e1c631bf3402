//! Changes of the state of servers, for the log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A change of the state of a server, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamEvent<'a> {
    /// The name of the group.
    pub(crate) group: &'a str,
    /// The name of the server.
    pub(crate) server: &'a str,
    /// What happened.
    pub(crate) change: ServerChange<'a>,
}

/// What happened to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerChange<'a> {
    /// Failed requests took it out of use for this time.
    TakenOut { time: Duration, reason: &'a str },
    /// A request to it succeeded, so it is in use again.
    Returned,
    /// It failed a check, and gets no requests.
    CheckFailed { reason: &'a str },
    /// It passed a check after a failed one.
    CheckPassed,
}

impl fmt::Display for UpstreamEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, server, change } = self;
        match change {
            ServerChange::TakenOut { time, reason } => {
                write!(f, "{server} of {group} gets no requests for {time:?}: {reason}")
            }
            ServerChange::Returned => write!(f, "{server} of {group} is in use again"),
            ServerChange::CheckFailed { reason } => write!(f, "{server} of {group} failed its health check: {reason}"),
            ServerChange::CheckPassed => write!(f, "{server} of {group} passed its health check"),
        }
    }
}

/// Receives the changes of the servers of a group, on any thread. It must not block.
pub(crate) type UpstreamObserver = Arc<dyn Fn(&UpstreamEvent<'_>) + Send + Sync>;
