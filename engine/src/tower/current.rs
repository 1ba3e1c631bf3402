//! What a worker knows of the request that it is answering, for whatever is polled for it.
//!
//! It is there while the application's future is polled, and at no other time: what was spawned,
//! or sent to another thread, belongs to no request of this one's.

use crate::service::{Moment, Request};
use selvedge_proto::method::Method;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;

/// Who asks, when, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    pub(super) peer: SocketAddr,
    pub(super) moment: Moment,
    pub(super) method: Method,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// Takes it away also when a poll panics.
struct Scope;

impl Drop for Scope {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl Current {
    pub(super) fn of(request: &Request) -> Self {
        Self { peer: request.peer(), moment: request.moment(), method: request.method() }
    }

    /// That of whoever is polled at the moment; nothing elsewhere than on a worker.
    pub(super) fn get() -> Option<Self> {
        CURRENT.get()
    }

    /// Has a future know it, whenever it is polled.
    pub(super) async fn within<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| self.during(|| future.as_mut().poll(cx))).await
    }

    /// Has whatever is done meanwhile know it.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(*self));
        let _scope = Scope;
        work()
    }
}
