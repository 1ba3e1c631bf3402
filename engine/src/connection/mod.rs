//! Connections: one straight-line task each, from the first byte to the reason it ended.
//!
//! This floor never decides what to answer and never opens a socket or a file.

mod http1;
mod incoming;
mod parts;
mod respond;
#[cfg(test)]
mod tests;
mod wire;

use crate::limits::Limits;
use crate::net::notes::{Notice, Place};
use crate::net::panic;
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::service::{CloseReason, Closed, Incident, Observer, Phase, Service};
use selvedge_proto::date::HttpDate;
use selvedge_proto::http1::write::DatedLines;
use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use wire::Wire;

/// What all connections of a worker share.
pub(crate) struct App<T, O> {
    pub(crate) service: T,
    pub(crate) observer: O,
    pub(crate) common: Rc<Common>,
    pub(crate) worker: Rc<Worker>,
}

/// What all connections of a worker share, whatever the application.
pub(crate) struct Common {
    limits: Limits,
    /// The lines that heads begin with, and the second that they were made for.
    dated: Cell<(i64, DatedLines)>,
}

impl Common {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, dated: Cell::new((0, DatedLines::new(HttpDate::from_unix(0)))) }
    }

    /// The lines that heads of this second begin with.
    fn dated(&self, unix: i64) -> DatedLines {
        let (made_for, lines) = self.dated.get();
        if made_for == unix {
            return lines;
        }
        let lines = DatedLines::new(HttpDate::from_unix(unix));
        self.dated.set((unix, lines));
        lines
    }
}

/// Serves one connection to its end and reports it. `place` is its own in the notes, and
/// `permit` is kept for as long.
pub(crate) fn run<S: Stream, T: Service, O: Observer>(
    stream: S,
    peer: SocketAddr,
    place: Place,
    app: Rc<App<T, O>>,
    permit: impl Sized,
) -> impl Future<Output = ()> {
    // Made here and not in the future, which would keep room for what it was made of.
    let wire = Rc::new(Wire::new(stream, peer, place, app.worker.clone(), app.common.clone()));
    async move {
        let reason = guarded(&wire, &app).await;
        let closed = Closed { peer: wire.peer(), reason, phase: wire.phase(), requests: wire.requests() };
        app.observer.closed(&closed);
        // A task of the application's own that waits for content waits in vain from now on.
        wire.wake_reader();
        app.worker.connection_ended(wire.place());
        drop((wire, permit));
    }
}

/// The loop, with what can end it from outside: a cut, or a panic.
async fn guarded<S: Stream, T: Service, O: Observer>(wire: &Rc<Wire<S>>, app: &App<T, O>) -> CloseReason {
    let mut serving = pin!(http1::serve(wire, app));
    let notes = &app.worker.notes;
    std::future::poll_fn(|cx| {
        match notes.begin_turn(wire.place(), cx.waker()) {
            Notice::Cut => return Poll::Ready(wire.cut_reason()),
            // Content may be awaited by a task of the application's own.
            Notice::Expired => wire.wake_reader(),
            Notice::None | Notice::MakeRoom | Notice::Drain => {}
        }
        panic::catch(|| serving.as_mut().poll(cx)).unwrap_or_else(|message| {
            app.observer.incident(&Incident::Panic { peer: wire.peer(), message });
            Poll::Ready(CloseReason::Panicked)
        })
    })
    .await
}

impl<S> Wire<S> {
    /// What the connection is doing, as its note says it.
    fn phase(&self) -> Phase {
        use crate::net::notes::Deadline;
        match self.deadline() {
            Deadline::None => Phase::Answering,
            Deadline::RequestHead => Phase::ReadingHead,
            Deadline::RequestBody => Phase::ReadingContent,
            Deadline::ResponseProgress => Phase::Sending,
            Deadline::KeepAlive => Phase::Idle,
            Deadline::Linger => Phase::Lingering,
        }
    }
}
