//! The application of a connection, and what its connections on one worker share.

use crate::limits::Limits;
use crate::net::worker::Worker;
use crate::service::ErrorHook;
use selvedge_proto::date::HttpDate;
use selvedge_proto::http1::write::CommonFields;
use std::cell::Cell;
use std::rc::Rc;

/// An application, and the state that its connections on one worker share.
pub(crate) struct AppContext<T, O> {
    pub(crate) service: T,
    pub(crate) observer: O,
    pub(crate) shared: Rc<SharedContext>,
    pub(crate) worker: Rc<Worker>,
}

impl<T, O> AppContext<T, O> {
    pub(crate) fn new(
        service: T,
        observer: O,
        (limits, error_hook): (Limits, ErrorHook),
        worker: Rc<Worker>,
    ) -> Rc<Self> {
        let shared = Rc::new(SharedContext { error_hook, ..SharedContext::new(limits) });
        Rc::new(Self { service, observer, shared, worker })
    }

    /// Marks this version as replaced: its connections close after their next response.
    pub(crate) fn mark_replaced(&self) {
        self.shared.app_state.set(AppState::Replaced);
    }
}

/// Whether new connections get this application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppState {
    Current,
    Replaced,
}

/// State that all connections of one worker and app version share, independent of the application's type.
pub(crate) struct SharedContext {
    pub(super) limits: Limits,
    /// Gives the engine's own errors the application's form.
    pub(super) error_hook: ErrorHook,
    /// The `Server` and `Date` lines, and the second for which they were made.
    cached_fields: Cell<(i64, CommonFields)>,
    pub(super) app_state: Cell<AppState>,
}

impl SharedContext {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            error_hook: ErrorHook::default(),
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
