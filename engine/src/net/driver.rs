//! Which driver moves bytes between sockets and workers.

use crate::net::uring::Uring;
use std::env;
use std::io;
use std::rc::Rc;

/// How the workers drive their sockets.
///
/// Whatever is chosen, nothing else differs: applications, limits and reasons are the same, and
/// tasks, timers and sockets of an application's own work beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// What the environment variable `SELVEDGE_DRIVER` names (`epoll` or `io_uring`), and otherwise
    /// epoll.
    #[default]
    Auto,
    /// The system says which sockets are ready, and each is then asked one by one. Works everywhere.
    Epoll,
    /// Many operations are handed to the system at once (Linux 6.1), where it allows that;
    /// otherwise epoll, and the observer is told why
    /// ([`Incident::DriverRefused`](crate::service::Incident::DriverRefused)).
    IoUring,
    /// A small ring in which things go wrong.
    #[cfg(test)]
    #[expect(private_interfaces, reason = "only this crate's tests have it")]
    Faulty(crate::net::sys::faults::Script),
    /// A ring that no system has.
    #[cfg(test)]
    TooLarge,
}

impl Driver {
    /// The one to try first.
    fn preferred(self) -> Self {
        match self {
            Self::Auto => match env::var("SELVEDGE_DRIVER").as_deref() {
                Ok("io_uring") => Self::IoUring,
                Ok("epoll") => Self::Epoll,
                _ => PREFERRED,
            },
            chosen => chosen,
        }
    }

    /// The ring of a worker on this thread, if that is what drives its sockets.
    ///
    /// # Errors
    /// Why there is none, where it was preferred.
    pub(crate) fn ring(self) -> io::Result<Option<Rc<Uring>>> {
        match self.preferred() {
            Self::IoUring => Uring::new().map(Some),
            #[cfg(test)]
            Self::TooLarge => Uring::too_large().map(Some),
            #[cfg(test)]
            Self::Faulty(script) => Uring::faulty(script).map(Some),
            _ => Ok(None),
        }
    }
}

/// What `auto` prefers: the ring takes less for connections that stay and more for those that do
/// not, and many systems forbid it (ARCHITECTURE.md has the figures).
const PREFERRED: Driver = Driver::Epoll;
