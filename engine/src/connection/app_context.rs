//! The application of a connection, and what its connections on one worker share.

use crate::limits::Limits;
use crate::net::connection_table::ConnectionId;
use crate::net::worker::Worker;
use selvedge_proto::date::HttpDate;
use selvedge_proto::http1::write::CommonFields;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

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
pub(super) enum AppState {
    Current,
    Replaced(OnReload),
}

/// The application that a connection uses now.
pub(super) struct CurrentApp<T, O>(pub(super) RefCell<Rc<AppContext<T, O>>>);

impl<T, O> CurrentApp<T, O> {
    pub(super) fn app(&self) -> Rc<AppContext<T, O>> {
        self.0.borrow().clone()
    }

    /// Switches to the newest version and returns it.
    pub(super) fn switch_to_newest(&self, id: ConnectionId) -> Rc<AppContext<T, O>> {
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
    pub(super) limits: Limits,
    /// The `Server` and `Date` lines, and the second for which they were made.
    cached_fields: Cell<(i64, CommonFields)>,
    pub(super) app_state: Cell<AppState>,
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
    pub(super) fn common_fields(&self, unix: i64) -> CommonFields {
        let (made_for, lines) = self.cached_fields.get();
        if made_for == unix {
            return lines;
        }
        let lines = CommonFields::new(HttpDate::from_unix(unix));
        self.cached_fields.set((unix, lines));
        lines
    }
}
