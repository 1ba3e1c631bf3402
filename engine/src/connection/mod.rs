//! Connections: one task for each, from the first byte to the close reason. An idle connection is parked and has no
//! task.
//!
//! This module never decides what to respond and never opens a socket or a file.

mod file;
mod http1;
mod parked;
mod request_body;
mod request_pool;
mod respond;
#[cfg(test)]
mod tests;
mod transport;
mod upgraded;

use crate::limits::Limits;
use crate::net::connection_table::{ConnectionId, Deadline, Interrupt};
use crate::net::panic;
use crate::net::stream::Stream;
use crate::net::worker::Worker;
use crate::service::{CloseReason, Closed, Observer, Phase, ServerEvent, Service};
use http1::LoopExit;
use selvedge_proto::date::HttpDate;
use selvedge_proto::http1::write::CommonFields;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use transport::Connection;

/// An application, and the state that its connections on one worker share.
pub(crate) struct AppContext<T, O> {
    pub(crate) service: T,
    pub(crate) observer: O,
    pub(crate) shared: Rc<SharedContext>,
    pub(crate) worker: Rc<Worker>,
    /// The version that replaced this one, for connections that switch to it.
    successor: RefCell<Option<Rc<Self>>>,
}

impl<T, O> AppContext<T, O> {
    pub(crate) fn new(service: T, observer: O, limits: Limits, worker: Rc<Worker>) -> Rc<Self> {
        let shared = Rc::new(SharedContext::new(limits));
        Rc::new(Self { service, observer, shared, worker, successor: RefCell::default() })
    }

    /// Marks this version as replaced.
    pub(crate) fn mark_replaced(&self, successor: &Rc<Self>, on_reload: OnReload) {
        if on_reload == OnReload::Switch {
            *self.successor.borrow_mut() = Some(successor.clone());
        }
        self.shared.app_state.set(AppState::Replaced(on_reload));
    }

    /// If this version's successor is `replaced`, sets `successor` instead, so that idle connections do not keep
    /// `replaced` alive.
    pub(crate) fn skip_replaced(&self, replaced: &Rc<Self>, successor: &Rc<Self>) {
        if let Some(next) = self.successor.borrow_mut().as_mut().filter(|next| Rc::ptr_eq(next, replaced)) {
            *next = successor.clone();
        }
    }
}

/// How open connections behave when their application is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReload {
    /// A connection continues with its application, and closes after its next response.
    Finish,
    /// A connection switches to the new application at its next request.
    Switch,
}

/// Whether new connections get this application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AppState {
    Current,
    Replaced(OnReload),
}

/// The application that a connection uses now.
struct CurrentApp<T, O>(RefCell<Rc<AppContext<T, O>>>);

impl<T, O> CurrentApp<T, O> {
    fn app(&self) -> Rc<AppContext<T, O>> {
        self.0.borrow().clone()
    }

    /// Switches to the newest version and returns it.
    fn switch_to_newest(&self, id: ConnectionId) -> Rc<AppContext<T, O>> {
        let mut app = self.app();
        loop {
            let Some(successor) = app.successor.borrow().clone() else { break };
            app = successor;
        }
        app.worker.connections.set_generation(id);
        drop(self.0.replace(app.clone()));
        app
    }
}

/// State that all connections of one worker and app version share, independent of the application's type.
pub(crate) struct SharedContext {
    limits: Limits,
    /// The `Server` and `Date` lines, and the second for which they were made.
    cached_fields: Cell<(i64, CommonFields)>,
    app_state: Cell<AppState>,
}

impl SharedContext {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            cached_fields: Cell::new((0, CommonFields::new(HttpDate::from_unix(0)))),
            app_state: Cell::new(AppState::Current),
        }
    }

    /// Returns the lines for the current second.
    fn common_fields(&self, unix: i64) -> CommonFields {
        let (made_for, lines) = self.cached_fields.get();
        if made_for == unix {
            return lines;
        }
        let lines = CommonFields::new(HttpDate::from_unix(unix));
        self.cached_fields.set((unix, lines));
        lines
    }
}

/// Serves one connection until its end and reports it. `id` is its entry in the connection table. `permit` is dropped
/// at the end.
pub(crate) fn run<S: Stream, T: Service, O: Observer>(
    stream: S,
    peer: SocketAddr,
    id: ConnectionId,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    // Constructed outside the future, which would otherwise reserve space for the arguments as well.
    let connection = Connection::new(stream, peer, id, app.worker.clone(), app.shared.clone());
    run_connection(Rc::new(connection), app, permit)
}

/// Runs a new or resumed connection until its end.
fn run_connection<S: Stream, T: Service, O: Observer>(
    connection: Rc<Connection<S>>,
    app: Rc<AppContext<T, O>>,
    permit: impl Sized + 'static,
) -> impl Future<Output = ()> {
    let current_app = CurrentApp(RefCell::new(app));
    // An `async fn` would store its arguments twice.
    async move {
        let mut connection = connection;
        let reason = loop {
            match poll_with_interrupts(&connection, &current_app).await {
                LoopExit::Ended(reason) => break reason,
                LoopExit::Parked => return parked::park(connection, current_app.0.into_inner(), permit),
                LoopExit::Migrate => connection = migrate(connection),
            }
        };
        // Wakes a body reader in a task of the application, which gets the end of the content now.
        connection.wake_reader();
        let mut closed =
            Closed { peer: connection.peer(), reason, phase: connection.phase(), requests: connection.requests() };
        let (app, id) = (current_app.0.into_inner(), connection.id());
        if reason == CloseReason::Upgraded {
            closed.reason = Box::pin(upgraded::run_upgraded(connection, app.shared.app_state.get())).await;
        } else {
            let mut is_stalled = has_stalled(reason, closed.phase);
            if may_read_more(reason) && !connection.release_large_send_buffer() {
                Box::pin(connection.drain_send_queue()).await;
                is_stalled = !connection.release_large_send_buffer();
            }
            if is_stalled {
                connection.stream.reset_on_close();
            }
            drop(connection);
        }
        app.observer.closed(&closed);
        app.worker.remove_connection(id);
        drop(permit);
    }
}

/// Whether the client may still read bytes that were sent to it.
fn may_read_more(reason: CloseReason) -> bool {
    use CloseReason::{ClientClosed, CloseRequested, ClosedAfterResponse, ContentIncomplete, HeadIncomplete};
    matches!(reason, ClientClosed | HeadIncomplete | ContentIncomplete | CloseRequested | ClosedAfterResponse)
}

/// Whether the client did not read its response in time. Bytes in the send queue are then discarded.
fn has_stalled(reason: CloseReason, phase: Phase) -> bool {
    use CloseReason::{AppReplacedTimeout, SendTooSlow, ShutdownTimeout, StoppedImmediately};
    match reason {
        SendTooSlow => true,
        AppReplacedTimeout | ShutdownTimeout | StoppedImmediately => phase == Phase::Sending,
        _ => false,
    }
}

/// Migrates the connection's stream, unless another handle to the connection exists.
fn migrate<S: Stream>(connection: Rc<Connection<S>>) -> Rc<Connection<S>> {
    let connection = Rc::try_unwrap(connection).map(|connection| Rc::new(connection.migrated()));
    let connection = connection.unwrap_or_else(|still_shared| still_shared);
    connection.is_resumed.set(true);
    connection
}

/// Polls the request loop, and ends it on an abort interrupt or a panic.
async fn poll_with_interrupts<S: Stream, T: Service, O: Observer>(
    connection: &Rc<Connection<S>>,
    current_app: &CurrentApp<T, O>,
) -> LoopExit {
    let mut serving = pin!(http1::serve(connection, current_app));
    let table = &connection.worker.connections;
    std::future::poll_fn(|cx| {
        match table.register_waker(connection.id(), cx.waker()) {
            Interrupt::Abort => return Poll::Ready(LoopExit::Ended(connection.abort_reason())),
            // A task of the application may be waiting for content.
            Interrupt::TimedOut => {
                connection.wake_reader();
            }
            Interrupt::None | Interrupt::Evict | Interrupt::Drain | Interrupt::Park => {}
        }
        panic::catch(|| serving.as_mut().poll(cx)).unwrap_or_else(|message| {
            current_app.app().observer.event(&ServerEvent::Panic { peer: connection.peer(), message });
            Poll::Ready(LoopExit::Ended(CloseReason::Panicked))
        })
    })
    .await
}

impl<S> Connection<S> {
    /// Returns the phase of the connection, for statistics.
    fn phase(&self) -> Phase {
        phase_of(self.deadline())
    }
}

/// Returns the phase that belongs to a deadline.
pub(crate) fn phase_of(deadline: Deadline) -> Phase {
    match deadline {
        Deadline::None | Deadline::Upgraded => Phase::Processing,
        Deadline::RequestHead => Phase::ReadingHead,
        Deadline::RequestBody => Phase::ReadingContent,
        Deadline::ResponseProgress => Phase::Sending,
        Deadline::KeepAlive => Phase::Idle,
        Deadline::Linger => Phase::Lingering,
    }
}
