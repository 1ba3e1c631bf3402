//! The one address of `unsafe`: joining descriptors to the worker's epoll set.
//!
//! What is promised each time is the same: a descriptor stays open, and the same, for as
//! long as the set knows it.
#![allow(unsafe_code, reason = "registration has to be told that a descriptor outlives it")]

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use tokio::io::unix::AsyncFd;

/// A descriptor that is in the epoll set from the beginning.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the `AsyncFd` owns the descriptor, gives out only shared references to it, and
    // leaves the set before it closes it.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// A descriptor that joins the epoll set when it is first waited for.
pub(crate) struct LazilyWatched {
    // Before `fd`: fields are dropped in order, so it leaves the set before it closes.
    readiness: OnceCell<AsyncFd<Number>>,
    fd: OwnedFd,
}

/// The number of a descriptor that somebody else owns.
pub(crate) struct Number(RawFd);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl LazilyWatched {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { readiness: OnceCell::new(), fd }
    }

    /// Its readiness, if it was ever waited for.
    pub(crate) fn known_readiness(&self) -> Option<&AsyncFd<Number>> {
        self.readiness.get()
    }

    /// Its readiness; the first call puts it into the set.
    pub(crate) fn readiness(&self) -> io::Result<&AsyncFd<Number>> {
        if let Some(readiness) = self.readiness.get() {
            return Ok(readiness);
        }
        // SAFETY: `fd` is owned by `self`, is never replaced or given away, and is closed only
        // when `self` is dropped, after `readiness`, which stands before it.
        let registered = unsafe { AsyncFd::register(Number(self.fd.as_raw_fd())) }?;
        Ok(self.readiness.get_or_init(|| registered))
    }
}

impl AsFd for LazilyWatched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
