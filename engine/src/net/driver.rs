//! Which driver moves bytes between sockets and workers.

use crate::limits::EPOLL_CONNECTIONS_FEW;
use crate::net::driven::Driven;
use crate::net::stream::Socket;
use crate::net::uring::{RingSocket, Uring};
use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// How the workers drive their sockets.
///
/// Whatever is chosen, nothing else differs: applications, limits and reasons are the same, and
/// tasks, timers and sockets of an application's own work beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// What the environment variable `SELVEDGE_DRIVER` names (`epoll` or `io_uring`). Otherwise both:
    /// a connection begins with epoll, which takes less for a few and for those that end with their
    /// first answer, and goes over to io_uring, which takes less for many, when it has been answered
    /// and waits for its next request beside 16 others that are at work or were within the last second.
    /// Where the system has no io_uring, or forbids it, all stay with epoll, and the observer is told
    /// why ([`Incident::DriverRefused`](crate::service::Incident::DriverRefused)).
    #[default]
    Auto,
    /// The system says which sockets are ready, and each is then asked one by one. Works everywhere.
    Epoll,
    /// Many operations are handed to the system at once (Linux 6.1), where it allows that;
    /// otherwise epoll, and the observer is told why
    /// ([`Incident::DriverRefused`](crate::service::Incident::DriverRefused)).
    IoUring,
    /// Both, where another number of connections is a few.
    #[cfg(test)]
    Few(usize),
    /// A small ring in which things go wrong.
    #[cfg(test)]
    #[expect(private_interfaces, reason = "only this crate's tests have it")]
    Faulty(crate::net::sys::faults::Script),
    /// A ring that no system has.
    #[cfg(test)]
    TooLarge,
}

impl Driver {
    /// What is meant by a name in the environment.
    fn named(name: &OsStr) -> io::Result<Self> {
        match name.to_str() {
            Some("auto" | "") => Ok(Self::Auto),
            Some("epoll") => Ok(Self::Epoll),
            Some("io_uring") => Ok(Self::IoUring),
            // So that all tests over sockets are tests of moving, too.
            #[cfg(test)]
            Some("moving") => Ok(Self::Few(0)),
            _ => {
                let text = format!("SELVEDGE_DRIVER is not auto, epoll or io_uring, but {}", name.display());
                Err(io::Error::new(io::ErrorKind::InvalidInput, text))
            }
        }
    }

    /// What drives the sockets of a worker on this thread.
    ///
    /// # Errors
    /// Why there is no ring, where there was to be one, or what the environment names that there is not.
    pub(crate) fn begin(self) -> io::Result<Drivers> {
        let chosen = match (self, env::var_os("SELVEDGE_DRIVER")) {
            (Self::Auto, Some(name)) => Self::named(&name)?,
            _ => self,
        };
        Ok(match chosen {
            Self::Epoll => Drivers::Epoll,
            Self::Auto => Drivers::Both { ring: Uring::new()?, few: EPOLL_CONNECTIONS_FEW },
            Self::IoUring => Drivers::Ring(Uring::new()?),
            #[cfg(test)]
            Self::Few(few) => Drivers::Both { ring: Uring::new()?, few },
            #[cfg(test)]
            Self::TooLarge => Drivers::Ring(Uring::too_large()?),
            #[cfg(test)]
            Self::Faulty(script) => Drivers::Ring(Uring::faulty(script)?),
        })
    }
}

/// What drives the sockets of a worker.
#[derive(Default)]
pub(crate) enum Drivers {
    #[default]
    Epoll,
    Ring(Rc<Uring>),
    /// Epoll, and the ring for connections that wait beside so many others.
    Both {
        ring: Rc<Uring>,
        few: usize,
    },
}

impl Drivers {
    /// The ring, if there is one.
    pub(crate) fn ring(&self) -> Option<&Rc<Uring>> {
        match self {
            Self::Epoll => None,
            Self::Ring(ring) | Self::Both { ring, .. } => Some(ring),
        }
    }

    /// Whether epoll drives any socket.
    pub(crate) fn is_epoll_used(&self) -> bool {
        !matches!(self, Self::Ring(_))
    }

    /// The socket of a connection that begins.
    pub(crate) fn drive(&self, fd: OwnedFd) -> Driven {
        match self {
            Self::Ring(ring) => Driven::Ring(RingSocket::new(ring.clone(), fd)),
            Self::Epoll | Self::Both { .. } => Driven::Epoll(Socket::new(fd)),
        }
    }

    /// The ring, where a connection with epoll that waits beside so many others takes less in it.
    pub(crate) fn ring_for_many(&self, others: usize) -> Option<&Rc<Uring>> {
        match self {
            Self::Both { ring, few } if others >= *few => Some(ring),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Driver;
    use std::ffi::OsStr;

    #[test]
    fn the_environment_names_a_driver_or_is_told_that_it_does_not() {
        let named = |name| Driver::named(OsStr::new(name));
        for (name, driver) in
            [("", Driver::Auto), ("auto", Driver::Auto), ("epoll", Driver::Epoll), ("io_uring", Driver::IoUring)]
        {
            assert_eq!(named(name).unwrap(), driver, "{name}");
        }
        for name in ["uring", "io_uring ", "EPOLL", "1"] {
            let said = named(name).unwrap_err().to_string();
            assert!(said.ends_with(&format!("but {name}")), "{said}");
        }
    }
}
