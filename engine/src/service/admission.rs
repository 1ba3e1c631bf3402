//! Which connections are served at all.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// What an application says of a connection that was accepted.
///
/// The box is kept for as long as the connection is served and dropped with it, so that an
/// application can count.
pub enum Admission {
    /// It is served.
    Serve(Box<dyn Any>),
    /// It is served, and an observer is told that its client has too many.
    Observe(Box<dyn Any>),
    /// Its client has too many: it is told 503 and closed.
    Refuse,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Serve(_) => "Serve",
            Self::Observe(_) => "Observe",
            Self::Refuse => "Refuse",
        })
    }
}

type Ask = dyn Fn(SocketAddr) -> Admission + Send + Sync;

/// Where connections are asked whether they are served.
#[derive(Clone, Default)]
pub(crate) struct Door(Option<Arc<Ask>>);

impl Door {
    pub(crate) fn new(ask: impl Fn(SocketAddr) -> Admission + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// What is said of a connection; `None` where nobody is asked.
    pub(crate) fn ask(&self, peer: SocketAddr) -> Option<Admission> {
        self.0.as_ref().map(|ask| ask(peer))
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Door(asks)" } else { "Door(open)" })
    }
}
