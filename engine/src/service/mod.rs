//! The contract between a server and an application, and nothing else.
//!
//! An application is a function from a request to a response. This floor knows no
//! socket, no runtime and no mechanics of an HTTP version; connections and sites both
//! look down at it and never at each other.

mod admission;
mod body;
mod copies;
mod exchange;
mod file;
mod memory;
mod request;
mod response;

pub use admission::Admission;
pub(crate) use admission::Door;
pub use body::{
    Body, Chunks, ContentError, ContentSource, Duplex, GoesOn, IncomingBody, Stopping, StreamError, Switch,
};
pub(crate) use copies::{MemoryCopy, SWEEP_INTERVAL, Source, Sweeper, sweep};
pub use exchange::{CloseReason, Closed, Exchange, Incident, Outcome, Phase};
pub use file::{FileContent, FileState, OpenFile};
pub(crate) use file::{FileFacts, SharedFile};
pub(crate) use request::{Ahead, Keepsake, Parts, Remarks};
pub use request::{Moment, Request, UNIX_PEER};
pub(crate) use response::FieldList;
pub use response::Response;

use std::future::Future;
use std::rc::Rc;

/// An application: from a request to a response.
///
/// Each worker has a clone of its own and calls it on its own thread only, so neither it
/// nor its futures need locks. It cannot fail: a failure is a response too. Should it
/// panic, the client gets a 500 where one can still be sent, its connection ends, and
/// every other one goes on.
///
/// A future that computes for long holds up every other connection of its worker.
pub trait Service: 'static {
    /// Answers one request.
    fn call(&self, request: &mut Request) -> impl Future<Output = Response>;

    /// What becomes of a request whose client has said that it sends nothing more, while it
    /// waits for the application.
    fn half_closed(&self) -> HalfClosed {
        HalfClosed::Answered
    }

    /// Whether the service keeps something with each connection.
    fn keeps(&self) -> bool {
        false
    }

    /// Whether requests are to know their connection, so that something can be sent before
    /// the answer.
    fn sends_ahead(&self) -> bool {
        false
    }
}

/// What becomes of a request whose client has said that it sends nothing more. A client that
/// went away says so, and one that only has no further request says the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HalfClosed {
    /// The application goes on, and its answer is sent to whoever may still be there.
    Answered,
    /// The application's future is dropped, so that nobody works for a client that is gone.
    #[default]
    GivenUp,
}

/// Whoever wants to know what happened: the log, the metrics, a status page.
///
/// Called on the worker, after the answer has left; it must not block. Each worker has a
/// clone of its own.
pub trait Observer: 'static {
    /// Whether [`Exchange::elapsed`] is wanted, which costs two looks at the clock.
    fn times(&self) -> bool {
        false
    }

    /// A request was answered, or refused, or its answer was cut.
    fn finished(&self, _exchange: &Exchange<'_>) {}

    /// A connection ended.
    fn closed(&self, _closed: &Closed) {}

    /// Something happened to the server itself.
    fn incident(&self, _incident: &Incident) {}

    /// Called a few times a second while there are connections, and once before the worker
    /// ends: the time to hand on what was gathered.
    fn tick(&self) {}
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

/// Shared by whatever of a worker has something to tell.
impl<O: Observer> Observer for Rc<O> {
    fn times(&self) -> bool {
        (**self).times()
    }

    fn finished(&self, exchange: &Exchange<'_>) {
        (**self).finished(exchange);
    }

    fn closed(&self, closed: &Closed) {
        (**self).closed(closed);
    }

    fn incident(&self, incident: &Incident) {
        (**self).incident(incident);
    }

    fn tick(&self) {
        (**self).tick();
    }
}

impl<F> Service for F
where
    F: AsyncFn(&mut Request) -> Response + 'static,
{
    async fn call(&self, request: &mut Request) -> Response {
        self(request).await
    }
}
