//! Selects the I/O back end of the workers: epoll, io_uring, or both.

use crate::limits::EPOLL_CONNECTIONS_MAX;
use crate::net::uring::Uring;
use std::env;
use std::ffi::OsStr;
use std::io;
use std::rc::Rc;

/// The I/O back end of the workers.
///
/// Applications, limits and close reasons do not depend on it. Tasks, timers and sockets of the application work
/// with each back end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// Uses the back end that the environment variable `SELVEDGE_DRIVER` names (`epoll` or `io_uring`). If it is
    /// not set, uses both.
    ///
    /// A connection starts with epoll, which costs less for few connections and for those that close after the
    /// first response. It migrates to io_uring when it waits for its next request and at least 16 other
    /// connections are active. A connection is active until it has been idle for about one second.
    ///
    /// If io_uring is not available, all connections use epoll, and the observer receives
    /// [`ServerEvent::UringUnavailable`](crate::service::ServerEvent::UringUnavailable).
    #[default]
    Auto,
    /// Readiness notification with one system call per operation. Works on every Linux.
    Epoll,
    /// Submits many operations with one system call (Linux 6.1 or later). If io_uring is not available, all
    /// connections use epoll, and the observer receives
    /// [`ServerEvent::UringUnavailable`](crate::service::ServerEvent::UringUnavailable).
    IoUring,
    /// Both, with this limit of active connections for epoll.
    #[cfg(test)]
    HybridAbove(usize),
    /// A small ring with injected faults.
    #[cfg(test)]
    #[expect(private_interfaces, reason = "only this crate's tests have it")]
    Faulty(crate::net::sys::faults::Script),
    /// A ring larger than the kernel allows.
    #[cfg(test)]
    OversizedRing,
}

impl Driver {
    /// Parses a value of `SELVEDGE_DRIVER`.
    fn from_name(name: &OsStr) -> io::Result<Self> {
        match name.to_str() {
            Some("auto" | "") => Ok(Self::Auto),
            Some("epoll") => Ok(Self::Epoll),
            Some("io_uring") => Ok(Self::IoUring),
            // Runs all socket tests with migration to the ring.
            #[cfg(test)]
            Some("migrate") => Ok(Self::HybridAbove(0)),
            _ => {
                let text = format!("SELVEDGE_DRIVER must be auto, epoll or io_uring, not {}", name.display());
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    /// Creates the back end of a worker on the calling thread.
    ///
    /// # Errors
    /// When the ring cannot be created, or `SELVEDGE_DRIVER` has an unknown value.
    pub(crate) fn backend(self) -> io::Result<Backend> {
        let driver = match (self, env::var_os("SELVEDGE_DRIVER")) {
            (Self::Auto, Some(name)) => Self::from_name(&name)?,
            _ => self,
        };
        Ok(match driver {
            Self::Epoll => Backend::Epoll,
            Self::Auto => Backend::Hybrid { ring: Uring::new()?, epoll_max: EPOLL_CONNECTIONS_MAX },
            Self::IoUring => Backend::Uring(Uring::new()?),
            #[cfg(test)]
            Self::HybridAbove(epoll_max) => Backend::Hybrid { ring: Uring::new()?, epoll_max },
            #[cfg(test)]
            Self::OversizedRing => Backend::Uring(Uring::oversized()?),
            #[cfg(test)]
            Self::Faulty(script) => Backend::Uring(Uring::faulty(script)?),
        })
    }
}

/// The I/O back end of a worker.
#[derive(Default)]
pub(crate) enum Backend {
    #[default]
    Epoll,
    Uring(Rc<Uring>),
    /// Epoll for new connections. The ring for connections that wait while at least `epoll_max` other connections
    /// are active.
    Hybrid {
        ring: Rc<Uring>,
        epoll_max: usize,
    },
}

impl Backend {
    /// Returns the ring, if any.
    pub(crate) fn ring(&self) -> Option<&Rc<Uring>> {
        match self {
            Self::Epoll => None,
            Self::Uring(ring) | Self::Hybrid { ring, .. } => Some(ring),
        }
    }

    /// Returns whether any connection uses epoll.
    pub(crate) fn is_epoll_used(&self) -> bool {
        !matches!(self, Self::Uring(_))
    }

    /// Returns the ring that new connections use, if any.
    pub(crate) fn ring_for_new(&self) -> Option<&Rc<Uring>> {
        match self {
            Self::Uring(ring) => Some(ring),
            Self::Epoll | Self::Hybrid { .. } => None,
        }
    }

    /// Returns the ring if a waiting epoll connection should migrate to it while `others` other connections are
    /// active.
    pub(crate) fn ring_if_above(&self, others: usize) -> Option<&Rc<Uring>> {
        match self {
            Self::Hybrid { ring, epoll_max } if others >= *epoll_max => Some(ring),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Driver;
    use std::ffi::OsStr;

    #[test]
    fn environment_selects_a_driver_or_fails() {
        let parse = |name| Driver::from_name(OsStr::new(name));
        for (name, driver) in
            [("", Driver::Auto), ("auto", Driver::Auto), ("epoll", Driver::Epoll), ("io_uring", Driver::IoUring)]
        {
            assert_eq!(parse(name).unwrap(), driver, "{name}");
        }
        for name in ["uring", "io_uring ", "EPOLL", "1"] {
            let message = parse(name).unwrap_err().to_string();
            assert!(message.ends_with(&format!("not {name}")), "{message}");
        }
    }
}
