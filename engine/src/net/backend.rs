//! Selects the I/O back end of the workers: epoll or io_uring.

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
    /// not set, uses io_uring.
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
}

impl Driver {
    /// Parses a value of `SELVEDGE_DRIVER`.
    fn from_name(name: &OsStr) -> io::Result<Self> {
        match name.to_str() {
            Some("auto" | "") => Ok(Self::Auto),
            Some("epoll") => Ok(Self::Epoll),
            Some("io_uring") => Ok(Self::IoUring),
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
    fn backend(self) -> io::Result<Backend> {
        let driver = match (self, env::var_os("SELVEDGE_DRIVER")) {
            (Self::Auto, Some(name)) => Self::from_name(&name)?,
            _ => self,
        };
        match driver {
            Self::Epoll => Ok(Backend::Epoll),
            Self::Auto | Self::IoUring => Uring::new().map(Backend::Uring),
        }
    }
}

/// The back end that each worker of a server creates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BackendChoice {
    Driver(Driver),
    /// A small ring with injected faults.
    #[cfg(test)]
    Faulty(crate::net::sys::faults::Script),
    /// A ring larger than the kernel allows.
    #[cfg(test)]
    OversizedRing,
}

impl BackendChoice {
    /// Creates the back end of a worker on the calling thread.
    ///
    /// # Errors
    /// When the ring cannot be created, or `SELVEDGE_DRIVER` has an unknown value.
    pub(crate) fn backend(self) -> io::Result<Backend> {
        match self {
            Self::Driver(driver) => driver.backend(),
            #[cfg(test)]
            Self::Faulty(script) => Uring::faulty(script).map(Backend::Uring),
            #[cfg(test)]
            Self::OversizedRing => Uring::oversized().map(Backend::Uring),
        }
    }
}

/// The I/O back end of a worker.
#[derive(Default)]
pub(crate) enum Backend {
    #[default]
    Epoll,
    Uring(Rc<Uring>),
}

impl Backend {
    /// Returns the ring, if any.
    pub(crate) fn ring(&self) -> Option<&Rc<Uring>> {
        match self {
            Self::Epoll => None,
            Self::Uring(ring) => Some(ring),
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
