//! Admission: whether the server serves a newly accepted connection.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The application's decision on a newly accepted connection.
///
/// The engine drops the box when the connection ends, so that an application can count
/// connections per client.
pub enum Admission {
    /// Serve the connection.
    Serve(Box<dyn Any>),
    /// Serve the connection, and report [`crate::service::ServerEvent::ClientOverLimit`] to the observer
    /// (dry run of a limit per client).
    ServeOverLimit(Box<dyn Any>),
    /// The client has too many connections: respond with 503 and close the connection.
    Refuse,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serve(_) => "Serve",
            Self::ServeOverLimit(_) => "Observe",
            Self::Refuse => "Refuse",
        })
    }
}

type AdmissionFn = dyn Fn(SocketAddr) -> Admission + Send + Sync;

/// The application's admission hook; the default hook admits every connection.
#[derive(Clone, Default)]
pub(crate) struct AdmissionHook(Option<Arc<AdmissionFn>>);

impl AdmissionHook {
    pub(crate) fn new(hook: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Calls the hook. Returns `None` if no hook is set.
    pub(crate) fn call(&self, peer: SocketAddr) -> Option<Admission> {
        self.0.as_ref().map(|hook| hook(peer))
    }
}

impl fmt::Debug for AdmissionHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AdmissionHook(set)" } else { "AdmissionHook(none)" })
    }
}
