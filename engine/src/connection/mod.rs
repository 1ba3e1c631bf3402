//! Connections: one straight-line task each, from the first byte to the reason it ended; who is idle for a
//! while has none.
//!
//! This floor never decides what to answer and never opens a socket or a file.

mod file;
mod http1;
mod incoming;
mod parked;
mod parts;
mod respond;
mod switched;
#[cfg(test)]
mod tests;
mod wire;

use crate::limits::Limits;
use crate::net::notes::{Deadline, Notice, Place};
use crate::net::panic;
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::service::{CloseReason, Closed, Incident, Observer, Phase, Service};
use http1::Served;
use selvedge_proto::date::HttpDate;
use selvedge_proto::http1::write::DatedLines;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use wire::Wire;

/// What all connections of a worker share that began under one generation of the application.
pub(crate) struct App<T, O> {
    pub(crate) service: T,
    pub(crate) observer: O,
    pub(crate) common: Rc<Common>,
    pub(crate) worker: Rc<Worker>,
    /// Who has taken its place, for connections that go on with that one.
    successor: RefCell<Option<Rc<Self>>>,
}

impl<T, O> App<T, O> {
    pub(crate) fn new(service: T, observer: O, limits: Limits, worker: Rc<Worker>) -> Rc<Self> {
        let common = Rc::new(Common::new(limits));
        Rc::new(Self { service, observer, common, worker, successor: RefCell::default() })
    }

    /// Another has taken its place.
    pub(crate) fn retire(&self, successor: &Rc<Self>, existing: Existing) {
        if existing == Existing::Follow {
            *self.successor.borrow_mut() = Some(successor.clone());
        }
        self.common.term.set(Term::Over(existing));
    }

    /// Whoever would follow to one that is over follows to its successor at once, so that what
    /// lies between is not kept for those who are idle.
    pub(crate) fn pass_over(&self, over: &Rc<Self>, successor: &Rc<Self>) {
        if let Some(next) = self.successor.borrow_mut().as_mut().filter(|next| Rc::ptr_eq(next, over)) {
            *next = successor.clone();
        }
    }
}

/// What becomes of connections that are there when an application is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// They stay with the application that they began with, and close with their next answer.
    Finish,
    /// They go on with the new one at their next request.
    Follow,
}

/// Whether an application is the one that new connections get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Current,
    Over(Existing),
}

/// The application that a connection has at the moment.
struct Seat<T, O>(RefCell<Rc<App<T, O>>>);

impl<T, O> Seat<T, O> {
    fn app(&self) -> Rc<App<T, O>> {
        self.0.borrow().clone()
    }

    /// Goes on with the one that is current by now.
    fn follow(&self, place: Place) -> Rc<App<T, O>> {
        let mut app = self.app();
        loop {
            let Some(successor) = app.successor.borrow().clone() else { break };
            app = successor;
        }
        app.worker.notes.renew(place);
        drop(self.0.replace(app.clone()));
        app
    }
}

/// What all connections of a worker share, whatever the application.
pub(crate) struct Common {
    limits: Limits,
    /// The lines that heads begin with, and the second that they were made for.
    dated: Cell<(i64, DatedLines)>,
    term: Cell<Term>,
}

impl Common {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, dated: Cell::new((0, DatedLines::new(HttpDate::from_unix(0)))), term: Cell::new(Term::Current) }
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
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    // Made here and not in the future, which would keep room for what it was made of.
    let wire = Wire::new(stream, peer, place, app.worker.clone(), app.common.clone());
    go_on(Rc::new(wire), app, permit)
}

/// The same, also for one that was parked.
fn go_on<S: Stream, T: Service, O: Observer>(
    wire: Rc<Wire<S>>,
    app: Rc<App<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    let seat = Seat(RefCell::new(app));
    // An `async fn` keeps room for its arguments twice.
    async move {
        let mut wire = wire;
        let reason = loop {
            match guarded(&wire, &seat).await {
                Served::Ended(reason) => break reason,
                Served::Parked => return parked::park(wire, seat.0.into_inner(), permit),
                Served::Moves => wire = moved(wire),
            }
        };
        // A task of the application's own that waits for content waits in vain from now on.
        wire.wake_reader();
        let mut closed = Closed { peer: wire.peer(), reason, phase: wire.phase(), requests: wire.requests() };
        let (app, place) = (seat.0.into_inner(), wire.place());
        if reason == CloseReason::Switched {
            closed.reason = Box::pin(switched::carry_on(wire, app.common.term.get())).await;
        } else {
            if takes_the_rest(reason) && !wire.give_room_back() {
                Box::pin(wire.see_off()).await;
            }
            drop(wire);
        }
        app.observer.closed(&closed);
        app.worker.connection_ended(place);
        drop(permit);
    }
}

/// Whether a client may still take what it was sent, and will be sent nothing more.
fn takes_the_rest(reason: CloseReason) -> bool {
    use CloseReason::{AnswerEnded, Asked, ClientDone, ContentCut, HeadCut};
    matches!(reason, ClientDone | HeadCut | ContentCut | Asked | AnswerEnded)
}

/// A connection whose stream has moved, unless somebody holds on to it: then it goes on as it is.
fn moved<S: Stream>(wire: Rc<Wire<S>>) -> Rc<Wire<S>> {
    let wire = Rc::try_unwrap(wire).map(|wire| Rc::new(wire.moved()));
    let wire = wire.unwrap_or_else(|held| held);
    wire.is_resumed.set(true);
    wire
}

/// The loop, with what can end it from outside: a cut, or a panic.
async fn guarded<S: Stream, T: Service, O: Observer>(wire: &Rc<Wire<S>>, seat: &Seat<T, O>) -> Served {
    let mut serving = pin!(http1::serve(wire, seat));
    let notes = &wire.worker.notes;
    std::future::poll_fn(|cx| {
        match notes.begin_turn(wire.place(), cx.waker()) {
            Notice::Cut => return Poll::Ready(Served::Ended(wire.cut_reason())),
            // Content may be awaited by a task of the application's own.
            Notice::Expired => {
                wire.wake_reader();
            }
            Notice::None | Notice::MakeRoom | Notice::Drain | Notice::Park => {}
        }
        panic::catch(|| serving.as_mut().poll(cx)).unwrap_or_else(|message| {
            seat.app().observer.incident(&Incident::Panic { peer: wire.peer(), message });
            Poll::Ready(Served::Ended(CloseReason::Panicked))
        })
    })
    .await
}

impl<S> Wire<S> {
    /// What the connection is doing, as its note says it.
    fn phase(&self) -> Phase {
        phase_of(self.deadline())
    }
}

/// What a connection is doing that waits for this.
pub(crate) fn phase_of(deadline: Deadline) -> Phase {
    match deadline {
        Deadline::None | Deadline::Switched => Phase::Answering,
        Deadline::RequestHead => Phase::ReadingHead,
        Deadline::RequestBody => Phase::ReadingContent,
        Deadline::ResponseProgress => Phase::Sending,
        Deadline::KeepAlive => Phase::Idle,
        Deadline::Linger => Phase::Lingering,
    }
}
