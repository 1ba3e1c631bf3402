//! Thread-local facts about the request whose future the worker is polling.
//!
//! They are set only while the application's future is polled. Spawned tasks and other threads
//! have no request context.

use crate::service::{Request, Timestamp};
use selvedge_proto::method::Method;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;

/// Peer, arrival time and method of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestContext {
    pub(super) peer: SocketAddr,
    pub(super) received_at: Timestamp,
    pub(super) method: Method,
}

thread_local! {
    static CURRENT: Cell<Option<RequestContext>> = const { Cell::new(None) };
}

/// Clears the context, also if a poll panics.
struct ClearOnDrop;

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

impl RequestContext {
    pub(super) fn of(request: &Request) -> Self {
        Self { peer: request.peer(), received_at: request.received_at(), method: request.method() }
    }

    /// Returns the context of the request being polled; `None` outside of a worker's request.
    pub(super) fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Sets the context during each poll of a future.
    pub(super) async fn scope<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| self.sync_scope(|| future.as_mut().poll(cx))).await
    }

    /// Sets the context while `work` runs.
    pub(super) fn sync_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        CURRENT.set(Some(*self));
        let _clear = ClearOnDrop;
        work()
    }
}
