//! Which driver moves bytes between sockets and workers.

use crate::limits::EPOLL_CONNECTIONS_FEW;
use crate::net::driven::Driven;
use crate::net::stream::Socket;
use crate::net::uring::{RingSocket, Uring};
use std::env;
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
    /// a connection that begins while its worker has fewer than 16 others at work, or idle for less
    /// than a second, is driven by epoll, which takes less for a few, and one that begins beside more
    /// of them by io_uring, which takes less for many. Where the system has no io_uring, or forbids
    /// it, all are driven by epoll, and the observer is told why
    /// ([`Incident::DriverRefused`](crate::service::Incident::DriverRefused)).
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
    pub(crate) fn preferred(self) -> Self {
        match (self, env::var("SELVEDGE_DRIVER").as_deref()) {
            (Self::Auto, Ok("io_uring")) => Self::IoUring,
            (Self::Auto, Ok("epoll")) => Self::Epoll,
            (chosen, _) => chosen,
        }
    }

    /// What drives the sockets of a worker on this thread.
    ///
    /// # Errors
    /// Why there is no ring, where there was to be one.
    pub(crate) fn begin(self) -> io::Result<Drivers> {
        let (ring, few) = match self.preferred() {
            Self::Epoll => return Ok(Drivers::default()),
            Self::Auto => (Uring::new(), EPOLL_CONNECTIONS_FEW),
            Self::IoUring => (Uring::new(), 0),
            #[cfg(test)]
            Self::TooLarge => (Uring::too_large(), 0),
            #[cfg(test)]
            Self::Faulty(script) => (Uring::faulty(script), 0),
        };
        Ok(Drivers { ring: Some(ring?), few })
    }
}

/// What drives the sockets of a worker: epoll, and a ring where there is one.
#[derive(Default)]
pub(crate) struct Drivers {
    ring: Option<Rc<Uring>>,
    /// So many connections at a time leave the ring to others.
    few: usize,
}

impl Drivers {
    /// The ring.
    pub(crate) fn ring(&self) -> Option<Rc<Uring>> {
        self.ring.clone()
    }

    /// Whether epoll drives any socket.
    pub(crate) fn is_epoll_used(&self) -> bool {
        self.ring.is_none() || self.few > 0
    }

    /// A connected socket, of a connection beside so many others.
    pub(crate) fn drive(&self, fd: OwnedFd, others: usize) -> Driven {
        match &self.ring {
            Some(ring) if others >= self.few => Driven::Ring(RingSocket::new(ring.clone(), fd)),
            _ => Driven::Epoll(Socket::new(fd)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::worker;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_few_connections_are_left_to_epoll_and_the_rest_to_the_ring() {
        let Ok(runtime) = worker::runtime() else { panic!("a runtime") };
        runtime.block_on(async {
            let uring = Uring::new().inspect_err(|error| println!("no io_uring here, so nothing to choose: {error}"));
            let drivers = Drivers { ring: uring.ok(), few: 2 };
            let (near, _far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let is_in_ring = |others| {
                let fd = near.try_clone().unwrap().into();
                matches!(drivers.drive(fd, others), Driven::Ring(_))
            };
            let has_ring = drivers.ring.is_some();
            assert_eq!([0, 1, 2, 3].map(is_in_ring), [false, false, has_ring, has_ring]);
            assert!(drivers.is_epoll_used());
            assert!(!Drivers { few: 0, ..drivers }.is_epoll_used() || !has_ring);
        });
    }
}
